"""A login in a URL, and what lets in behind its `?`, stays out of all that is told."""

from __future__ import annotations

import dataclasses

import pytest

from eo_kafka.clients.kafka.login import oauth, token_endpoint
from eo_kafka.core.url_secrets import without_secrets
from eo_kafka.errors import BatchMismatch, EnvironmentRefused
from eo_kafka.sinks.batches.batch_checks import check_next
from eo_kafka.sinks.options import SinkOptions

MARKER = "hunter2Secret"
CLIENT = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": MARKER,
}
URL = "sasl.oauthbearer.token.endpoint.url"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3a://AKIA:{}@bucket/x", "s3a://AKIA:***@bucket/x"),
        ("s3a://AKIA:ab/{}@bucket/x", "s3a://AKIA:***@bucket/x"),
        ("https://{}@host/x", "https://***@host/x"),
        ("abfss://container@account/x?sas={}", "abfss://container@account/x?sas=***"),
        (
            "s3://b/p?access_key=AKIA&secret_key={}&a=1",
            "s3://b/p?access_key=***&secret_key=***&a=1",
        ),
        ("gs://b?access_token={} is away", "gs://b?access_token=*** is away"),
        ("abfs://x?tenant_id=1&client_secret={}", "abfs://x?tenant_id=1&client_secret=***"),
        ("https://a/b?Sig={}", "https://a/b?Sig=***"),
        ("wasb://c@a/?account_key={}", "wasb://c@a/?account_key=***"),
        ("http://host/token?code={}", "http://host/token?code=***"),
        ("hdfs://namenode:8020/path?region=eu", "hdfs://namenode:8020/path?region=eu"),
    ],
)
def test_they_are_taken_out_of_a_url(url: str, told: str) -> None:
    assert without_secrets(url.format(MARKER)) == told


def test_a_batch_that_does_not_follow_shows_no_login_of_its_checkpoint() -> None:
    checkpoint = f"s3a://AKIA:{MARKER}@bucket/cp"
    given = {"kafka.bootstrap.servers": "h:9", "topic": "t", "jobname": "j", "commit": "idempotent"}
    options = dataclasses.replace(SinkOptions.parse(given, True), checkpoint=checkpoint)
    assert MARKER not in repr(options)
    with pytest.raises(BatchMismatch, match=r"'s3a://AKIA:\*\*\*@bucket/cp' is at batch 5") as told:
        check_next(options, 5, 2, checkpoint)
    assert MARKER not in str(told.value)


@pytest.mark.parametrize("login", [f"me:{MARKER}", f"me:{MARKER}/x", MARKER, f"me:{MARKER}?x"])
def test_a_token_endpoint_has_no_login_in_its_url(login: str) -> None:
    (problem,) = oauth.problems({**CLIENT, URL: f"https://{login}@127.0.0.1:1/token"})
    assert "must have no login" in problem and MARKER not in problem


def test_a_token_endpoint_that_is_away_is_told_without_its_code(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(token_endpoint, "_PATIENCE_AT_FIRST_S", 0.5)
    monkeypatch.setattr("eo_kafka.core.patience.TELL_AFTER_S", 0.0)
    found = oauth.tokens({**CLIENT, URL: f"http://127.0.0.1:1/token?code={MARKER}"})
    assert found is not None
    with pytest.raises(EnvironmentRefused, match=r"http://127.0.0.1:1/token\?code=\*\*\*") as told:
        found.current()
    assert "gives no token" in caplog.text
    assert MARKER not in str(told.value) + caplog.text
