"""Partitions that a topic gets after a batch read of it was planned, which Spark does only once."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

from eo_kafka.connectors import kafka_source
from eo_kafka.connectors.kafka_source import KafkaBatchReader
from eo_kafka.errors import DataLossError, SourceError
from eo_kafka.sources.lookup import OffsetLookup
from eo_kafka.sources.maps.pushed import NOTHING_PUSHED, Pushed
from eo_kafka.sources.maps.topic_options import TopicMapOptions
from eo_kafka.sources.maps.topic_reader import plan_entries, read_entries
from eo_kafka.sources.settings.options import SourceOptions
from harness import committed, recreate_topic

COMPACTED = {"cleanup.policy": "compact"}


@pytest.fixture
def servers(broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def in_a_stream(monkeypatch) -> None:
    monkeypatch.setattr(kafka_source, "_is_in_a_stream", lambda: True)


@pytest.fixture
def looks(monkeypatch) -> list[str]:
    """How often somebody asked which partitions there are."""
    found, look = [], OffsetLookup.look
    monkeypatch.setattr(OffsetLookup, "look", lambda self: found.append("") or look(self))
    return found


def put(servers: str, topic: str, partition: int, *entries: str) -> None:
    """Each is the key and the value of a record."""
    producer = Producer({"bootstrap.servers": servers})
    for entry in entries:
        producer.produce(topic, entry.encode(), entry.encode(), partition)
    assert producer.flush(30) == 0


def grow(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(30)


@pytest.fixture
def topic(servers, make_topic) -> str:
    name = make_topic("side", 2)
    put(servers, name, 0, "a")
    put(servers, name, 1, "b")
    return name


def planned(servers: str, **options: str) -> tuple[KafkaBatchReader, list]:
    given = {"kafka.bootstrap.servers": servers, **options}
    reader = KafkaBatchReader(SourceOptions.parse(given, streaming=False))
    return reader, list(reader.partitions())


def values(reader: KafkaBatchReader, tasks: list) -> list[list[str]]:
    """Of each task."""
    return [
        [value.decode() for batch in reader.read(task) for value in batch["value"].to_pylist()]
        for task in tasks
    ]


def test_a_stream_reads_them_of_what_it_is_joined_with(
    spark, servers, make_topic, tmp_path
) -> None:
    """As Spark's own connector does."""
    of_map, side = make_topic("map", 1, COMPACTED), make_topic("side", 1)
    topic, out = make_topic("in"), make_topic("out")
    kafka = {"kafka.bootstrap.servers": servers}
    for name in (of_map, side, topic):
        put(servers, name, 0, "old")
    entries = spark.read.format("eo-map").options(**kafka, backend="kafka", map=of_map).load()
    records = spark.read.format("eo-kafka").options(**kafka, subscribe=side).load()
    rows = spark.readStream.format("eo-kafka").options(
        **kafka, subscribe=topic, startingOffsets="earliest"
    )
    joined = (
        rows.load()
        .selectExpr("string(key) AS name")
        .join(entries.selectExpr("key AS name", "value AS entry"), "name", "left")
        .join(records.selectExpr("string(key) AS name", "string(value) AS record"), "name", "left")
        .selectExpr("concat_ws(' ', name, entry, record) AS value")
    )
    sink = {**kafka, "topic": out, "jobName": out, "checkpointLocation": str(tmp_path / "state")}
    query = joined.writeStream.format("eo-kafka").options(**sink).start()
    try:
        query.processAllAvailable()
        for name in (of_map, side):
            grow(servers, name, 2)
            put(servers, name, 1, "new")
        put(servers, topic, 0, "new")
        query.processAllAvailable()
    finally:
        query.stop()
    assert committed(servers, out) == {b"old old old": 1, b"new new new": 1}


def test_one_task_reads_them_and_alone_asks_for_them(servers, topic, in_a_stream, looks) -> None:
    reader, tasks = planned(servers, subscribe=topic)
    grow(servers, topic, 4)
    put(servers, topic, 2, "c")
    put(servers, topic, 3, "d")
    looks.clear()
    assert values(reader, tasks) == [["a", "c", "d"], ["b"]]
    assert len(looks) == 1


