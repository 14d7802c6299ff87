"""Of an outage one line at each end, by a socket in the place of a broker."""

from __future__ import annotations

import socket
import time
from collections import deque

import pytest
from confluent_kafka import KafkaError

from eo_kafka.clients.kafka import outages


def failed(port: int) -> KafkaError:
    reason = f"sasl_ssl://127.0.0.1:{port}/1: Connect to ipv4#127.0.0.1:{port} failed: refused"
    return KafkaError(KafkaError._TRANSPORT, reason)


def listener(port: int = 0) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind(("127.0.0.1", port))
    made.listen()
    return made


def until(condition) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def said_of(port: int, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Other tests of this process may have left brokers that are looked for still."""
    said = (record.getMessage() for record in caplog.records if record.name == outages.__name__)
    return [words for words in said if f"127.0.0.1:{port}" in words]


def is_looked_for(port: int) -> bool:
    return ("127.0.0.1", port) in outages._watched


def test_a_read_has_its_time_from_when_the_broker_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has got nothing for longer than it may without an outage; now it is answered soon."""
    monkeypatch.setattr(outages, "_watched", set())
    there = listener()
    port = there.getsockname()[1]
    there.close()
    moved = time.monotonic() - 100
    assert outages.stall_timeout_s(60, time.monotonic()) == 60
    outages.suspect(f"127.0.0.1:{port}")
    assert outages.stall_timeout_s(60, moved) == outages.OUTAGE_S
    time.sleep(0.5)
    there = listener(port)
    until(lambda: not is_looked_for(port))
    there.close()
    assert 160 < outages.stall_timeout_s(60, moved) < 220
    assert outages.stall_timeout_s(60, time.monotonic()) == 60


def test_many_failed_attempts_are_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    there = listener()
    port = there.getsockname()[1]
    there.close()
    for outage in (1, 2):
        for _ in range(50):
            outages.told(failed(port))
            outages.suspect(f"127.0.0.1:{port},sasl_ssl://127.0.0.1:{port}")
        until(lambda outage=outage: len(said_of(port, caplog)) == 2 * outage - 1)
        there = listener(port)
        until(lambda outage=outage: len(said_of(port, caplog)) == 2 * outage)
        until(lambda: not is_looked_for(port))
        there.close()
    said = said_of(port, caplog)
    assert ["is away (Connection refused)" in words for words in said] == [True, False, True, False]
    assert ["is back after" in words for words in said] == [False, True, False, True]


def test_an_error_of_a_broker_that_answers_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    with listener() as there:
        port = there.getsockname()[1]
        outages.told(failed(port))
        until(lambda: not is_looked_for(port))
    outages.told(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    outages.told(KafkaError(KafkaError._AUTHENTICATION, f"127.0.0.1:{port}/1: wrong password"))
    outages.suspect("[::1]:x, ")
    assert not is_looked_for(port)
    assert not said_of(port, caplog)


def test_a_refused_login_is_known_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "_refused", deque(maxlen=1))
    outages.told(KafkaError(KafkaError._TRANSPORT, "all is silent"))
    assert outages.refused_login() == ""
    for reason in ("older", "newer"):
        outages.told(KafkaError(KafkaError._AUTHENTICATION, f"127.0.0.1:1/1: {reason} password"))
    assert outages.refused_login() == (
        " Kafka does not let this principal in: 127.0.0.1:1/1: newer password."
    )
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 61)
    assert outages.refused_login() == ""
