"""A `kafka.security.protocol` that is not the listener's is told at once, and as what it is."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from eo_kafka.broker.settings import LOOPBACK
from eo_kafka.core.patience import served
from eo_kafka.core.process import driver_directory
from eo_kafka.errors import EnvironmentRefused, EoKafkaError, SourceError
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sources.lookup import OffsetLookup
from eo_kafka.sources.settings.options import SourceOptions
from secure_broker import PASSWORD, SecureBroker

pytest_plugins = ["secure_broker"]

SECONDS = 15  # of a busy machine; an outage is waited for for 300
Settings = dict[str, str]
LOGIN = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": PASSWORD}


def at(listener: str, **given: str) -> Callable[[SecureBroker], Settings]:
    def settings(broker: SecureBroker) -> Settings:
        return {"bootstrap.servers": f"{LOOPBACK}:{broker._ports[listener]}", **given}

    return settings


# what is wrong -> (the settings, what the listener speaks)
WRONG: dict[str, tuple[Callable[[SecureBroker], Settings], str]] = {
    "TLS where there is none": (at("PLAINTEXT", **{"security.protocol": "SSL"}), "PLAINTEXT"),
    "TLS and a login where neither is": (
        at("PLAINTEXT", **LOGIN, **{"security.protocol": "SASL_SSL"}),
        "PLAINTEXT",
    ),
    "no TLS and no login": (at("SASL"), "SASL_SSL"),
    "no TLS": (at("SASL", **LOGIN, **{"security.protocol": "SASL_PLAINTEXT"}), "SASL_SSL"),
    "no TLS where a certificate is asked for": (at("MTLS"), "SSL or SASL_SSL"),
    "no login": (at("CLEAR"), "SASL_PLAINTEXT"),
}


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_directory, "_seen", set())


def refusal(attempt: Callable[[], object], kind: type[EoKafkaError]) -> str:
    began = time.monotonic()
    with pytest.raises(EoKafkaError) as refused:
        attempt()
    assert time.monotonic() - began < SECONDS, str(refused.value)
    assert type(refused.value) is kind
    assert not refused.value.retriable
    return str(refused.value)


@pytest.mark.parametrize("wrong", WRONG)
def test_it_is_told_also_where_another_login_has_worked(secure: SecureBroker, wrong: str) -> None:
    make, speaks = WRONG[wrong]
    client = make(secure)
    served(client["bootstrap.servers"] if client.keys() - {"bootstrap.servers"} else "another")
    given = {f"kafka.{name}": value for name, value in client.items()}
    told = f"speaks {speaks}, and 'kafka.security.protocol' is"
    sink = SinkOptions.parse({**given, "topic": "any", "jobName": "wrong"}, streaming=True)
    assert told in refusal(lambda: make_plan(sink), EnvironmentRefused)
    source = SourceOptions.parse({**given, "subscribe": "any"}, streaming=True)
    assert told in refusal(OffsetLookup(source).partitions, SourceError)


def test_a_login_where_none_is_asked_for_is_refused(secure: SecureBroker) -> None:
    """Of this, the listener says itself what is wrong."""
    client = at("PLAINTEXT", **LOGIN, **{"security.protocol": "SASL_PLAINTEXT"})(secure)
    served(client["bootstrap.servers"])
    given = {f"kafka.{name}": value for name, value in client.items()}
    source = SourceOptions.parse({**given, "subscribe": "any"}, streaming=True)
    refusal(OffsetLookup(source).partitions, SourceError)
