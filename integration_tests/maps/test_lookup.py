"""Entries of a map beside the records of the direct lane."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import eo_kafka
from eo_kafka.connectors.direct import lookup
from eo_kafka.errors import OptionsError
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


def test_a_large_map_is_looked_up_as_a_small_one(spark, monkeypatch):
    keys = [*range(-2, 5), 2**40]
    made = pa.table({"key": pa.array(keys, pa.int64()), "value": [f"v{key}" for key in keys]})
    monkeypatch.setattr(lookup.Lookup, "_read", lambda self: made)
    record = pa.record_batch({"key": pa.array([3, None, 9, -2, 2**40, 3], pa.int64())})
    found = []
    for many in (0, 1000):
        monkeypatch.setattr(lookup, "_MANY", many)
        monkeypatch.setattr(lookup, "_LOADED", {})
        names = eo_kafka.Lookup(NOWHERE)
        found.append([names.add(record, how=how).to_pydict() for how in ("left", "inner")])
    assert found[0] == found[1]
    assert found[0][0]["entry"] == ["v3", None, None, "v-2", f"v{2**40}", "v3"]
    assert found[0][1]["key"] == [3, -2, 2**40, 3]


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
    with pytest.raises(OptionsError, match="structs"):
        eo_kafka.Lookup({**NOWHERE, "key.format": "json", "key.schema": "id INT"})
    names = eo_kafka.Lookup({**NOWHERE, "kafka.sasl.password": "secret"})
    assert "secret" not in repr(names)
    monkeypatch.setattr(lookup.Lookup, "_read", lambda self: self._shape.empty_table())
    with pytest.raises(OptionsError, match="int64"):
        names.add(pa.record_batch({"key": [1]}))
    with pytest.raises(OptionsError, match="'other'"):
        names.add(pa.record_batch({"key": [b"a"]}), on="other")
