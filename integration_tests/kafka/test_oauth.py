"""Login by OAuth while a job runs: tokens that end, an endpoint that is away, a function of the
user's. That it gets in at all, and what is told of what is wrong, is in test_security.py."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from threading import Event, Thread, Timer

import pytest

from conftest import topic_maker
from eo_kafka.broker.settings import free_port
from eo_kafka.clients.kafka import config
from eo_kafka.clients.kafka.cluster import is_refusal
from eo_kafka.clients.kafka.login import oauth
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.tools import cli
from harness import assert_exactly_once, make_copy, wait_until
from secure_broker import USER, SecureCopy

pytest_plugins = ["secure_broker"]

VALUES = [b"%d" % number for number in range(600)]
ENDS_S = 400  # forty batches on a busy machine, each of which logs in anew


@pytest.fixture
def issuer(secure) -> Iterator:
    """Gives tokens of an hour again afterwards; nothing of before is kept in this process."""
    oauth._shared.clear()
    secure.issuer.given.clear()
    yield secure.issuer
    secure.issuer.lasts_s, secure.issuer.broken = 3600.0, False


@pytest.fixture
def job(secure, tmp_path) -> SecureCopy:
    servers = secure.bootstrap_servers
    given = {"kind": SecureCopy, "per_batch": 15, "client": secure.oauth()}
    return make_copy(servers, topic_maker(servers), tmp_path, VALUES, **given)


def test_a_process_has_one_token(issuer, job, tmp_path):
    """Identity providers count them, and some are paid for each. The first test, for processes of
    others go on asking."""
    log = tmp_path / "log"
    assert job.run_in_own_driver(log) == 0, log.read_text()[-3000:]
    assert len(issuer.given) < 12, "a token for each client, not for each process"


@pytest.mark.parametrize(
    "sink",
    [
        {},
        pytest.param({"commit": "idempotent"}, marks=pytest.mark.full),
        pytest.param({"snapshots": "true"}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_a_job_outlives_its_tokens(issuer, job, spark, sink):
    issuer.lasts_s = 4.0
    job.sink_extra = sink
    started = time.monotonic()
    with job.running(spark) as query:
        assert query.awaitTermination(ENDS_S)
    lasted = time.monotonic() - started
    assert lasted > 2 * issuer.lasts_s, "no connection was there when its token ended"
    assert len(issuer.given) > 2
    assert_exactly_once(job, VALUES)


def test_an_endpoint_may_be_away_while_a_token_lasts(issuer, job, spark):
    issuer.lasts_s = 10.0
    with job.running(spark) as query:
        wait_until(lambda: issuer.given, "a token is asked for")
        issuer.broken = True
        time.sleep(9)  # within which each token is to be renewed
        assert query.isActive or query.exception() is None
        issuer.broken = False
        assert query.awaitTermination(ENDS_S)
    assert_exactly_once(job, VALUES)


def test_an_endpoint_that_is_overloaded_is_asked_again(secure, issuer):
    issuer.broken = True
    Timer(1.5, lambda: setattr(issuer, "broken", False)).start()
    assert oauth.tokens(secure.oauth()).current().text == issuer.given[-1]


def test_an_endpoint_where_nobody_listens_is_told_soon(secure, issuer):
    nowhere = secure.oauth(token_endpoint_url=f"http://127.0.0.1:{free_port()}/token")
    started = time.monotonic()
    with pytest.raises(EnvironmentRefused, match="Connection refused.* Check .*token.endpoint.url"):
        oauth.tokens(nowhere).current()
    assert time.monotonic() - started < 10


def test_a_function_may_give_the_tokens(issuer, job, tmp_path, monkeypatch):
    """docs/security.md's way for clouds that sign tokens themselves."""
    text, expires = issuer.token(USER)
    (tmp_path / "token").write_text(json.dumps([text, expires]))
    (tmp_path / "my_tokens.py").write_text(
        "import json, pathlib\n\n\n"
        "def sign(given):\n"
        "    assert given == 'eu-central-1'\n"
        "    return json.loads(pathlib.Path(__file__).with_name('token').read_text())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job.client = {
        name: value
        for name, value in job.client.items()
        if not name.startswith(("sasl.oauthbearer.", "https."))
    }
    job.client |= {"oauth_cb": "my_tokens:sign", "sasl.oauthbearer.config": "eu-central-1"}
    job.per_batch = 300
    log = tmp_path / "log"
    assert job.run_in_own_driver(log) == 0, log.read_text()[-3000:]
    assert_exactly_once(job, VALUES)


def test_java_settings_log_in_as_they_stand(secure, issuer, job, spark):
    """Those of a query that is moved from Spark's own connector."""
    given = {
        name: value
        for name, value in job.client.items()
        if not name.endswith(("client.id", "client.secret", ".method"))
    }
    module = "org.apache.kafka.common.security.oauthbearer"
    login = issuer.settings(USER)
    job.client = {
        **given,
        "sasl.login.callback.handler.class": f"{module}.OAuthBearerLoginCallbackHandler",
        "sasl.jaas.config": f"{module}.OAuthBearerLoginModule required"
        f' clientId="{USER}" clientSecret="{login["sasl.oauthbearer.client.secret"]}";',
    }
    job.per_batch = 300
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_a_busy_process_shows_brokers_no_token_but_ours(secure, issuer):
    """librdkafka makes one of its own with each client, if it is let."""
    settings = {**secure.oauth(), "group.id": "g"}
    stop, errors = Event(), []

    def work() -> None:
        while not stop.is_set():
            sum(range(1000))

    busy = [Thread(target=work) for _ in range(3)]
    for one in busy:
        one.start()
    try:
        for _ in range(20):
            client = config.consumer({**settings, "error_cb": errors.append})
            assert client.list_topics(timeout=30).brokers
            client.poll(0)  # where errors are told
            client.close()
    finally:
        stop.set()
    assert [error for error in errors if is_refusal(error)] == []


def test_authorities_may_be_in_a_folder(secure, issuer, tmp_path):
    """Named by their hashes, as OpenSSL's own folders are, and as librdkafka takes them."""
    ca = str(secure.certificates.ca)
    asked = ["openssl", "x509", "-hash", "-noout", "-in", ca]
    named = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    (tmp_path / f"{named}.0").symlink_to(ca)
    settings = {**secure.oauth(), "https.ca.location": str(tmp_path)}
    assert oauth.tokens(settings).current().text == issuer.given[-1]


def test_commands_log_in_too(secure, issuer, job, tmp_path, capsys):
    options = tmp_path / "client.properties"
    options.write_text("".join(f"{name}={value}\n" for name, value in secure.oauth().items()))
    for command in (["txn", "list"], ["topic", "describe", job.source_topic]):
        assert cli.main([*command, "--config", str(options)]) == 0, capsys.readouterr()
