"""Keys that a partition strategy has placed: neither a pushed filter nor the sink finds them where
their hash says."""

from __future__ import annotations

import struct

import pytest
from hazelcast.serialization.data import Data

from eo_kafka.clients.hazelcast import internals
from eo_kafka.clients.hazelcast.client import client
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.sinks.maps import placing
from eo_kafka.sources.maps.entries import plan, read_entries
from eo_kafka.sources.maps.options import MapOptions
from eo_kafka.sources.maps.pushed import NOTHING_PUSHED, Pushed
from grid_fixtures import new_map, settings
from map_two_phase_job import job_of
from test_map_imap_sink import parsed, rows_of, write, write_batch
from test_map_stream import options_of

# As Java's client has written it by StringPartitioningStrategy: the hash is that of "customer3"
BY_JAVA = b"R\xe4p'\xff\xff\xff\xf5\x00\x00\x00\x11order94@customer3"
KEYS = [f"order{number}@customer{number % 7}" for number in range(100)]


def placed(connected, key: object, by: object) -> Data:
    """A key as a client serializes it whose strategy places it by something else."""
    whole, other = (internals.to_bytes(connected, one) for one in (key, by))
    return Data(struct.pack(">i", Data(other).hash_code()) + whole[4:])


def put_placed(connected, stored) -> None:
    for key in KEYS:
        stored.set(placed(connected, key, key.partition("@")[2]), f"java's {key}")


@pytest.fixture
def placed_map(hazelcast_client):
    stored = new_map(hazelcast_client)
    put_placed(hazelcast_client, stored)
    return stored


@pytest.fixture(autouse=True)
def looks(monkeypatch) -> list[str]:
    """The names of the maps that were looked at, one for each partition's request."""
    found: list[str] = []
    ask = internals.first_keys

    def first_keys(connected, name, *more):
        found.append(name)
        return ask(connected, name, *more)

    monkeypatch.setattr(internals, "first_keys", first_keys)
    return found


def read(grid, stored, pushed: Pushed) -> list[tuple[str, str, int]]:
    options = MapOptions.parse(options_of(grid, stored), streaming=False)
    batches = [one for task in plan(options, pushed) for one in read_entries(options, task)]
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted((row["key"], row["value"], row["partition"]) for row in rows)


def test_keys_are_placed_here_as_java_does_it(hazelcast_client) -> None:
    made = placed(hazelcast_client, "order94@customer3", "customer3")
    assert bytes(made.buffer) == BY_JAVA


def test_a_pushed_key_that_a_strategy_has_placed_is_read(
    grid, hazelcast_client, placed_map, looks, caplog
) -> None:
    placed_map.set(KEYS[3], "another program's")
    every = read(grid, placed_map, NOTHING_PUSHED)
    assert len(every) == len(KEYS) + 1
    assert not looks, "a whole batch hashes no key"
    wanted = [row for row in every if row[0] == KEYS[3]]
    assert len(wanted) == 2
    found = read(grid, placed_map, Pushed(keys=frozenset([KEYS[3]])))
    assert [row for row in found if row[0] == KEYS[3]] == wanted
    assert f"Every entry of map '{placed_map.name}'" in caplog.text
    at = wanted[0][2]
    of_one = Pushed(frozenset([at]), frozenset([KEYS[3]]))
    assert {row[2] for row in read(grid, placed_map, of_one)} == {at}


def test_where_hashes_say_it_a_pushed_key_is_all_that_is_read(
    grid, hazelcast_client, caplog
) -> None:
    stored = new_map(hazelcast_client)
    stored.put_all(dict.fromkeys(KEYS, "v"))
    found = read(grid, stored, Pushed(keys=frozenset([KEYS[3]])))
    assert [row[0] for row in found] == [KEYS[3]]
    assert "Every entry" not in caplog.text


@pytest.mark.parametrize("conflict", [{}, {"onConflict": "keep"}], ids=["replace", "keep"])
def test_puts_into_such_a_map_are_refused(grid, placed_map, conflict) -> None:
    before = dict(placed_map.entry_set())
    with pytest.raises(EnvironmentRefused, match=r"key 'order\d+@customer\d' .* partition \d+"):
        write(parsed(grid, placed_map, **conflict), rows_of({KEYS[3]: "spark's"}))
    assert placed_map.size() == len(KEYS)
    assert dict(placed_map.entry_set()) == before


def test_a_decided_batch_of_such_a_map_is_refused_at_its_start(grid, placed_map, broker) -> None:
    job = job_of(grid, placed_map, broker.bootstrap_servers)
    with pytest.raises(EnvironmentRefused, match="partition strategy"):
        job.prepare(0)
    assert placed_map.size() == len(KEYS)


def test_a_map_is_looked_at_once_a_minute(grid, hazelcast_client, looks, monkeypatch) -> None:
    """Of an empty map nobody knows it: programs with a strategy may come later."""
    stored = new_map(hazelcast_client)
    options = parsed(grid, stored)
    for batch in range(3):
        write_batch(options, {"a": f"{batch}"}, "query", batch)
    assert looks == [stored.name] * 271
    put_placed(client(settings(grid)), stored)
    write_batch(options, {"a": "3"}, "query", 3)
    monkeypatch.setattr(placing, "_LOOK_S", 0)
    with pytest.raises(EnvironmentRefused, match="partition strategy"):
        write_batch(options, {"a": "4"}, "query", 4)
    assert stored.get("a") == "3"


def test_keys_of_other_types_may_be_placed_by_anything(grid, hazelcast_client) -> None:
    """Java's PartitionAware objects: no text and no byte array is the same key."""
    stored = new_map(hazelcast_client)
    for number in range(100):
        stored.set(placed(hazelcast_client, number, "customer3"), "v")
    write(parsed(grid, stored), rows_of({KEYS[3]: "spark's"}))
    assert stored.size() == 101


def test_a_key_whose_hash_was_told_and_is_its_own_lies_right(grid, hazelcast_client) -> None:
    stored = new_map(hazelcast_client)
    for key in KEYS:
        stored.set(placed(hazelcast_client, key, key), "v")
    write(parsed(grid, stored), rows_of(dict.fromkeys(KEYS, "spark's")))
    assert dict(stored.entry_set()) == dict.fromkeys(KEYS, "spark's")
