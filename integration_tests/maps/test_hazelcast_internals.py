"""The client's private parts and the protocol are what clients/hazelcast/internals.py takes them
for: each of these fails when an upgrade of client or member changes something of it."""

from __future__ import annotations

import os
import signal
import time
import uuid

import pytest
from hazelcast.core import HazelcastJsonValue
from hazelcast.errors import HazelcastSerializationError, TransactionTimedOutError
from hazelcast.predicate import sql
from hazelcast.reactor import _PipedWaker

from eo_kafka.clients.hazelcast import internals, repairs
from eo_kafka.clients.hazelcast.client import connect
from eo_kafka.clients.hazelcast.transactions import Transaction
from eo_kafka.errors import SourceError
from eo_kafka.sources.maps import columns
from eo_kafka.testing.processes import wait_until
from grid_fixtures import new_map, settings


def partition_with(client, key: object) -> int:
    return client.partition_service.get_partition_id(key)


def test_the_journal_is_read_by_sequence(hazelcast_client) -> None:
    stored = new_map(hazelcast_client)
    at = partition_with(hazelcast_client, "a")
    name = stored.name
    assert internals.journal_bounds(hazelcast_client, name, at).result() == (0, -1)
    for number in range(5):
        stored.put("a", f"value {number}")
    assert internals.journal_bounds(hazelcast_client, name, at).result() == (0, 4)
    found = internals.read_journal(hazelcast_client, name, at, 1, 3).result()
    assert (found.first(), found.last(), len(found.items)) == (1, 3, 3)
    assert b"value 2" in found.items[1]
    again = internals.read_journal(hazelcast_client, name, at, 1, 3).result()
    assert again == found, "a replay is byte for byte the same"


def test_a_read_of_nothing_is_empty_and_returns_at_once(hazelcast_client) -> None:
    name = new_map(hazelcast_client).name
    assert internals.read_journal(hazelcast_client, name, 0, 0, 10).result().items == []
    for partition, most in ((271, 10), (-1, 10), (0, 0)):
        with pytest.raises(ValueError, match="no such read"):
            internals.read_journal(hazelcast_client, name, partition, 0, most)


def test_members_pass_over_what_was_overwritten_without_a_word(hazelcast_client) -> None:
    """The reason for comparing sequences ourselves."""
    stored = new_map(hazelcast_client, "small")
    for number in range(25):
        stored.put("a", number)
    at = partition_with(hazelcast_client, "a")
    found = internals.read_journal(hazelcast_client, stored.name, at, 0, 100).result()
    assert (found.first(), found.last()) == (15, 24)
    beyond = internals.read_journal(hazelcast_client, stored.name, at, 99, 100).result()
    assert beyond.items == []


def test_entries_are_iterated_in_bounded_pieces(hazelcast_client) -> None:
    stored = new_map(hazelcast_client, "plain")
    stored.put_all({number: f"v{number}" for number in range(3000)})
    found, pieces = {}, 0
    for partition in range(hazelcast_client.partition_service.get_partition_count()):
        pointers = internals.FIRST_POINTERS
        while pointers[-1][0] >= 0:
            piece = internals.fetch_entries(
                hazelcast_client, stored.name, partition, pointers, 3
            ).result()
            pointers, pieces = piece.pointers, pieces + 1
            objects = [internals.to_object(hazelcast_client, item) for item in piece.items]
            found.update(zip(objects[0::2], objects[1::2], strict=True))
    assert found == {number: f"v{number}" for number in range(3000)}
    assert pieces > 271, "every partition came in one piece"


def test_members_find_the_entries_of_a_partition_that_match(hazelcast_client) -> None:
    stored = new_map(hazelcast_client, "plain")
    stored.put_all({n: HazelcastJsonValue(f'{{"n": {n}}}') for n in range(100)})
    of_partition = {partition_with(hazelcast_client, key): key for key in range(2000)}
    assert len(of_partition) == 271
    found = []
    for key in of_partition.values():
        items = internals.matching_entries(
            hazelcast_client, stored.name, key, sql("n >= 90")
        ).result()
        found += [internals.to_object(hazelcast_client, item) for item in items[0::2]]
    assert sorted(found) == list(range(90, 100))


