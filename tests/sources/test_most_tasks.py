"""Many topic partitions share tasks, and a batch that runs again has the same ones; no broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from eo_kafka.connectors import kafka_source
from eo_kafka.connectors.kafka_source import KafkaStreamReader
from eo_kafka.core.offsets import TopicPartition
from eo_kafka.core.process import task_slots
from eo_kafka.sources import recorded_ends
from eo_kafka.sources.lookup import Ends, Topics
from eo_kafka.sources.most_tasks import with_most_tasks
from eo_kafka.sources.settings.options import SourceOptions

GIVEN = {
    "kafka.bootstrap.servers": "localhost:9092",
    "subscribe": "t",
    "startingOffsets": "earliest",
}
PARTITIONS = 32
FROM = "@from t " + ",".join(["0"] * PARTITIONS)
ALL = ReadAllAvailable()


class Log:
    """Stands in for OffsetLookup: many partitions, all of one length."""

    length = 10

    def __init__(self, options: SourceOptions) -> None:
        pass

    def partitions(self) -> set[TopicPartition]:
        return {TopicPartition("t", number) for number in range(PARTITIONS)}

    def look(self) -> Topics:
        return Topics(self.partitions(), {})

    def earliest(self, partitions: Any) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: Any, known: Any = None) -> Ends:
        return Ends(dict.fromkeys(partitions, self.length), {})


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Log]]:
    monkeypatch.setattr(kafka_source, "OffsetLookup", Log)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    yield Log
    Log.length = 10


def stream(**extra: str) -> KafkaStreamReader:
    return KafkaStreamReader(SourceOptions.parse({**GIVEN, **extra}, streaming=True))


def tasks(reader: KafkaStreamReader, start: Any, end: Any) -> list[list[int]]:
    """The topic partitions of each task."""
    found = [part.value[0] for part in reader.partitions(start, end)]
    return [[one.partition.partition for one in held] for held in found]


def test_until_a_batch_has_run_each_partition_has_a_task() -> None:
    reader = stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)

    assert list(end) == ["t", FROM]
    assert tasks(reader, start, end) == [[number] for number in range(PARTITIONS)]


def test_four_tasks_for_each_that_can_run() -> None:
    task_slots.tell(2)
    reader = stream()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)

    assert end["@tasks 8"] == {}
    shared = tasks(reader, start, end)
    assert [len(held) for held in shared] == [4] * 8
    assert sorted(number for held in shared for number in held) == list(range(PARTITIONS))


@pytest.mark.parametrize("told", [None, 1, 2, 8])
def test_a_batch_that_runs_again_has_the_same_tasks(told: int | None, log: type[Log]) -> None:
    task_slots.tell(3)
    before = stream()
    start = before.initialOffset()
    end = before.latestOffset(start, ALL)
    planned = tasks(before, start, end)
    Path(task_slots.driver_directory(), "eo-kafka-task-slots").unlink()
    task_slots.tell(told or 0)
    written = json.dumps(end)

    assert len(planned) == 12
    assert tasks(stream(), json.dumps(start), written) == planned


def test_an_option_is_the_way_out_for_a_batch_of_too_few_tasks() -> None:
    """One that takes longer than a transaction may be open, say."""
    task_slots.tell(1)
    before = stream()
    start = before.initialOffset()
    end = before.latestOffset(start, ALL)

    assert len(tasks(before, start, end)) == 4
    assert len(tasks(stream(maxPartitions="30"), start, end)) == 30
    assert len(tasks(stream(minPartitions="64"), start, end)) == 64
    assert len(tasks(stream(maxRecordsPerPartition="2"), start, end)) == 5 * PARTITIONS


def test_where_the_number_that_can_run_is_known_two_tasks_for_each() -> None:
    task_slots.tell(8)
    reader = KafkaStreamReader(SourceOptions.parse(GIVEN, streaming=True), slots=3)
    end = reader.latestOffset(reader.initialOffset(), ALL)

    assert end["@tasks 6"] == {}
    batch = SourceOptions.parse({**GIVEN, "startingOffsets": "earliest"}, streaming=False)
    assert with_most_tasks(batch, 3).max_partitions == 6
    assert with_most_tasks(batch, None) == batch
    chosen = SourceOptions.parse({**GIVEN, "minPartitions": "7"}, streaming=False)
    assert with_most_tasks(chosen, 3) == chosen


def test_a_position_without_news_is_written_as_it_was(log: type[Log]) -> None:
    """Spark compares the texts, and would run one empty batch after the other."""
    task_slots.tell(2)
    reader = stream()
    end = reader.latestOffset(reader.initialOffset(), ALL)
    task_slots.tell(4)

    assert json.dumps(reader.latestOffset(end, ALL)) == json.dumps(end)
    assert json.dumps(reader.latestOffset()) == json.dumps(end)  # before Spark 4.2
    restarted = stream()
    assert json.dumps(restarted.latestOffset(end, ALL)) == json.dumps(end)
    old = {"t": end["t"]}  # of a batch that had a task for each
    assert json.dumps(restarted.latestOffset(old, ALL)) == json.dumps(old)
    log.length = 20
    later = reader.latestOffset(end, ALL)
    assert list(later) == ["t", "@tasks 16"]
    assert len(tasks(reader, end, later)) == 16


def test_before_spark_4_2_a_restart_begins_with_the_tasks(log: type[Log]) -> None:
    task_slots.tell(2)
    marked = {"t": {str(number): 10 for number in range(PARTITIONS)}, "@tasks 4": {}}
    reader = stream()

    assert len(tasks(reader, {}, marked)) == 4
    assert json.dumps(reader.latestOffset()) == json.dumps(marked)


@pytest.mark.parametrize(
    "given",
    [{"maxPartitions": "32"}, {"minPartitions": "2"}, {"maxRecordsPerPartition": "1000"}],
)
def test_who_sets_a_number_has_it(given: dict[str, str]) -> None:
    task_slots.tell(2)
    reader = stream(**given)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)

    assert list(end) == ["t", FROM]
    assert len(tasks(reader, start, end)) == PARTITIONS


def test_no_more_partitions_than_that_have_a_task_each() -> None:
    task_slots.tell(8)
    reader = stream()

    assert list(reader.latestOffset(reader.initialOffset(), ALL)) == ["t", FROM]


def test_a_batch_that_the_ledger_recorded_has_its_tasks_again(
    monkeypatch: pytest.MonkeyPatch, log: type[Log]
) -> None:
    start = {"t": {str(number): 0 for number in range(PARTITIONS)}}
    end = {"t": {str(number): 7 for number in range(PARTITIONS)}, "@tasks 5": {}}
    known = recorded_ends.next_ends([[json.dumps(start)], [json.dumps(end)]])
    monkeypatch.setattr(recorded_ends.RecordedEnds, "_look", lambda self: known)
    task_slots.tell(2)
    reader = stream(jobName="job")

    assert json.dumps(reader.latestOffset(start, ALL)) == json.dumps(end)
    assert len(tasks(reader, start, end)) == 5