def test_a_read_of_one_moment_has_none_of_them(servers, topic, looks) -> None:
    reader, tasks = planned(servers, subscribe=topic)
    grow(servers, topic, 3)
    put(servers, topic, 2, "c")
    looks.clear()
    assert values(reader, tasks) == [["a"], ["b"]] and not looks


def test_a_read_that_says_where_it_ends_has_none_of_them(
    servers, topic, in_a_stream, looks
) -> None:
    ends = f'{{"{topic}":{{"0":1,"1":1}}}}'
    fixed = planned(servers, subscribe=topic, endingOffsets=ends)
    assigned = planned(servers, assign=f'{{"{topic}":[0,1]}}')
    grow(servers, topic, 3)
    put(servers, topic, 2, "c")
    looks.clear()
    assert values(*fixed) == values(*assigned) == [["a"], ["b"]] and not looks


def test_a_read_that_says_where_each_partition_starts_must_say_it_of_them(
    servers, topic, in_a_stream
) -> None:
    reader, tasks = planned(
        servers, subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":0,"1":0}}}}'
    )
    assert values(reader, tasks) == [["a"], ["b"]]
    grow(servers, topic, 3)
    with pytest.raises(SourceError, match=f"must specify all .*{topic}-2. Name those, too"):
        values(reader, tasks)


def test_a_topic_that_a_pattern_finds_later_is_read(servers, make_topic, in_a_stream) -> None:
    stem = make_topic("later")
    reader, tasks = planned(servers, subscribePattern=f"{stem}-then.*")
    assert values(reader, tasks) == [[]]
    put(servers, make_topic(f"{stem}-then"), 0, "a")
    assert values(reader, tasks) == [["a"]]


def test_none_of_a_topic_that_was_made_again_is_read(servers, topic, in_a_stream) -> None:
    strict = planned(servers, subscribe=topic)
    lenient = planned(servers, subscribe=topic, failOnDataLoss="false")
    recreate_topic(servers, topic, [b"other"], 3)
    put(servers, topic, 2, "c")
    with pytest.raises(DataLossError, match="made again"):
        values(*strict)
    assert values(*lenient) == [[], []]


@pytest.mark.parametrize(
    ("pushed", "found"),
    [
        (NOTHING_PUSHED, [["a", "c"], ["b"]]),
        (Pushed(frozenset([1])), [["b"]]),
        (Pushed(frozenset([2])), [["c"]]),
    ],
)
def test_a_map_has_them_at_each_action(servers, make_topic, looks, pushed, found) -> None:
    name = make_topic("map", 2, COMPACTED)
    put(servers, name, 0, "a")
    put(servers, name, 1, "b")
    given = {"backend": "kafka", "map": name, "kafka.bootstrap.servers": servers}
    options = TopicMapOptions.parse(given, streaming=False)
    tasks = plan_entries(options, pushed)
    grow(servers, name, 3)
    put(servers, name, 2, "c")
    looks.clear()
    read = [
        [row["key"] for batch in read_entries(options, task) for row in batch.to_pylist()]
        for task in tasks
    ]
    assert read == found
    assert len(looks) == 1


def test_where_they_begin_does_not_change_between_two_batches(servers, topic, in_a_stream) -> None:
    """A group has not read them, and goes on; of a time, one without a record gives nothing."""
    commit(servers, group := f"g-{topic}", topic, 0, 1)
    reader, tasks = planned(servers, subscribe=topic, startingOffsets=f"group:{group}")
    grow(servers, topic, 3)
    put(servers, topic, 2, "c", "d")
    assert values(reader, tasks) == [["c", "d"], ["b"]]
    commit(servers, group, topic, 2, 1)
    assert values(reader, tasks) == [["c", "d"], ["b"]]


def test_one_without_a_record_of_the_time_gives_nothing(servers, topic, in_a_stream) -> None:
    reader, tasks = planned(servers, subscribe=topic, startingTimestamp="1000")
    grow(servers, topic, 3)
    assert values(reader, tasks) == [["a"], ["b"]]


def commit(servers: str, group: str, topic: str, partition: int, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
    consumer.close()