class Touch:
    """Makes a file when it is unpickled."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_what_was_pickled_into_a_map_is_refused_and_not_run(hazelcast_client, tmp_path) -> None:
    """Whoever may write into the map would run what he likes where it is read."""
    stored, made = new_map(hazelcast_client), tmp_path / "made"
    for value in (Touch(made), [[Touch(made)]]):
        stored.set("k", value)
        key = internals.to_bytes(hazelcast_client, "k")
        _, found = columns.entries(internals.entry_of(hazelcast_client, stored.name, key).result())
        with pytest.raises(SourceError, match="pickled by Python.*Read it as 'data'"):
            columns.as_text(found, lambda piece: internals.to_object(hazelcast_client, piece))
        with pytest.raises(HazelcastSerializationError, match="pickled by Python"):
            stored.get("k")
    assert not made.exists()


@pytest.mark.full
def test_a_cluster_that_was_started_anew_has_another_id(mortal_grid) -> None:
    grid = mortal_grid
    client = connect(settings(grid))
    before = internals.cluster_id(client)
    assert uuid.UUID(before)
    grid.restart()
    client.get_map("j").blocking().size()  # the client has connected again by itself
    assert internals.cluster_id(client) != before
    client.shutdown()


def lost_wake_up(handle_read, waker, monkeypatch) -> bool:
    """Let somebody wake the loop right before the pipe is emptied. Whether that leaves the waker
    awake with an empty pipe, so that nobody wakes the loop any more."""
    read, woken = os.read, []

    def read_late(fd: int, size: int) -> bytes:
        if fd == waker._read_fd and not woken:
            woken.append(True)
            waker.wake()
        return read(fd, size)

    monkeypatch.setattr(os, "read", read_late)
    waker.wake()
    handle_read()
    monkeypatch.undo()
    assert woken, "the pipe was not read with os.read"
    os.set_blocking(waker._read_fd, False)
    try:
        empty = not read(waker._read_fd, 1)
    except BlockingIOError:
        empty = True
    return bool(waker.awake and empty)


def test_the_client_still_loses_wake_ups_and_our_repair_does_not(monkeypatch) -> None:
    """When the first assertion fails, the client was mended: take `fix_waker` away."""
    waker = _PipedWaker({})
    assert lost_wake_up(waker.handle_read, waker, monkeypatch)
    waker.close()

    class Client:
        class _reactor:
            class _loop:
                pass

    Client._reactor._loop.waker = _PipedWaker({})
    assert repairs.fix_waker(Client)
    fixed = Client._reactor._loop.waker
    assert not lost_wake_up(fixed.handle_read, fixed, monkeypatch)
    fixed.close()


def test_every_client_we_make_is_repaired(hazelcast_client) -> None:
    waker = hazelcast_client._reactor._loop.waker
    assert waker.handle_read.__module__ == repairs.__name__


def test_a_clock_that_is_set_back_holds_up_no_request(mortal_grid, monkeypatch) -> None:
    """By its own clock, the client would wait for an hour to find that the connection is gone."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    client = connect(settings(mortal_grid))
    proxy = client.get_map(new_map(client).name)
    partitions = client.partition_service.get_partition_count()
    keys = {partition_with(client, key): key for key in range(20 * partitions)}
    monkeypatch.undo()
    victim = mortal_grid.members[0]
    os.kill(victim.pid, signal.SIGSTOP)
    asked = [proxy.set(key, "v") for key in keys.values()]
    victim.kill()
    wait_until(lambda: all(one.done() for one in asked), "every request is answered", 60)
    client.shutdown()


def test_a_transaction_is_committed_as_a_whole(
    hazelcast_client,
) -> None:
    stored = new_map(hazelcast_client)
    stored.set("gone", "1")
    key, gone, value = (internals.to_bytes(hazelcast_client, text) for text in ("k", "gone", "v"))
    with pytest.raises(RuntimeError), Transaction(hazelcast_client, 15) as one:
        one.put(stored.name, key, value)
        raise RuntimeError
    with Transaction(hazelcast_client, 15) as one:
        assert one.lock(stored.name, key) is None
        assert one.put(stored.name, key, value) is None
        before = one.put(stored.name, gone, None)
        assert internals.to_object(hazelcast_client, before) == "1"
        assert stored.size() == 1
    assert dict(stored.entry_set()) == {"k": "v"}


def test_what_a_transaction_has_locked_another_one_of_the_same_thread_waits_for(
    hazelcast_client,
) -> None:
    """The client's own are one owner to the members if they are of one thread."""
    stored = new_map(hazelcast_client)
    key = internals.to_bytes(hazelcast_client, "k")
    with Transaction(hazelcast_client, 15) as one:
        one.lock(stored.name, key)
        with pytest.raises(TransactionTimedOutError), Transaction(hazelcast_client, 1) as other:
            other.lock(stored.name, key)
