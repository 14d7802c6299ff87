"""TLS, SASL and secrets, on both planes, against a real broker that insists on them."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from conftest import topic_maker
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.errors import (
    CorruptLedger,
    EnvironmentRefused,
    EoKafkaError,
    OptionsError,
    SourceError,
)
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sources.lookup import OffsetLookup
from eo_kafka.sources.settings.options import SourceOptions
from eo_kafka.state.ledger import records
from harness import assert_exactly_once, committed_messages, make_copy
from newcomer import Newcomer
from secure_broker import KEY_PASSWORD, PASSWORD, SecureBroker, SecureCopy
from token_issuer import CLIENT_SECRET

pytest_plugins = ["secure_broker"]

VALUES = [b"%d" % number for number in range(300)]
WRONG_PASSWORD = "s3cret-but-wrong-Wv5"
SECONDS = 10  # within which a refusal must be told; nothing listens to a clock of a minute
Settings = dict[str, str]
WAYS_IN: dict[str, Callable[[SecureBroker], Settings]] = {
    "PLAIN": lambda broker: broker.sasl("PLAIN"),
    "SCRAM-SHA-256": lambda broker: broker.sasl("SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda broker: broker.sasl("SCRAM-SHA-512"),
    "OAUTHBEARER": SecureBroker.oauth,
    "client certificate": SecureBroker.client_certificate,
    "client certificate as text": SecureBroker.client_certificate_as_text,
}
# what is wrong -> (the settings, what the sentence must say)
WAYS_OUT: dict[str, tuple[Callable[[SecureBroker], Settings], str]] = {
    "password": (
        lambda broker: broker.sasl(password=WRONG_PASSWORD),
        "Invalid username or password",
    ),
    "SCRAM password": (
        lambda broker: broker.sasl("SCRAM-SHA-256", password=WRONG_PASSWORD),
        "invalid credentials",
    ),
    "authority": (
        lambda broker: {**broker.sasl(), "ssl.ca.location": str(broker.certificates.other_ca)},
        "certificate verify failed",
    ),
    "host name": (SecureBroker.another_host, "certificate verify failed"),
    "client secret": (lambda broker: broker.oauth(client_secret=WRONG_PASSWORD), "HTTP 401"),
    "audience": (lambda broker: broker.oauth(scope="another"), "invalid_token"),
    "authority of the token endpoint": (
        lambda broker: {
            **broker.oauth(),
            "https.ca.location": str(broker.certificates.other_ca),
        },
        "certificate verify failed",
    ),
}


@pytest.fixture
def job(secure, tmp_path) -> SecureCopy:
    servers = secure.bootstrap_servers
    given = {"kind": SecureCopy, "per_batch": 150}
    return make_copy(servers, topic_maker(servers), tmp_path, VALUES, **given)


def sink_options(client: Settings, topic: str, job: str = "refused") -> SinkOptions:
    given = {f"kafka.{name}": value for name, value in client.items()}
    return SinkOptions.parse({**given, "topic": topic, "jobName": job}, streaming=True)


def source_options(client: Settings, topic: str) -> SourceOptions:
    given = {f"kafka.{name}": value for name, value in client.items()}
    return SourceOptions.parse({**given, "subscribe": topic}, streaming=True)


@pytest.mark.parametrize("way", WAYS_IN)
def test_both_planes_and_the_sources_look_ups_get_in(secure, way):
    topic = topic_maker(secure.bootstrap_servers)("t", partitions=2)
    client = WAYS_IN[way](secure)
    control = ControlPlane(client)
    try:
        assert control.transaction_version() == 2
        assert control.end_offset(topic, 0, committed=True) == 0
    finally:
        control.close()
    assert len(OffsetLookup(source_options(client, topic)).partitions()) == 2
    assert make_plan(sink_options(client, topic, f"job-{topic}")).generation == 1


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("SCRAM-SHA-512", marks=pytest.mark.full),
        "PLAIN",
        "OAUTHBEARER",
        pytest.param("client certificate as text", marks=pytest.mark.full),
    ],
)
def test_a_killed_job_is_exactly_once(secure, job, spark, crash_points, tmp_path, way):
    job.client = WAYS_IN[way](secure)
    crash_points.arm("S6.after_decision", "kill-driver")
    log = tmp_path / "log"
    assert job.run_in_own_driver(log) != 0
    assert crash_points.reached("S6.after_decision"), log.read_text()[-3000:]
    job.run(spark)
    assert_exactly_once(job, VALUES)


def refusal(attempt: Callable[[], object], *kinds: type[EoKafkaError]) -> str:
    """The sentence with which `attempt` is refused; soon, and without a secret in it."""
    started = time.monotonic()
    with pytest.raises(kinds) as refused:
        attempt()
    assert time.monotonic() - started < SECONDS
    sentence = str(refused.value)
    for secret in (PASSWORD, WRONG_PASSWORD, KEY_PASSWORD, CLIENT_SECRET):
        assert secret not in sentence
    return sentence


def test_the_page_that_says_how_to_log_in_logs_in(secure, job, tmp_path):
    """docs/security.md, by SCRAM-SHA-512 and by OAuth."""
    user = secure.sasl("SCRAM-SHA-512", "orders-copy", PASSWORD)
    secure.add_user("orders-copy", PASSWORD)
    secure.grant("orders-copy", [(ResourceType.TOPIC, job.source_topic, AclOperation.DESCRIBE)])
    addresses = {
        "broker:9093": user["bootstrap.servers"],
        "/etc/kafka/ca.pem": user["ssl.ca.location"],
        "https://id.example.com/token": f"{secure.issuer.url}/token",
    }
    secrets = {"password": PASSWORD, "client_secret": CLIENT_SECRET}
    newcomer = Newcomer("docs/security.md", tmp_path, secrets, addresses)
    assert list(newcomer.follow())
    authority = {"kafka.https.ca.location": user["ssl.ca.location"]}
    for login in (newcomer.names["secure"], {**newcomer.names["oauth"], **authority}):
        options = SourceOptions.parse({**login, "subscribe": job.source_topic}, streaming=False)
        assert len(OffsetLookup(options).partitions()) == 2


@pytest.mark.parametrize("wrong", WAYS_OUT)
def test_s1_says_soon_what_is_wrong(secure, wrong):
    make, reason = WAYS_OUT[wrong]
    options = sink_options(make(secure), "any")
    assert reason in refusal(lambda: make_plan(options), EnvironmentRefused)


@pytest.mark.parametrize("wrong", WAYS_OUT)
def test_the_source_says_soon_what_is_wrong(secure, wrong):
    make, reason = WAYS_OUT[wrong]
    lookup = OffsetLookup(source_options(make(secure), "any"))
    kinds = SourceError, EnvironmentRefused  # the latter without a token
    assert reason in refusal(lookup.partitions, *kinds)


def test_a_missing_client_certificate_is_told_soon(secure):
    client = secure.client_certificate()
    for name in ("ssl.certificate.location", "ssl.key.location", "ssl.key.password"):
        del client[name]
    sentence = refusal(lambda: make_plan(sink_options(client, "any")), EnvironmentRefused)
    assert "certificate" in sentence
    lookup = OffsetLookup(source_options(client, "any"))
    assert "certificate" in refusal(lookup.partitions, SourceError)


def test_a_wrong_key_password_is_told_on_both_planes(secure):
    client = {**secure.client_certificate(), "ssl.key.password": WRONG_PASSWORD}
    refusal(lambda: make_plan(sink_options(client, "any")), EnvironmentRefused)
    sentence = refusal(lambda: ControlPlane(client), OptionsError)
    assert "ssl.key.password" in sentence


def test_certificates_are_checked_by_the_control_plane_itself(secure, monkeypatch):
    """And not only by librdkafka, which S1 asks first."""
    monkeypatch.setattr("eo_kafka.clients.kafka.bootstrap.TIMEOUT_S", 1.5)
    for wrong in ("authority", "host name"):
        client = WAYS_OUT[wrong][0](secure)
        refusal(lambda client=client: ControlPlane(client), EnvironmentRefused)
        unchecked = {**client, "enable.ssl.certificate.verification": "false"}
        ControlPlane(unchecked).close()
    no_name = {**secure.another_host(), "ssl.endpoint.identification.algorithm": "none"}
    ControlPlane(no_name).close()


@pytest.mark.parametrize("key", [records.GENERATION_KEY, records.decision_key("main", 1, 0)])
def test_a_pickle_in_the_ledger_is_a_corrupt_record_and_is_not_run(secure, tmp_path, key):
    topic = topic_maker(secure.bootstrap_servers)("t")
    options = sink_options(secure.sasl(), topic, f"job-{topic}")
    assert make_plan(options).generation == 1
    proof = tmp_path / "the pickle was run"
    bomb = pickle.dumps(Bomb(proof))
    produce_to(secure.bootstrap_servers, options.job_and_ledger[1], key, bomb)
    with pytest.raises(CorruptLedger, match="restore the topic"):
        make_plan(options)
    assert not proof.exists()
    pickle.loads(bomb)
    assert proof.exists(), "the bomb is none, and the test shows nothing"


class Bomb:
    def __init__(self, proof: Path) -> None:
        self.proof = proof

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.proof,)


def produce_to(servers: str, topic: str, key: bytes, value: bytes) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, value, key, 0)
    assert producer.flush(30) == 0


# Python's logging at DEBUG for our modules, in the driver and in all of its workers.
LOGGING = """
import logging, sys
handler = logging.StreamHandler(sys.stderr)
handler.setFormatter(logging.Formatter("EO-KAFKA-LOG %(name)s %(message)s"))
logging.getLogger("eo_kafka").addHandler(handler)
logging.getLogger("eo_kafka").setLevel(logging.DEBUG)
logging.getLogger("eo_kafka").info("logging is on")
"""


@pytest.fixture
def observed(tmp_path, monkeypatch) -> Path:
    """Drivers started here write Spark's event log, and log all that ours has to say."""
    events, configuration, python = (
        tmp_path / name for name in ("events", "configuration", "python")
    )
    for folder in (events, configuration, python):
        folder.mkdir()
    (configuration / "spark-defaults.conf").write_text(
        f"spark.eventLog.enabled true\nspark.eventLog.dir file://{events}\n"
        "spark.eventLog.compress false\n"
        "spark.eventLog.overwrite true\n"  # Spark has found its own folder to be there, once
    )
    (python / "sitecustomize.py").write_text(LOGGING)
    monkeypatch.setenv("SPARK_CONF_DIR", str(configuration))
    monkeypatch.setenv("PYTHONPATH", f"{python}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    return tmp_path


def written(*places: Path) -> dict[Path, str]:
    files = [path for place in places for path in (place.rglob("*") if place.is_dir() else [place])]
    return {path: path.read_text(errors="replace") for path in files if path.is_file()}


@pytest.mark.parametrize(
    "case",
    [
        "it works",
        "it works by OAuth",
        "wrong password",
        pytest.param("a sink that may not be used", marks=pytest.mark.full),
    ],
)
def test_no_secret_is_written_anywhere(secure, job, observed, case):
    job.client = secure.client_certificate_as_text()
    key_line = job.client["ssl.key.pem"].splitlines()[5]
    if case == "it works by OAuth":
        job.client = secure.oauth()
    elif case == "wrong password":
        job.client = secure.sasl(password=WRONG_PASSWORD)
    elif case == "a sink that may not be used":
        secure.add_user("nobody", WRONG_PASSWORD)
        job.client = secure.sasl("SCRAM-SHA-256", "nobody", WRONG_PASSWORD)
    log = observed / "log"
    code = job.run_in_own_driver(log)
    works = case.startswith("it works")
    assert (code == 0) == works, log.read_text()[-3000:]
    assert "EO-KAFKA-LOG" in log.read_text(), "our loggers were not on"
    found = written(log, observed / "events", job.checkpoint)
    assert any("events" in str(path) for path in found), "Spark wrote no event log"
    if works:
        ledger = committed_messages(secure.bootstrap_servers, job.ledger)
        assert ledger
        found[Path("ledger")] = repr([(one.key(), one.value()) for one in ledger])
    for path, text in found.items():
        secrets = (PASSWORD, WRONG_PASSWORD, KEY_PASSWORD, CLIENT_SECRET, *secure.issuer.given)
        for secret in (*secrets, key_line):
            at = text.find(secret)
            assert at < 0, f"{path}: {text[max(0, at - 300) : at]}"


def test_reprs_and_logs_hold_no_secret_and_the_pickled_writer_does(secure, caplog):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("kafka.net").setLevel(logging.INFO)  # it dumps requests: see docs/security.md
    logging.getLogger("kafka.protocol").setLevel(logging.INFO)
    client = {**secure.client_certificate_as_text(), **secure.sasl("SCRAM-SHA-256")}
    sink, source = sink_options(client, "t"), source_options(client, "t")
    control = ControlPlane(client)
    control.close()
    shown = "".join(repr(one) for one in (sink, source, sink.kafka, source.kafka, control))
    shown += "".join(str(one) for one in (sink, source, sink.kafka))
    for secret in (PASSWORD, KEY_PASSWORD, client["ssl.key.pem"].splitlines()[5]):
        assert secret not in shown + caplog.text
    # Executors need them: Spark's RPC should be encrypted where its network is not trusted.
    assert PASSWORD.encode() in pickle.dumps(sink)
    assert "Starting KafkaAdminClient" in caplog.text, "kafka-python does not log its settings"
