"""`format("eo-map")` as a batch: all entries, in parallel by partition."""

from __future__ import annotations

import datetime
import os
import signal
import threading
import uuid
from collections import Counter
from decimal import Decimal

import pytest
from hazelcast.core import HazelcastJsonValue
from hazelcast.serialization.api import Portable

from eo_kafka.clients.hazelcast import internals
from eo_kafka.clients.hazelcast.client import connect
from eo_kafka.errors import ReadTimeout, SourceError
from eo_kafka.sources.maps.entries import plan, read_entries
from eo_kafka.sources.maps.options import MapOptions
from eo_kafka.sources.maps.planner import MapPlanner
from eo_kafka.testing.processes import wait_until
from grid_fixtures import new_map, settings
from test_map_stream import options_of


def read(spark, grid, stored, **more: str):
    return spark.read.format("eo-map").options(**options_of(grid, stored, **more)).load()


def without_spark(grid, stored, **more: str) -> list[dict]:
    options = MapOptions.parse(options_of(grid, stored, **more), streaming=False)
    return [
        row
        for task in plan(options)
        for batch in read_entries(options, task)
        for row in batch.to_pylist()
    ]


def test_all_entries_once_in_as_many_tasks_as_asked_for(spark, grid, hazelcast_client) -> None:
    stored = new_map(hazelcast_client, "plain")
    entries = {f"k{number}": f'{{"n": {number}}}' for number in range(5000)}
    stored.put_all({key: HazelcastJsonValue(value) for key, value in entries.items()})
    rows = read(spark, grid, stored, tasks="3", fetchSize="7")
    assert rows.rdd.getNumPartitions() == 3
    found = rows.collect()
    assert Counter((row.key, row.value) for row in found) == Counter(entries.items())
    service = hazelcast_client.partition_service
    assert all(row.partition == service.get_partition_id(row.key) for row in found)
    assert {(row.event, row.old_value, row.sequence) for row in found} == {(None, None, None)}


def test_members_evaluate_the_predicate(spark, grid, hazelcast_client) -> None:
    stored = new_map(hazelcast_client, "plain")
    stored.put_all(
        {n: HazelcastJsonValue(f'{{"n": {n}, "name": "{"ab"[n % 2]}{n}"}}') for n in range(400)}
    )
    rows = read(spark, grid, stored, predicate="n >= 390 AND name LIKE 'a%'")
    assert sorted(row.key for row in rows.collect()) == ["390", "392", "394", "396", "398"]
    by_key = read(spark, grid, stored, predicate="__key = 7").collect()
    assert [row.value for row in by_key] == ['{"n": 7, "name": "b7"}']


def test_an_empty_map_has_no_rows(spark, grid, hazelcast_client) -> None:
    assert read(spark, grid, new_map(hazelcast_client)).count() == 0


VALUES = [
    ("text, also such: äöü \U0001f600", "text, also such: äöü \U0001f600"),
    (2**40, str(2**40)),
    (1.5, "1.5"),
    (True, "true"),
    (Decimal("12.50"), "12.50"),
    (uuid.UUID(int=7), str(uuid.UUID(int=7))),
    (datetime.date(2024, 2, 29), "2024-02-29"),
    (datetime.time(1, 2, 3), "01:02:03"),
    (["a", 1, None], '["a", 1, null]'),
    ("", ""),
]


def test_values_of_any_plain_type_as_text(grid, hazelcast_client) -> None:
    stored = new_map(hazelcast_client, "plain")
    for number, (value, _) in enumerate(VALUES):
        stored.put(f"{number:02}", value)
    found = sorted(without_spark(grid, stored), key=lambda row: row["key"])
    assert [row["value"] for row in found] == [text for _, text in VALUES]


def test_bytes_and_serialized_data(grid, hazelcast_client) -> None:
    stored = new_map(hazelcast_client, "plain")
    stored.put("a", bytearray(b"\x00\xff"))
    stored.put("b", "text")
    found = without_spark(grid, stored, **{"value.format": "bytes", "key.format": "bytes"})
    assert {row["key"]: row["value"] for row in found} == {b"a": b"\x00\xff", b"b": b"text"}
    stored.put("c", 5)
    with pytest.raises(SourceError, match="type -8: read it as 'text', or as 'data'"):
        without_spark(grid, stored, **{"value.format": "bytes"})
    found = without_spark(grid, stored, **{"value.format": "data"})
    data = {row["key"]: row["value"] for row in found}
    assert data["c"][4:] == (-8).to_bytes(4, "big", signed=True) + (5).to_bytes(8, "big")
    with pytest.raises(SourceError, match="Read it as 'data'|read it as 'bytes'"):
        without_spark(grid, stored)


