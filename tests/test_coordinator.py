"""What the coordinator waits for before it takes its id."""

from __future__ import annotations

from typing import Any

import pytest

from eo_kafka.clients.kafka import topic_lists
from eo_kafka.clients.kafka.control_requests import Look
from eo_kafka.core.transaction import Described, TransactionState
from eo_kafka.errors import OutcomeUnknown
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import recovery
from eo_kafka.state.ledger import coordinator
from eo_kafka.state.ledger.appender import AppendFailed
from eo_kafka.state.ledger.coordinator import Coordinator

PREPARED, COMPLETE = TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT


class Control:
    """Says these states of the coordinator's id, one after the other, the last one for ever."""

    def __init__(self, *states: TransactionState) -> None:
        self._states = list(states)
        self.asked = 0

    def describe_one(self, name: str) -> Described:
        self.asked += 1
        return Described(name, self._states.pop(0) if len(self._states) > 1 else self._states[0])

    def look(self, ids: list[str], ends: list[Any], topics: list[str], version: bool) -> Look:
        return Look({name: self.describe_one(name) for name in ids}, [0 for _ in ends], {}, 0)


@pytest.fixture
def options() -> SinkOptions:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "jobName": "job"}
    return SinkOptions.parse(given, streaming=True)


@pytest.mark.parametrize(
    ("states", "asked"),
    [
        ([COMPLETE], 1),
        ([TransactionState.MISSING], 1),
        ([PREPARED, PREPARED, COMPLETE], 3),
        ([TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT], 2),
    ],
)
def test_a_transaction_that_is_completing_is_waited_for(
    options: SinkOptions, states: list[TransactionState], asked: int
) -> None:
    control: Any = Control(*states)
    Coordinator(options, control).look_first(may_be_new=True)
    assert control.asked == asked


def test_one_that_never_completes_is_left_to_librdkafka(
    options: SinkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "COMPLETED_TIMEOUT_S", 0.02)
    control: Any = Control(PREPARED)
    Coordinator(options, control).look_first(may_be_new=True)
    assert control.asked > 1


def test_that_topics_have_no_ids_is_said_once(
    options: SinkOptions, caplog: pytest.LogCaptureFixture
) -> None:
    topic_lists.warn_of_no_ids.cache_clear()
    control: Any = Control(COMPLETE)
    for _ in range(2):
        Coordinator(options, control).look_first(may_be_new=True)
    (said,) = [one.message for one in caplog.records if "have no ids" in one.message]
    assert said.startswith("Kafka at b:1: ")


def test_why_no_generation_could_be_taken_is_said(
    options: SinkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be another driver; brokers whose transactions begin with a record do the same."""
    control: Any = Control(COMPLETE)
    made = Coordinator(options, control)

    def append(*_: object, **__: object) -> None:
        raise AppendFailed("it was read to offset 4, and goes on at 5")

    monkeypatch.setattr(made, "fence", lambda: None)
    monkeypatch.setattr(made, "read", lambda: made.ledger)
    monkeypatch.setattr(made, "append", append)
    with pytest.raises(OutcomeUnknown, match=r"5 attempts: it was read to offset 4, and .* at 5\."):
        recovery._take_generation(made, control, options, lambda _: None)
