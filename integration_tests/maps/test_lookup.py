"""Entries of a map beside the records of the direct lane."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from confluent_kafka import Producer

import eo_kafka
from eo_kafka.connectors.direct import lookup
from eo_kafka.errors import OptionsError, SourceError
from harness import committed, produce
from map_backends import HAZELCAST_IN_FULL

VALUES = [b"%d" % number for number in range(100)]
KEYS = [str(number) for number in range(50, 150)]  # so that half of the records have no entry
NOWHERE = {"backend": "kafka", "map": "m", "kafka.bootstrap.servers": "127.0.0.1:1"}


@HAZELCAST_IN_FULL
@pytest.mark.parametrize("how", ["left", "inner"])
def test_records_get_the_entries_of_their_keys(spark, broker, make_topic, a_map, tmp_path, how):
    a_map.put_all({key: f"old {key}" for key in KEYS})
    source, output = make_topic("in", partitions=3), make_topic("out", partitions=2)
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    names = eo_kafka.Lookup(a_map.options())

    def enrich(batches):
        for batch in batches:
            found = names.add(batch, on="value", how=how)
            word = pc.coalesce(found["entry"], "none")
            value = pc.binary_join_element_wise(found["value"].cast(pa.string()), word, " ")
            yield pa.record_batch({"value": value})

    def run(expected: Counter) -> None:
        produce(broker.bootstrap_servers, source, VALUES)
        reader = {**kafka, "subscribe": source, "startingOffsets": "earliest"}
        sink = {**kafka, "topic": output, "jobName": f"enrich-{output}"}
        writer = eo_kafka.direct(spark, reader, sink, enrich, "value STRING")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        assert committed(broker.bootstrap_servers, output) == expected

    def enriched(word: str) -> Counter:
        entries = {key.encode(): f"{word} {key}".encode() for key in KEYS}
        kept = VALUES if how == "left" else [value for value in VALUES if value in entries]
        return Counter(value + b" " + entries.get(value, b"none") for value in kept)

    run(enriched("old"))
    a_map.put_all({key: f"new {key}" for key in KEYS})
    run(enriched("old") + enriched("new"))  # each task takes new entries


def test_entries_are_taken_again_when_they_are_old_enough(spark, monkeypatch):
    reads = []

    def read(self) -> pa.Table:
        reads.append(self)
        return pa.table({"key": ["a"], "value": [f"{len(reads)}"]})

    now = [1.0]
    monkeypatch.setattr(lookup.Lookup, "_read", read)
    monkeypatch.setattr(lookup.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(lookup, "_LOADED", {})
    names = eo_kafka.Lookup(NOWHERE, refresh="1 minute")
    record = pa.record_batch({"key": pa.array([b"a", None, b"b"])})
    for now[0], entry in [(1.0, "1"), (60.9, "1"), (61.1, "2")]:
        assert names.add(record)["entry"].to_pylist() == [entry, None, None]


@pytest.mark.parametrize(
    ("keys", "wanted", "found"),
    [
        (pa.array([*range(-2, 5), 2**40]), [3, None, 9, -2, 2**40, 3], [5, None, None, 0, 7, 5]),
        (pa.array([b"a", b"", None]), [b"", None, b"a"], [1, None, 0]),
        (pa.array([1.5, math.nan, -0.0]), [math.nan, 0.0, -0.0, None], [1, None, 2, None]),
        (pa.array([Decimal("1.20"), None]), [None, Decimal("1.20")], [None, 0]),
        (pa.array([0, 2**62], pa.timestamp("us", "UTC")), [2**62, None], [1, None]),
        (pa.array([0, -800_000], pa.date32()), [-800_000, 1], [1, None]),  # before year 1
        (pa.array([None, True]), [True, False, None], [1, None, None]),
    ],
    ids=["long", "bytes", "double", "decimal", "timestamp", "date", "boolean"],
)
def test_a_large_map_is_looked_up_as_a_small_one(spark, monkeypatch, keys, wanted, found):
    made = pa.table({"key": keys, "value": [f"v{row}" for row in range(len(keys))]})
    monkeypatch.setattr(lookup.Lookup, "_read", lambda self: made)
    record = pa.record_batch({"key": pa.array(wanted, keys.type)})
    entries = [None if row is None else f"v{row}" for row in found]
    for many in (0, 1000):
        monkeypatch.setattr(lookup, "_MANY", many)
        monkeypatch.setattr(lookup, "_LOADED", {})
        names = eo_kafka.Lookup(NOWHERE)
        assert names.add(record)["entry"].to_pylist() == entries
        inner = names.add(record, how="inner")
        assert inner["entry"].to_pylist() == [one for one in entries if one]
        assert len(inner["key"]) == len([one for one in entries if one])


def test_a_key_that_a_topic_has_twice_is_told(spark, broker, make_topic, tmp_path):
    """Partitions were added to it, say: the old entry would stay for good."""
    topic = make_topic("map", 2, {"cleanup.policy": "compact"})
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value, partition in ((b"old", 0), (b"new", 1)):
        producer.produce(topic, value, b"a", partition)
    assert producer.flush(30) == 0
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    options = {"backend": "kafka", "map": topic, **servers}
    record = pa.record_batch({"key": pa.array([b"a"])})
    with pytest.raises(SourceError, match="more than one entry with the key 'a'"):
        eo_kafka.Lookup(options).add(record)
    side = eo_kafka.SideInput(options, str(tmp_path / "side"))
    with pytest.raises(SourceError, match="more than one entry with the key 'a'"):
        side.at(spark, 0)
    producer.produce(topic, None, b"a", 0)
    assert producer.flush(30) == 0
    assert eo_kafka.Lookup(options).add(record)["entry"].to_pylist() == ["new"]
    assert side.at(spark, 0).collect() == [("a", "new")]


def test_a_map_without_entries_has_none(spark, broker, make_topic):
    topic = make_topic("map", 2, {"cleanup.policy": "compact"})
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    names = eo_kafka.Lookup({"backend": "kafka", "map": topic, **servers})
    record = pa.record_batch({"key": pa.array([b"a", None])})
    assert names.add(record)["entry"].to_pylist() == [None, None]
    assert names.add(record, how="inner").num_rows == 0


def test_what_is_wrong_is_told(spark, monkeypatch):
    with pytest.raises(OptionsError) as stop:
        eo_kafka.Lookup({**NOWHERE, "mapp": "x"}, refresh="soon")
    assert "mapp" in str(stop.value)
    assert "refresh" in str(stop.value)
    with pytest.raises(OptionsError, match="struct<id:int>"):
        eo_kafka.Lookup({**NOWHERE, "key.format": "json", "key.schema": "id INT"})
    names = eo_kafka.Lookup({**NOWHERE, "kafka.sasl.password": "secret"})
    assert "secret" not in repr(names)
    monkeypatch.setattr(lookup.Lookup, "_read", lambda self: self._shape.empty_table())
    with pytest.raises(OptionsError, match="int64"):
        names.add(pa.record_batch({"key": [1]}))
    with pytest.raises(OptionsError, match="'other'"):
        names.add(pa.record_batch({"key": [b"a"]}), on="other")
