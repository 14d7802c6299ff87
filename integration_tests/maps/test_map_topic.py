"""A compacted topic as a map: what compaction takes away, and what no other backend has."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from eo_kafka.connectors.maps.topic_readers import TopicMapStreamReader
from eo_kafka.errors import DataLossError, EnvironmentRefused, SourceError
from eo_kafka.sources.maps.topic_options import TopicMapOptions
from eo_kafka.sources.maps.topic_reader import plan_entries, read_entries
from eo_kafka.testing.processes import wait_until
from harness import committed_messages
from map_backends import TopicMap

CLEANED_AT_ONCE = {
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
    "file.delete.delay.ms": "1",
}


class Stream:
    """What Spark's source process and tasks do, without Spark; offsets go through JSON as there."""

    def __init__(self, a_map: TopicMap, **more: str) -> None:
        self.options = TopicMapOptions.parse(a_map.options(**more), streaming=True)
        self.reader = TopicMapStreamReader(self.options, {})
        self.until_now()

    def until_now(self) -> None:
        self.reader.prepareForTriggerAvailableNow()

    def start(self) -> dict:
        return json.loads(json.dumps(self.reader.initialOffset()))

    def end(self, start: dict) -> dict:
        return json.loads(json.dumps(self.reader.latestOffset(start, None)))

    def read(self, start: dict, end: dict) -> list[tuple]:
        """(event, key, value) of a batch."""
        return [
            (row["event"], row["key"], row["value"])
            for partition in self.reader.partitions(start, end)
            for batch in self.reader.read(partition)
            for row in batch.to_pylist()
        ]


def entries(a_map: TopicMap, **more: str) -> list[dict]:
    options = TopicMapOptions.parse(a_map.options(**more), streaming=False)
    return [
        row
        for task in plan_entries(options)
        for batch in read_entries(options, task)
        for row in batch.to_pylist()
    ]


def as_dict(rows: list[dict]) -> dict:
    found = {row["key"]: row["value"] for row in rows}
    assert len(found) == len(rows), "a key came twice"
    return found


@pytest.fixture
def cleaned_at_once(own, own_topic) -> Callable[..., TopicMap]:
    """Makes maps on a Kafka whose cleaner looks for work all the time, not every 15 seconds."""
    admin = AdminClient({"bootstrap.servers": own.bootstrap_servers})
    often = ConfigEntry(
        "log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET
    )
    for number in admin.list_topics(timeout=30).brokers:
        of = ConfigResource(ResourceType.BROKER, str(number), incremental_configs=[often])
        admin.incremental_alter_configs([of])[of].result(30)

    def make(**more: str) -> TopicMap:
        return TopicMap(own.bootstrap_servers, own_topic, 1, **{**CLEANED_AT_ONCE, **more})

    return make


