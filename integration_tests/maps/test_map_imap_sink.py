"""Writing into an IMap: who may write over whom, keys that change, members that die."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from hazelcast.core import HazelcastJsonValue

from eo_kafka.clients.hazelcast.client import connect
from eo_kafka.core import librdkafka
from eo_kafka.errors import Fenced, SinkError, WriteFailed
from eo_kafka.sinks.maps.marker import MAP as MARKERS
from eo_kafka.sinks.maps.options import MapSinkOptions
from eo_kafka.sinks.maps.puts import commit, write
from eo_kafka.testing.processes import killed_at_last, wait_until
from grid_fixtures import new_map, settings
from test_map_stream import options_of

COLUMNS = [("key", "string"), ("value", "string")]
NEWEST = {"value.format": "json", "onConflict": "newest", "versionField": "n"}
# A task of a batch, in a process of its own
TASK = """
import json, sys
import pyarrow as pa
from eo_kafka.sinks.maps.options import MapSinkOptions
from eo_kafka.sinks.maps.puts import write
given, rows, query, batch = json.loads(sys.argv[1])
options, _ = MapSinkOptions.parse(given, [("key", "string"), ("value", "string")])
keys, values = (pa.array(column, pa.string()) for column in zip(*rows))
write(options, iter([pa.record_batch([keys, values], names=["key", "value"])]), query, batch)
"""


def parsed(grid, stored, **more: str) -> MapSinkOptions:
    return MapSinkOptions.parse(options_of(grid, stored, **more), COLUMNS)[0]


def rows_of(entries: dict) -> Iterator[pa.RecordBatch]:
    keys, values = pa.array(list(entries), pa.string()), pa.array(entries.values(), pa.string())
    yield pa.record_batch([keys, values], names=["key", "value"])


def write_batch(options: MapSinkOptions, entries: dict, query: str, batch: int) -> None:
    commit(options, [write(options, rows_of(entries), query, batch)], batch)


def plain(stored) -> dict:
    return {
        key: value.to_string() if isinstance(value, HazelcastJsonValue) else value
        for key, value in stored.entry_set()
    }


def versions(first: int) -> dict[str, str]:
    return {f"k{number}": json.dumps({"n": first + number}) for number in range(20)}


@pytest.fixture
def zombie(grid, hazelcast_client, crash_points):
    """A task of batch 1 that stopped itself at a point, while a newer driver wrote batches 1 and 2;
    `wake` lets it go on to its end and gives its exit code."""
    stored = new_map(hazelcast_client, "plain")

    def make(point: str, **more: str):
        given = options_of(grid, stored, putSize="10", **more)
        query = f"q-{stored.name}"
        crash_points.arm(point, "stop")
        task = subprocess.Popen(
            [sys.executable, "-c", TASK, json.dumps([given, list(versions(0).items()), query, 1])],
            stderr=subprocess.PIPE,
            text=True,
        )
        with killed_at_last(task.pid):
            assert crash_points.wait_reached(point) == task.pid
            options = parsed(grid, stored, **more)
            write_batch(options, versions(0), query, 1)
            write_batch(options, versions(100), query, 2)
            assert plain(stored) == versions(100)
            os.kill(task.pid, signal.SIGCONT)
            _, said = task.communicate(timeout=60)
        return plain(stored), said, task.returncode

    return make


def test_a_task_that_was_given_up_finds_out_before_its_next_put(zombie) -> None:
    found, said, code = zombie("map.after_put")
    assert code != 0
    assert "Fenced" in said
    assert "the query is at batch 2" in said
    assert found == versions(100)


def test_one_put_that_was_under_way_can_still_bring_back_old_entries(zombie) -> None:
    """The limit of `replace`: nothing on the members compares."""
    found, said, _ = zombie("map.before_put")
    assert "Fenced" in said, "its second put was not refused"
    assert found == {**versions(100), **dict(list(versions(0).items())[:10])}


def test_no_put_brings_back_an_entry_that_is_older_by_its_version(zombie) -> None:
    found, _, _ = zombie("map.before_put", **NEWEST)
    assert found == versions(100)


def test_of_many_writers_at_once_the_newest_version_of_each_key_stays(
    grid, hazelcast_client
) -> None:
    stored = new_map(hazelcast_client, "plain")
    options = parsed(grid, stored, **NEWEST)
    numbers = list(range(400))
    random.Random(7).shuffle(numbers)

    def write_some(mine: list[int]) -> None:
        for number in mine:
            write(options, rows_of({f"k{number % 5}": json.dumps({"n": number})}))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write_some, (numbers[first::4] for first in range(4))))
    assert plain(stored) == {f"k{key}": json.dumps({"n": 395 + key}) for key in range(5)}
    stored.put("k0", "no JSON")
    with pytest.raises(SinkError, match=r"no number in field 'n'.*key k0"):
        write(options, rows_of({"k0": '{"n": 1}'}))


def test_keep_leaves_what_is_there(grid, hazelcast_client) -> None:
    stored = new_map(hazelcast_client, "plain")
    stored.put("a", "there")
    write(parsed(grid, stored, onConflict="keep"), rows_of({"a": "new", "b": "new"}))
    assert plain(stored) == {"a": "there", "b": "new"}


@pytest.mark.parametrize("size", ["1", "5000"])
def test_of_rows_with_one_key_the_first_is_kept_and_the_newest_stays(
    grid, hazelcast_client, size
) -> None:
    """Also if one put holds them."""

    def rows(*pairs: tuple[str, str | None]) -> Iterator[pa.RecordBatch]:
        columns = [pa.array(column, pa.string()) for column in zip(*pairs, strict=True)]
        yield pa.record_batch(columns, names=["key", "value"])

    stored = new_map(hazelcast_client, "plain")
    stored.put("c", "old")
    keep = parsed(grid, stored, onConflict="keep", putSize=size)
    pairs = [("a", "1"), ("a", "2"), ("b", "1"), ("b", None), ("c", None), ("c", "1"), ("c", "2")]
    write(keep, rows(*pairs))
    assert plain(stored) == {"a": "1", "c": "1"}
    stored = new_map(hazelcast_client, "plain")
    newest = parsed(grid, stored, putSize=size, **NEWEST)
    write(newest, rows(("a", '{"n": 5}'), ("a", '{"n": 3}'), ("a", '{"n": 4}')))
    assert plain(stored) == {"a": '{"n": 5}'}
    with pytest.raises(SinkError, match="no value, key a.*an older row would bring it back"):
        write(newest, rows(("a", None)))


def test_the_newest_entry_of_a_key_that_is_bytes_stays(grid, hazelcast_client) -> None:
    stored = new_map(hazelcast_client, "plain")
    columns = [("key", "binary"), ("value", "string")]
    options, _ = MapSinkOptions.parse(options_of(grid, stored, **NEWEST), columns)
    for number in (2, 3, 1):
        keys = pa.array([b"\xff\x00", b"another"], pa.binary())
        values = pa.array([f'{{"n": {number}}}'] * 2)
        write(options, iter([pa.record_batch([keys, values], names=["key", "value"])]))
    for key in (b"\xff\x00", b"another"):
        assert stored.get(bytearray(key)).to_string() == '{"n": 3}'
    assert stored.size() == 2


def test_a_batch_that_is_written_again_with_other_keys_is_found(grid, hazelcast_client) -> None:
    stored = new_map(hazelcast_client, "plain")
    options, query = parsed(grid, stored), f"q-{stored.name}"
    write_batch(options, {"a": "1", "b": "2", "c": "3"}, query, 5)
    # shared out among other tasks, with other values: the same keys
    again = [
        write(options, rows_of(part), query, 5) for part in ({"c": "3"}, {"b": "2 too", "a": "1"})
    ]
    commit(options, again, 5)
    with pytest.raises(SinkError, match=r"twice, with other keys \(3 rows, then 3\)"):
        write_batch(options, {"a": "1", "b": "2", "random": "3"}, query, 5)
    with pytest.raises(Fenced, match="the query is at batch 5"):
        write_batch(options, {"a": "1"}, query, 4)
    # another query is none of its business, and the way out works
    write_batch(options, {"a": "1"}, "another", 0)
    hazelcast_client.get_map(MARKERS).blocking().remove(f"{stored.name}/{query}")
    write_batch(options, {"a": "old"}, query, 4)
    assert plain(stored)["a"] == "old"


def test_a_member_that_is_killed_while_it_is_written_to_loses_nothing(mortal_grid) -> None:
    grid = mortal_grid
    client = connect(settings(grid))
    stored = new_map(client, "plain")
    entries = {f"k{number}": f"v{number}" for number in range(20_000)}

    def rows() -> Iterator[pa.RecordBatch]:
        (whole,) = rows_of(entries)
        yield whole.slice(0, 10_000)
        os.kill(grid.members[0].pid, signal.SIGKILL)
        wait_until(lambda: not grid.members[0].running, "the member is gone")
        yield whole.slice(10_000)

    options = parsed(grid, stored)
    commit(options, [write(options, rows(), "query", 0)], 0)
    assert plain(stored) == entries
    client.shutdown()


def test_split_brain_protection_refuses_writes_and_the_task_may_try_again(mortal_grid) -> None:
    grid = mortal_grid
    client = connect(settings(grid))
    stored = new_map(client, "guarded")
    options = parsed(grid, stored)
    write(options, rows_of({"a": "0"}))
    grid.members[0].kill()
    wait_until(lambda: len(client.cluster_service.get_members()) == 1, "one member is left")
    with pytest.raises(WriteFailed, match="split-brain protection finds fewer members"):
        write(options, rows_of({"a": "1"}))
    grid.start()
    wait_until(lambda: len(client.cluster_service.get_members()) == 2, "both are there")
    write(options, rows_of({"a": "1"}))
    assert plain(stored) == {"a": "1"}
    client.shutdown()


@pytest.mark.parametrize("json_values", [True, False])
def test_compiled_loops_and_the_client_make_the_same_map(
    grid, hazelcast_client, monkeypatch, json_values
) -> None:
    kinds = (pa.string(), pa.string()) if json_values else (pa.binary(), pa.binary())
    more = {"value.format": "json" if json_values else "text", "putSize": "70"}
    rows = [(f"k{number % 150}é", f'{{"n": {number}}}') for number in range(200)]
    rows += [("k7é", None), ("k8é", None), ("k8é", '"again"'), ("new", None)]

    def written_by(without: str | None):
        monkeypatch.setattr(librdkafka, "available", lambda: without)
        stored = new_map(hazelcast_client, "plain")
        stored.put(*(("k7é", "x") if json_values else (bytearray(b"k7\xc3\xa9"), "x")))
        columns = [
            pa.array(
                [one if kind == pa.string() or one is None else one.encode() for one in column],
                kind,
            )
            for kind, column in zip(kinds, zip(*rows, strict=True), strict=True)
        ]
        options = parsed(grid, stored, **more)
        write(options, iter([pa.record_batch(columns, names=["key", "value"])]))
        return {
            bytes(key) if isinstance(key, bytearray) else key: stored.get(key)
            for key in stored.key_set()
        }

    slow, fast = written_by("no loops"), written_by(None)
    assert slow == fast
    assert len(fast) == 149
