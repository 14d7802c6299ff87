"""What the coordinator waits for before it takes its id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.clients.kafka import topic_lists
from eo_kafka.clients.kafka.control_requests import Look
from eo_kafka.core.transaction import Described, TransactionState
from eo_kafka.errors import LedgerError, OutcomeUnknown
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import recovery
from eo_kafka.state.ledger import coordinator, ledger_memory, records
from eo_kafka.state.ledger.appender import (
    NEW_TIMEOUT_MS,
    TRANSACTION_TIMEOUT_MS,
    AppendFailed,
)
from eo_kafka.state.ledger.coordinator import Coordinator
from eo_kafka.state.ledger.succession import SUCCESSION_KEY, Succession, encode_succession

PREPARED, COMPLETE = TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT


class Control:
    """Says these states of the coordinator's id, one after the other, the last one for ever."""

    def __init__(self, *states: TransactionState) -> None:
        self._states = list(states)
        self.asked = 0

    def describe_one(self, name: str) -> Described:
        self.asked += 1
        return Described(name, self._states.pop(0) if len(self._states) > 1 else self._states[0])

    begin = end = 0  # of the ledger

    def look(
        self,
        ids: Any = (),
        ends: Any = (),
        topics: Any = (),
        version: bool = False,
        others: Any = (),
    ) -> Look:
        found = {name: self.describe_one(name) for name in ids}
        return Look(found, [self.end for _ in ends], {}, 0)

    def end_offset(self, topic: str, partition: int, committed: bool | None) -> int:
        assert committed is None
        self.asked_begin = True
        return self.begin

    asked_begin = False


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


def test_what_may_hold_a_fence_back_is_named(
    monkeypatch: pytest.MonkeyPatch, options: SinkOptions
) -> None:
    """The id's last transaction ends when its markers are written: where it wrote, brokers may be
    missing."""
    with_state = replace(options, snapshots=True, state_topic="mine")
    made = Coordinator(with_state, cast(Any, Control(COMPLETE)))
    monkeypatch.setattr(made, "settle", lambda: None)

    def refuse(*_: object, **__: object) -> None:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def time_out(*_: object, **__: object) -> None:
        raise AppendFailed("1 message(s) timed out on mine")

    monkeypatch.setattr(made._appender, "take", refuse)
    monkeypatch.setattr(made._appender, "append", time_out)
    assert not made.try_append([])
    told = r"timed out on mine\. .*'__eo_kafka.job.ledger' or state topic 'mine'.*min.insync.repl"
    with pytest.raises(OutcomeUnknown, match=told):
        made.fence()


@pytest.mark.parametrize(
    ("described", "is_refused"),
    [
        (Described("c", TransactionState.MISSING), False),
        (Described("c", COMPLETE, timeout_ms=NEW_TIMEOUT_MS), True),
        (Described("c", PREPARED, timeout_ms=NEW_TIMEOUT_MS), True),
        # A first start has died before it wrote, or its append was aborted.
        (Described("c", TransactionState.EMPTY, timeout_ms=NEW_TIMEOUT_MS), False),
        (Described("c", TransactionState.COMPLETE_ABORT, timeout_ms=NEW_TIMEOUT_MS), False),
        (Described("c", TransactionState.EMPTY, timeout_ms=TRANSACTION_TIMEOUT_MS), True),
        (Described("c", TransactionState.COMPLETE_ABORT, timeout_ms=TRANSACTION_TIMEOUT_MS), True),
        # Brokers allow less.
        (Described("c", TransactionState.EMPTY, timeout_ms=29_999), False),
        (Described("c", TransactionState.EMPTY, timeout_ms=30_000), True),
    ],
)
@pytest.mark.parametrize("named", [{}, {"ledgerTopic": "mine", "transactionalIdPrefix": "p"}])
def test_an_empty_ledger_is_refused_if_kafka_remembers_another(
    described: Described, is_refused: bool, named: dict[str, str]
) -> None:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "t", "jobName": "job", **named}
    control: Any = Control()
    control.describe_one = lambda _: described
    control.end_offset = lambda *_, **__: 0
    made = Coordinator(SinkOptions.parse(given, streaming=True), control)
    if not is_refused:
        made.look_first(may_be_new=False)
        return
    with pytest.raises(LedgerError) as stop:
        made.look_first(may_be_new=False)
    other = "--ledger-topic mine --transactional-id-prefix p " if named else ""
    assert f"'eo-kafka job reset job {other}--bootstrap-servers ...'" in str(stop.value)
    assert "the ledger is '__eo_kafka.job.ledger'" in str(stop.value)


GENERATION = (records.GENERATION_KEY, records.encode_generation(60))
OWNER = (records.OWNER_KEY, records.encode_owner("q"))
LOOKED_AT = (SUCCESSION_KEY, encode_succession(Succession(replaced=("",))))


@pytest.mark.parametrize(
    ("left", "begin", "is_refused"),
    [
        ([], 240, True),  # all of it is deleted
        ([GENERATION], 230, True),  # the first segments are, and the owner with them
        ([GENERATION], 0, False),  # the driver of the first batch died before it decided
        ([OWNER, GENERATION], 230, False),  # what was before was another query's
        ([LOOKED_AT, GENERATION], 230, False),  # 'eo-kafka job reset' came after it
    ],
)
def test_a_ledger_whose_records_were_deleted_is_not_a_new_one(
    options: SinkOptions,
    monkeypatch: pytest.MonkeyPatch,
    left: list[tuple[bytes, bytes]],
    begin: int,
    is_refused: bool,
) -> None:
    log = [(begin + at, *record) for at, record in enumerate(left)]
    monkeypatch.setattr(ledger_memory, "read_records", lambda *_: iter(log))
    control: Any = Control(COMPLETE)
    control.begin, control.end = begin, 240
    made = Coordinator(options, control)
    if is_refused:
        with pytest.raises(LedgerError, match=rf"begins at offset {begin}.*job reset job"):
            made.look_first(may_be_new=False)
    else:
        made.look_first(may_be_new=False)
    assert control.asked_begin == (OWNER not in left and LOOKED_AT not in left)
    Coordinator(options, control).look_first(may_be_new=True)


def test_who_waits_for_a_dead_drivers_transaction_says_so(
    options: SinkOptions, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Open:
        """The ledger, whose last transaction ends after some seconds."""

        def end_offset(self, *_: object) -> int:
            return 10

        def reach(self, _end: object, at_least: int, timeout_s: float) -> int:
            return at_least if timeout_s > 5 else 8

    waiting = Coordinator(options, cast("Any", Open()))
    monkeypatch.setattr(waiting._memory, "read_to", lambda end: f"all up to {end}")
    assert cast("str", waiting.read_settled()) == "all up to 10"
    (told,) = caplog.messages
    assert "open transaction" in told and waiting.topic in told
