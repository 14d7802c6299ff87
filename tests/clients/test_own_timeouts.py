"""The timeout of transactions of our own, where brokers allow less than is asked for."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.clients.kafka import fenced, transactional_producer
from eo_kafka.clients.kafka.transactional_producer import take_own
from eo_kafka.core.transaction import Described, TransactionState
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.state.ledger.appender import Appender

SETTINGS = {"bootstrap.servers": "b:1", "message.timeout.ms": "50000"}
TOO_LONG, DENIED = (
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What brokers were asked for that allow 10 s."""
    found: list[int] = []

    def take(settings: dict[str, Any], name: str, timeout_ms: int, topic: str | None) -> str:
        found.append(timeout_ms)
        assert int(settings["message.timeout.ms"]) <= timeout_ms  # librdkafka's rule
        if name == "denied" or timeout_ms > 10_000:
            raise KafkaException(KafkaError(DENIED if name == "denied" else TOO_LONG))
        return name

    monkeypatch.setattr(transactional_producer, "_allowed_ms", {})
    monkeypatch.setattr(transactional_producer, "take", take)
    return found


def test_it_is_halved_until_brokers_take_it_and_remembered(asked: list[int]) -> None:
    assert take_own(SETTINGS, "id", 60_000) == "id"
    assert asked == [60_000, 30_000, 15_000, 7_500]
    take_own(SETTINGS, "id", 60_000)
    assert asked[4:] == [7_500]
    with pytest.raises(KafkaException):
        take_own({**SETTINGS, "bootstrap.servers": "other:1"}, "denied", 60_000)
    assert asked[5:] == [60_000], "another cluster, which refuses for another reason"


@pytest.mark.parametrize("wanted", [60_000, 59_999])
@pytest.mark.parametrize("allowed", [None, 10_000, 9_999, 900_000])
def test_odd_stays_odd_and_even_even(asked: list[int], wanted: int, allowed: int | None) -> None:
    """By that the coordinator's id tells what it was taken for."""
    if allowed:
        transactional_producer.allow(SETTINGS, allowed)
    take_own(SETTINGS, "id", wanted)
    assert {one % 2 for one in asked} == {wanted % 2}
    if allowed and allowed <= 10_000:
        assert len(asked) == 1
        assert allowed - 2 <= asked[0] <= allowed


@pytest.mark.parametrize("allowed", [10_000, 9_999, 9_998])
def test_s6_asks_for_no_more_than_brokers_allow(
    asked: list[int], monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """It is told what S1, another process, was given for a new ledger: an odd number."""
    given = {**{f"kafka.{name}": value for name, value in SETTINGS.items()}, "jobname": "job"}
    options = SinkOptions.parse(given, streaming=True)
    transactional_producer.allow(options.kafka, allowed)
    take_own(options.kafka, "id", 59_999)
    monkeypatch.setattr(transactional_producer, "_allowed_ms", {})
    found = Described("id", TransactionState.EMPTY, timeout_ms=asked[0])
    Appender(options).keep_to(found)
    take_own(options.kafka, "id", 60_000)
    assert asked == [asked[0], asked[0] + 1]
    assert asked[0] % 2
    assert asked[1] <= allowed


def test_brokers_that_allow_next_to_nothing_are_refused(
    asked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(settings: dict[str, Any], name: str, timeout_ms: int, topic: str | None) -> str:
        asked.append(timeout_ms)
        raise KafkaException(KafkaError(TOO_LONG))

    monkeypatch.setattr(transactional_producer, "take", take)
    with pytest.raises(KafkaException):
        take_own(SETTINGS, "id", 60_000)
    assert 1_000 <= asked[-1] < 2_000


@pytest.mark.parametrize(
    ("took_s", "timeout_ms", "may_be"),
    [(49, 60_000, False), (50, 60_000, True), (3, 8_000, False), (4, 8_000, True)],
)
def test_what_took_nearly_as_long_as_it_may_can_have_been_aborted_for_its_age(
    took_s: float, timeout_ms: int, may_be: bool
) -> None:
    assert fenced.took_its_time(took_s, timeout_ms) is may_be
