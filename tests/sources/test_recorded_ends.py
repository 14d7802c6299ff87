"""The source's half of `snapshotInterval`: following what the ledger records; no broker."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Mapping
from typing import ClassVar

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from eo_kafka.connectors import kafka_source
from eo_kafka.connectors.kafka_source import KafkaStreamReader
from eo_kafka.core.offsets import Offsets, Position, TopicPartition
from eo_kafka.core.transaction import Begun, Decision, DecisionState
from eo_kafka.errors import DataLossError, OptionsError, ReadTimeout, UnknownTopic
from eo_kafka.sources import recorded_ends
from eo_kafka.sources.lookup import Ends, Topics
from eo_kafka.sources.recorded_ends import _topic_ids
from eo_kafka.sources.settings.options import SourceOptions
from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.blob_names import Blob, SnapshotHead
from eo_kafka.state.ledger.ledger import Ledger
from eo_kafka.state.snapshots.batch_ends import Ambiguous, next_ends

GIVEN = {
    "kafka.bootstrap.servers": "localhost:9092",
    "subscribe": "t",
    "startingOffsets": "earliest",
    "maxOffsetsPerTrigger": "4",
    "jobName": "job",
}
LEDGER = "__eo_kafka.job.ledger"
ALL = ReadAllAvailable()


class Kafka:
    """Stands in for OffsetLookup and read_records: one topic, and what the ledger holds."""

    end = 100
    topic_partitions = 1
    recorded: ClassVar[Mapping[int, list[str]]] = {}
    head: int | None = 2
    begun: Begun | None = None
    ledger: str | None = LEDGER
    reads: ClassVar[list[tuple[str, int, int]]] = []

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> set[TopicPartition]:
        if self._options.subscription.topics == ("t",):
            return {TopicPartition("t", number) for number in range(self.topic_partitions)}
        assert self._options.read_committed
        if self._options.subscription.topics != (self.ledger,):
            raise UnknownTopic(f"no {self._options.subscription.topics}")
        return {
            TopicPartition(*self._options.subscription.topics, 0),
            TopicPartition(*self._options.subscription.topics, 1),
        }

    def look(self) -> Topics:
        return Topics(self.partitions(), {})

    def earliest(self, partitions: Offsets) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def latest(self, partitions: Offsets, known: Offsets | None = None) -> dict:
        return dict.fromkeys(partitions, self.end)

    def ends(self, partitions: Offsets, known: Position | None = None) -> Ends:
        return Ends(self.latest(partitions), {})

    def close(self) -> None:
        pass

    @classmethod
    def read_records(
        cls, settings: Mapping[str, str], topic: str, partition: int, start: int, end: int
    ) -> Iterator[tuple[int, bytes, bytes]]:
        cls.reads = [*cls.reads, (topic, partition, end)]
        for batch, lines in cls.recorded.items():
            found = Decision("main", batch, 0, DecisionState.DONE, 1, 5, 1, 0, (), tuple(lines))
            key = records.decision_key("main", batch, 0)
            yield batch, key, records.encode_decision(found)
        if cls.head is not None:
            head = SnapshotHead(cls.head, 1, "q", Blob("0" * 40, 1), 0, 1, 1, 1, 0)
            yield 99, records.SNAPSHOT_KEY, records.encode_snapshot(head)
        if cls.begun is not None:
            yield 100, records.BEGUN_KEY, records.encode_begun(cls.begun)


def at(offset: int) -> dict[str, dict[str, int]]:
    return {"t": {"0": offset}}


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> type[Kafka]:
    class Fresh(Kafka):
        pass

    Fresh.recorded = {batch: [json.dumps(at(10 * batch))] for batch in range(6)}
    for module in (kafka_source, recorded_ends):
        monkeypatch.setattr(module, "OffsetLookup", Fresh)
    monkeypatch.setattr(recorded_ends, "read_records", Fresh.read_records)
    return Fresh


def stream(**extra: str) -> KafkaStreamReader:
    return KafkaStreamReader(SourceOptions.parse({**GIVEN, **extra}, streaming=True))


def test_recorded_ends_are_answered_whatever_the_limit_says(kafka: type[Kafka]) -> None:
    reader = stream()

    assert reader.latestOffset(at(20), ReadMaxRows(4)) == at(30)
    assert reader.latestOffset(at(30), ReadMaxRows(1)) == at(40)
    assert reader.latestOffset(at(40), ALL) == at(50)
    assert reader.latestOffset(at(50), ReadMaxRows(4)) == at(54)
    assert kafka.reads == [(LEDGER, 0, 100)], "read once, to the last stable offset"


def test_they_are_written_as_they_were(kafka: type[Kafka]) -> None:
    """Spark and the sink compare them as text."""
    assert json.dumps(stream().latestOffset(at(20), ALL)) == kafka.recorded[3][0]


def test_a_restart_in_the_middle_of_the_replay_follows_on(kafka: type[Kafka]) -> None:
    assert stream().latestOffset(at(40), ReadMaxRows(4)) == at(50)


def test_batches_before_the_snapshot_are_not_followed(kafka: type[Kafka]) -> None:
    assert stream().latestOffset(at(10), ReadMaxRows(4)) == at(14)


def test_what_follows_on_a_new_batch_is_new(kafka: type[Kafka]) -> None:
    """A topic that was made again comes to offsets that the ledger knows from before."""
    reader = stream()

    assert reader.latestOffset(at(21), ReadMaxRows(4)) == at(25)
    assert reader.latestOffset(at(30), ReadMaxRows(4)) == at(34)


def test_after_a_restore_of_batch_0_batch_1_is_followed(kafka: type[Kafka]) -> None:
    """Spark asks for the start again, and plans batch 1 from the stored end of batch 0."""
    kafka.head = 0
    for starting in ("earliest", "latest"):
        reader = stream(startingOffsets=starting)
        start = reader.initialOffset()
        reader.partitions(start, at(0))
        assert reader.latestOffset(at(0), ReadMaxRows(4)) == at(10)


def test_each_source_of_several_finds_its_own(kafka: type[Kafka]) -> None:
    kafka.recorded = {
        2: [json.dumps({"u": {"0": 1}}), json.dumps(at(7))],
        3: [json.dumps({"u": {"0": 2}}), json.dumps(at(9))],
    }

    assert stream().latestOffset(at(7), ReadMaxRows(4)) == at(9)


def test_a_batch_that_was_interrupted_is_followed_last(kafka: type[Kafka]) -> None:
    kafka.begun = begun(6, at(57))
    reader = stream()

    assert reader.latestOffset(at(40), ReadMaxRows(4)) == at(50)
    assert reader.latestOffset(at(50), ReadMaxRows(4)) == at(57)
    assert reader.latestOffset(at(57), ReadMaxRows(4)) == at(61)


@pytest.mark.parametrize("batch", [5, 7])
def test_what_began_before_the_newest_decision_or_elsewhere_is_not(
    kafka: type[Kafka], batch: int
) -> None:
    kafka.begun = begun(batch, at(57))

    assert stream().latestOffset(at(50), ReadMaxRows(4)) == at(54)


def test_a_source_that_had_nothing_new_in_it_stays_once(kafka: type[Kafka]) -> None:
    kafka.recorded = {2: [json.dumps({"u": {"0": 1}}), json.dumps(at(7))]}
    kafka.begun = begun(3, {"u": {"0": 5}}, at(7))
    reader = stream()

    assert reader.latestOffset(at(7), ReadMaxRows(4)) == at(7)
    assert reader.latestOffset(at(7), ReadMaxRows(4)) == at(11)


def test_what_is_not_there_any_more_is_planned_anew(kafka: type[Kafka]) -> None:
    """Nothing of it may have been visible; if something was, the sink compares the rows."""
    kafka.begun = begun(6, at(57))
    kafka.end = 56
    reader = stream()

    assert reader.latestOffset(at(40), ALL) == at(50)
    assert reader.latestOffset(at(50), ALL) == at(56)


def test_partitions_that_came_in_it_come_again(kafka: type[Kafka]) -> None:
    kafka.topic_partitions = 2
    kafka.begun = begun(6, {"t": {"0": 57, "1": 3}})

    assert stream().latestOffset(at(50), ReadMaxRows(4)) == {"t": {"0": 57, "1": 3}}


def test_one_that_cannot_be_told_apart_leaves_those_before_it_followed(
    kafka: type[Kafka], caplog: pytest.LogCaptureFixture
) -> None:
    kafka.begun = begun(6, at(57), at(57))
    reader = stream()

    assert reader.latestOffset(at(40), ReadMaxRows(4)) == at(50)
    assert reader.latestOffset(at(50), ReadMaxRows(4)) == at(54)
    assert "Batch 6 was interrupted, and cannot be followed: there were 1 sources" in caplog.text


def test_before_a_batch_that_reads_a_topic_anew_nothing_can_be_repeated() -> None:
    """So the sink takes a snapshot there."""
    lines = [
        [json.dumps(at(10))],
        [json.dumps({**at(12), "@anew t new": {}})],
        [json.dumps(at(20))],
    ]
    with pytest.raises(Ambiguous, match="topic 't' was made again"):
        next_ends(lines)
    assert next_ends(lines[1:]) == {'{"t":{"0":12}}': Position({TopicPartition("t", 0): 20})}
    assert next_ends(lines[:2], once=True)['{"t":{"0":10}}'].anew == {"t"}


def begun(batch: int, *ends: dict[str, dict[str, int]]) -> Begun:
    return Begun(batch, "\n".join(["v1", "{}", *map(json.dumps, ends)]))


def test_partitions_that_came_since_wait_until_the_replay_is_done(kafka: type[Kafka]) -> None:
    kafka.topic_partitions = 2
    reader = stream()

    assert reader.latestOffset(at(40), ALL) == at(50)
    assert reader.latestOffset(at(50), ALL) == {"t": {"0": 100, "1": 100}}


def test_a_run_that_reads_what_is_there_now_follows_first(kafka: type[Kafka]) -> None:
    reader = stream()
    reader.prepareForTriggerAvailableNow()

    assert reader.latestOffset(at(30), ReadMaxRows(99)) == at(40)
    kafka.end = 1000
    assert reader.latestOffset(at(40), ReadMaxRows(99)) == at(50)
    assert reader.latestOffset(at(50), ReadMaxRows(99)) == at(100)


def test_an_end_that_is_not_there_any_more_stops_the_query(kafka: type[Kafka]) -> None:
    kafka.end = 35
    reader = stream(failOnDataLoss="false")

    assert reader.latestOffset(at(20), ALL) == at(30)
    sentence = r'ended at \{"t":\{"0":40\}\}, but the topics now end at \{"t":\{"0":35\}\}'
    with pytest.raises(DataLossError, match=sentence):
        reader.latestOffset(at(30), ALL)


def test_a_ledger_without_a_snapshot_says_nothing(kafka: type[Kafka]) -> None:
    kafka.head = None

    assert stream().latestOffset(at(20), ReadMaxRows(4)) == at(24)


def test_no_ledger_means_nothing_is_recorded(kafka: type[Kafka]) -> None:
    kafka.ledger = None

    assert stream().latestOffset(at(20), ReadMaxRows(4)) == at(24)


def test_a_ledger_that_cannot_be_read_is_not_taken_for_an_empty_one(
    kafka: type[Kafka], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(self: Kafka) -> set[TopicPartition]:
        raise ReadTimeout("nobody answers")

    monkeypatch.setattr(kafka, "partitions", unreachable)
    with pytest.raises(ReadTimeout):
        stream().latestOffset(at(20), ALL)


def test_batches_that_cannot_be_told_apart_are_not_followed(
    kafka: type[Kafka], caplog: pytest.LogCaptureFixture
) -> None:
    """No sink of ours leaves them; if one did, it stops the query."""
    kafka.recorded = {2: [json.dumps(at(20))], 3: [json.dumps(at(20))]}

    assert stream().latestOffset(at(20), ReadMaxRows(4)) == at(24)
    assert "cannot be followed" in caplog.text


def test_without_the_option_nobody_looks(kafka: type[Kafka]) -> None:
    given = {name: value for name, value in GIVEN.items() if name != "jobName"}
    reader = KafkaStreamReader(SourceOptions.parse(given, streaming=True))

    assert reader.latestOffset(at(20), ReadMaxRows(4)) == at(24)
    assert kafka.reads == []


def test_the_ledger_may_have_another_name_and_the_records_another_isolation(
    kafka: type[Kafka],
) -> None:
    kafka.ledger = "mine"
    reader = stream(ledgerTopic="mine", **{"kafka.isolation.level": "read_uncommitted"})

    assert reader.latestOffset(at(20), ReadMaxRows(4)) == at(30)
    assert kafka.reads == [("mine", 0, 100)]


def test_a_name_that_no_job_has_is_refused() -> None:
    with pytest.raises(OptionsError, match="'jobName' must be usable in a topic name"):
        stream(jobName="a job")


def test_a_reader_that_follows_travels_to_the_tasks(kafka: type[Kafka]) -> None:
    reader = stream()
    reader.latestOffset(at(20), ALL)
    travelled = pickle.loads(pickle.dumps(reader._recorded))

    assert travelled.after({TopicPartition("t", 0): 30}) == Position({TopicPartition("t", 0): 40})


def test_the_ids_of_topics_are_those_of_the_newest_decision_that_counts() -> None:
    def decision(state: DecisionState, *ids: tuple[str, str]) -> Decision:
        return Decision("main", 1, 0, state, 1, 5, 1, 0, (), source_ids=ids)

    ledger = Ledger()
    assert _topic_ids(ledger) == {}
    ledger.decisions = {
        ("main", 1): decision(DecisionState.DONE, ("t", "a")),
        ("main", 2): decision(DecisionState.DECIDED, ("t", "b"), ("u", "x")),
        ("main", 3): decision(DecisionState.VOID, ("t", "c")),
        ("other", 9): decision(DecisionState.DONE, ("t", "d")),
    }
    assert _topic_ids(ledger) == {"t": "b", "u": "x"}
    ledger.decisions = {("main", 4): decision(DecisionState.DONE)}
    assert _topic_ids(ledger) == {}, "written before decisions had any"
