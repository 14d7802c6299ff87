"""Of an outage one line at each end, by a socket in the place of a broker."""

from __future__ import annotations

import socket
import time

import pytest
from confluent_kafka import KafkaError

from eo_kafka import outages


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


def test_many_failed_attempts_are_one_outage(caplog: pytest.LogCaptureFixture) -> None:
    there = listener()
    port = there.getsockname()[1]
    there.close()
    for outage in (1, 2):
        for _ in range(50):
            outages.told(failed(port))
            outages.suspect(f"127.0.0.1:{port},127.0.0.1:{port}")
        until(lambda outage=outage: caplog.text.count("is away") == outage)
        there = listener(port)
        until(lambda outage=outage: caplog.text.count("is back") == outage)
        until(lambda: not outages._watched)
        there.close()
    said = [record.getMessage() for record in caplog.records]
    assert [words.partition(" is ")[0] for words in said] == [f"Kafka broker 127.0.0.1:{port}"] * 4
    assert "Connection refused" in said[0]


def test_an_error_of_a_broker_that_answers_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    with listener() as there:
        port = there.getsockname()[1]
        outages.told(failed(port))
        until(lambda: not outages._watched)
    outages.told(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    outages.told(KafkaError(KafkaError._AUTHENTICATION, f"127.0.0.1:{port}/1: wrong password"))
    outages.suspect("no-port, [::1]:x")
    assert not outages._watched
    assert caplog.text == ""
