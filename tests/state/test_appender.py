"""An append counts only if each record is in the log: a snapshot's and an export's, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.clients.kafka import transactional_producer
from eo_kafka.core.transaction import Described, TransactionState
from eo_kafka.errors import EnvironmentRefused, OutcomeUnknown
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.state.ledger.appender import Appender, AppendFailed, Record
from eo_kafka.state.snapshots.writer import ExportWriter

EMPTY, TOO_LARGE = TransactionState.EMPTY, KafkaError.MSG_SIZE_TOO_LARGE
DECISION: Record = (b"decision", b"names the snapshot")
SNAPSHOT: list[Record] = [(b"chunk-0", b"state"), (b"chunk-1", b"state")]


class Message:
    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self._at, self._offset = (topic, partition), offset

    def topic(self) -> str:
        return self._at[0]

    def partition(self) -> int:
        return self._at[1]

    def offset(self) -> int:
        return self._offset


class Producer:
    """Reports all as delivered: of topic `lost` the first record without an offset, as librdkafka
    does after "duplicate sequence"; of topic `silent` nothing. Topic `too_small` refuses all."""

    def __init__(
        self, lost: str | None = None, silent: str | None = None, too_small: str | None = None
    ) -> None:
        self._lost, self._silent, self._too_small = lost, silent, too_small
        self._sent: list[tuple[str, int, Callable[[Any, Message], None]]] = []
        self.ended: list[str] = []

    def begin_transaction(self) -> None:
        """Nothing to do."""

    def produce(
        self, topic: str, value: bytes, key: bytes, partition: int, on_delivery: Any, headers: Any
    ) -> None:
        self._sent.append((topic, partition, on_delivery))

    def flush(self, timeout_s: float) -> int:
        counts: Counter[tuple[str, int]] = Counter()
        for topic, partition, on_delivery in self._sent:
            offset = counts[topic, partition]
            counts[topic, partition] += 1
            if topic == self._too_small:
                on_delivery(KafkaError(TOO_LARGE), Message(topic, partition, -1))
            elif topic != self._silent:
                lost = topic == self._lost and offset == 0
                on_delivery(None, Message(topic, partition, -1 if lost else offset))
        return sum(topic == self._silent for topic, _, _ in self._sent)

    def commit_transaction(self, timeout_s: float) -> None:
        if self._too_small:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.ended.append("commit")

    def abort_transaction(self, timeout_s: float) -> None:
        self.ended.append("abort")


@pytest.fixture
def options(tmp_path: Any) -> SinkOptions:
    given = {"kafka.bootstrap.servers": "b:1", "topic": "out", "jobName": "j", "snapshots": "true"}
    return SinkOptions.parse({**given, "checkpointLocation": str(tmp_path)}, streaming=True)


def appended(options: SinkOptions, producer: Producer, records: list[Record]) -> Appender:
    made = Appender(options)
    made._producer = producer
    made.append(records, SNAPSHOT)
    return made


@pytest.mark.parametrize("records", [[DECISION], []], ids=["decision", "sent ahead"])
@pytest.mark.parametrize("how", ["lost", "silent"])
def test_a_snapshot_that_is_not_known_to_be_there_is_not_decided(
    options: SinkOptions, records: list[Record], how: str
) -> None:
    producer = Producer(**{how: options.state_topic})
    with pytest.raises(AppendFailed, match="snapshot landed" if how == "lost" else "no answer"):
        appended(options, producer, records)
    assert producer.ended == ["abort"]


@pytest.mark.parametrize("how", ["lost", "silent"])
def test_a_decision_that_is_not_known_to_be_there_does_not_count(
    options: SinkOptions, how: str
) -> None:
    producer = Producer(**{how: options.job_and_ledger[1]})
    with pytest.raises(AppendFailed):
        appended(options, producer, [DECISION])
    assert producer.ended == ["abort"]


def test_what_is_there_is_committed(options: SinkOptions) -> None:
    producer = Producer()
    assert appended(options, producer, [DECISION]).proven
    assert producer.ended == ["commit"]


@pytest.mark.parametrize("which", ["ledger_topic", "state_topic"])
def test_the_topic_that_refuses_a_record_is_the_one_to_change(
    options: SinkOptions, which: str
) -> None:
    refusing, other = getattr(options, which), {options.ledger_topic, options.state_topic}
    producer = Producer(too_small=refusing)
    with pytest.raises(EnvironmentRefused, match=f"--entity-name {refusing} ") as stop:
        appended(options, producer, [DECISION])
    size = len((DECISION if which == "ledger_topic" else SNAPSHOT[0])[1] or b"")
    assert f"largest has {size} bytes" in str(stop.value)
    assert not any(name in str(stop.value) for name in other - {refusing} if name)


@pytest.mark.parametrize("end", [0, 5])
def test_a_snapshot_that_counts_on_what_is_there_lands_right_behind_it(
    options: SinkOptions, end: int
) -> None:
    """Else something was not read, perhaps a tombstone."""
    made, producer = Appender(options), Producer()
    made._producer = producer
    made.state_point.read_to(end)
    if end == 0:  # where the producer's records land
        made.append([DECISION], SNAPSHOT)
    else:
        with pytest.raises(AppendFailed, match="read to offset 5, and goes on at 0"):
            made.append([DECISION], SNAPSHOT)
    assert producer.ended == ["abort" if end else "commit"]


def test_an_export_whose_topic_refuses_a_record_does_not_say_to_try_again(
    options: SinkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be refused for ever."""
    producer = Producer(too_small="export")
    monkeypatch.setattr(ExportWriter, "_settle", lambda _: None)
    monkeypatch.setattr(transactional_producer, "take", lambda *_, **__: producer)
    control: Any = SimpleNamespace(describe_one=lambda name: Described(name, EMPTY))
    with pytest.raises(EnvironmentRefused, match="largest has 5 bytes.*--entity-name export "):
        ExportWriter(options, control, "export").append(SNAPSHOT)


@pytest.mark.parametrize("how", ["lost", "silent"])
def test_an_export_of_which_records_are_not_known_to_be_there_is_not_finished(
    options: SinkOptions, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(**{how: "export"})
    monkeypatch.setattr(ExportWriter, "_settle", lambda _: None)
    monkeypatch.setattr(transactional_producer, "take", lambda *_, **__: producer)
    control: Any = SimpleNamespace(describe_one=lambda name: Described(name, EMPTY))
    with pytest.raises(OutcomeUnknown, match="holds more" if how == "lost" else "No broker said"):
        ExportWriter(options, control, "export").append(SNAPSHOT)
    assert producer.ended == ["abort"]