def change_setting(a_map: TopicMap, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    of = ConfigResource(ResourceType.TOPIC, a_map.name, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": a_map.servers})
    admin.incremental_alter_configs([of])[of].result(30)


def keys_in_log(a_map: TopicMap) -> Counter:
    """What the log holds, after something was written that makes it roll, and be cleaned."""
    a_map.put_all({"roll": "again"})
    found = committed_messages(a_map.servers, a_map.name)
    return Counter(message.key().decode() for message in found)


def test_a_removal_that_was_cleaned_away_before_it_was_read_stops_the_stream(
    cleaned_at_once,
) -> None:
    cleaned = cleaned_at_once(**{"delete.retention.ms": "1"})
    first = Stream(cleaned)
    start = first.start()
    cleaned.put_all({"a": "1", "b": "2"})
    end = first.end(start)
    assert sorted(first.read(start, end)) == [("UPDATED", "a", "1"), ("UPDATED", "b", "2")]
    cleaned.remove("a")
    wait_until(lambda: "a" not in keys_in_log(cleaned), "the removal is gone", 60)
    later = Stream(cleaned)
    until = later.end(end)
    with pytest.raises(DataLossError, match=rf"Removals of map '{cleaned.name}' may be missing"):
        later.read(end, until)
    change_setting(cleaned, "delete.retention.ms", "86400000")  # that brings nothing back
    with pytest.raises(DataLossError, match=rf"Removals of map '{cleaned.name}' may be missing"):
        Stream(cleaned).read(end, until)
    change_setting(cleaned, "delete.retention.ms", "1")
    lenient = Stream(cleaned, failOnDataLoss="false")
    assert {key for _, key, _ in lenient.read(end, until)} == {"roll"}
    with pytest.raises(DataLossError, match="may be missing"):  # no read is within a millisecond
        entries(cleaned)


def test_a_stream_that_was_away_for_long_goes_on_where_nothing_is_missing(
    broker, make_topic
) -> None:
    a_map = TopicMap(broker.bootstrap_servers, make_topic, 1, **{"delete.retention.ms": "1"})
    first = Stream(a_map)
    start = first.start()
    a_map.put_all({"a": "1"})
    end = first.end(start)
    a_map.remove("a")
    a_map.put_all({"b": "2"})
    time.sleep(0.1)
    later = Stream(a_map)
    assert later.read(end, later.end(end)) == [("REMOVED", "a", None), ("UPDATED", "b", "2")]


def test_an_idle_stream_is_not_taken_for_one_that_was_away(broker, make_topic) -> None:
    a_map = TopicMap(broker.bootstrap_servers, make_topic, 1, **{"delete.retention.ms": "2000"})
    a_map.put_all({"a": "1"})
    first = Stream(a_map)
    end = first.end(first.start())
    time.sleep(1)
    idle = Stream(a_map)
    renewed = idle.end(end)
    assert renewed["offsets"] == end["offsets"]
    assert renewed["caughtUp"] >= end["caughtUp"] + 1000
    assert idle.reader.partitions(end, renewed) == []
    assert idle.end(renewed) == renewed, "a run by itself would never end"


def test_what_compaction_leaves_of_the_changes_makes_the_same_map(
    cleaned_at_once,
) -> None:
    cleaned = cleaned_at_once()
    for number in range(30):
        cleaned.put_all({f"{number % 3}": f"{number}"})
    cleaned.remove("2")
    cleaned.put_all({"3": "new"})
    wait_until(lambda: keys_in_log(cleaned)["0"] == 1, "older values are gone", 60)
    expected = {"0": "27", "1": "28", "3": "new", "roll": "again"}
    assert as_dict(entries(cleaned)) == expected
    stream = Stream(cleaned)
    start = stream.start()
    built: dict = {}
    for event, key, value in stream.read(start, stream.end(start)):
        built[key] = value
        assert (event == "REMOVED") == (value is None)
    assert {key: value for key, value in built.items() if value is not None} == expected


def test_what_was_never_committed_never_was_in_the_map(broker, make_topic) -> None:
    a_map = TopicMap(broker.bootstrap_servers, make_topic)
    a_map.put_all({"a": "1", "b": "2"})
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": a_map.name}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(a_map.name, b"never", b"a")
    producer.produce(a_map.name, None, b"b")
    producer.flush()
    assert as_dict(entries(a_map)) == {"a": "1", "b": "2"}, "while it is open"
    producer.abort_transaction()
    a_map.put_all({"c": "3"})
    assert as_dict(entries(a_map)) == {"a": "1", "b": "2", "c": "3"}
    stream = Stream(a_map)
    start = stream.start()
    assert {value for _, _, value in stream.read(start, stream.end(start))} == {"1", "2", "3"}


def test_a_dataframe_shows_the_map_as_it_is_at_each_action(spark, broker, make_topic) -> None:
    a_map = TopicMap(broker.bootstrap_servers, make_topic)
    rows = spark.read.format("eo-map").options(**a_map.options()).load()
    assert rows.count() == 0
    a_map.put_all({"a": "1", "b": "1"})
    assert {(row.key, row.value) for row in rows.collect()} == {("a", "1"), ("b", "1")}
    a_map.put_all({"a": "2"})
    assert {(row.key, row.value) for row in rows.collect()} == {("a", "2"), ("b", "1")}


def test_a_topic_that_is_no_map_is_refused(broker, make_topic) -> None:
    a_map = TopicMap(broker.bootstrap_servers, make_topic, **{"cleanup.policy": "delete"})
    stream = Stream(a_map)
    with pytest.raises(
        EnvironmentRefused, match=r"cleanup\.policy=delete.*cannot be read as a map"
    ):
        stream.end(stream.start())
    with pytest.raises(EnvironmentRefused, match="Set the policy to 'compact'"):
        entries(a_map)
    a_map.put_all({"a": "1"})
    assert as_dict(entries(a_map, failOnDataLoss="false")) == {"a": "1"}


def test_nothing_is_written_into_a_topic_that_is_no_map(spark, broker, make_topic) -> None:
    a_map = TopicMap(broker.bootstrap_servers, make_topic, **{"cleanup.policy": "delete"})
    rows = spark.sql("select 'k' as key, 'v' as value")
    with pytest.raises(Exception, match=r"cleanup\.policy=delete.*Nothing was written"):
        rows.write.format("eo-map").options(**a_map.options()).mode("append").save()
    assert committed_messages(a_map.servers, a_map.name, "read_uncommitted") == []


def test_a_record_that_cannot_be_read_as_asked_for_is_named(broker, make_topic) -> None:
    a_map = TopicMap(broker.bootstrap_servers, make_topic, 1)
    a_map.put_all({"a": "1"})
    a_map.producer.produce(a_map.name, b"\xff", b"b")
    assert a_map.producer.flush(30) == 0
    stream = Stream(a_map)
    start = stream.start()
    with pytest.raises(SourceError) as refused:
        stream.read(start, stream.end(start))
    assert f"offset 1 of partition 0 of map '{a_map.name}'" in str(refused.value)
    assert "Its value: It is not UTF-8; read it as 'bytes'" in str(refused.value)
    found = as_dict(entries(a_map, **{"value.format": "bytes", "key.format": "bytes"}))
    assert found == {b"a": b"1", b"b": b"\xff"}