class Point(Portable):
    def get_factory_id(self) -> int:
        return 1

    def get_class_id(self) -> int:
        return 1

    def write_portable(self, writer) -> None:
        writer.write_int("x", 1)


def test_a_value_without_a_text_form_is_told_with_the_way_out(grid, hazelcast_client) -> None:
    stored = new_map(hazelcast_client, "plain")
    stored.put("p", Point())
    with pytest.raises(SourceError) as refused:
        without_spark(grid, stored)
    assert f"map '{stored.name}'" in str(refused.value)
    assert "type -1 cannot be read as text" in str(refused.value)
    assert len(without_spark(grid, stored, **{"value.format": "data"})) == 1


@pytest.mark.parametrize("fetch_size", ["3", pytest.param("5000", marks=pytest.mark.full)])
def test_a_member_that_is_killed_while_a_map_is_read_hides_and_repeats_no_entry(
    mortal_grid, fetch_size
) -> None:
    """Many requests a partition, and one: with the first, replicas' orders matter."""
    grid = mortal_grid
    client = connect(settings(grid))
    stored = new_map(client, "plain")
    entries = {f"k{number}": f"v{number}" for number in range(20_000)}
    stored.put_all(entries)
    killed = threading.Event()

    def kill_when_reading() -> None:
        os.kill(grid.members[0].pid, signal.SIGKILL)
        wait_until(lambda: not grid.members[0].running, "the member is gone")
        killed.set()

    given = options_of(grid, stored, fetchSize=fetch_size, tasks="1")
    options = MapOptions.parse(given, streaming=False)
    found: Counter = Counter()
    killer = threading.Thread(target=kill_when_reading)
    for task in plan(options):
        batches = read_entries(options, task)
        first = next(batches)
        killer.start()  # while the next answers are on their way
        for batch in (first, *batches):
            keys, values = (batch.column(name).to_pylist() for name in ("key", "value"))
            found.update(zip(keys, values, strict=True))
    killer.join()
    assert killed.is_set()
    assert found == Counter(entries.items())
    client.shutdown()


def test_a_partition_whose_way_changed_while_it_was_read_is_read_again(
    grid, hazelcast_client, monkeypatch
) -> None:
    stored = new_map(hazelcast_client, "plain")
    entries = {f"k{number}": f"v{number}" for number in range(3000)}
    stored.put_all(entries)
    beginnings: Counter = Counter()
    fetch, route = internals.fetch_entries, internals.route
    calls = iter(range(1_000_000))

    def counting(client, name, partition, pointers, about):
        beginnings[partition] += pointers == internals.FIRST_POINTERS
        return fetch(client, name, partition, pointers, about)

    def changing(client, partition):
        return route(client, partition) if next(calls) > 300 else next(calls)

    monkeypatch.setattr(internals, "fetch_entries", counting)
    monkeypatch.setattr(internals, "route", changing)
    found = without_spark(grid, stored, fetchSize="3")
    assert Counter((row["key"], row["value"]) for row in found) == Counter(entries.items())
    assert len(beginnings) == 271
    assert max(beginnings.values()) > 1, "none was read again"


def test_split_brain_protection_is_told_as_what_it_is(mortal_grid) -> None:
    grid = mortal_grid
    client = connect(settings(grid))
    stored = new_map(client, "guarded")
    stored.put("a", "b")
    assert len(without_spark(grid, stored)) == 1
    grid.members[0].kill()
    wait_until(lambda: len(client.cluster_service.get_members()) == 1, "one member is left")
    with pytest.raises(ReadTimeout, match="split-brain protection finds fewer members"):
        without_spark(grid, stored)
    stream = MapOptions.parse(options_of(grid, stored), streaming=True)
    with pytest.raises(ReadTimeout, match="split-brain protection finds fewer members"):
        MapPlanner(stream).end(None, None, now=False)
    grid.start()
    wait_until(lambda: len(client.cluster_service.get_members()) == 2, "both are there")
    assert len(without_spark(grid, stored)) == 1
    client.shutdown()
