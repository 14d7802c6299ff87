"""Reads all entries of a map's partitions into record batches. On an executor, once a task attempt.

A partition is as it is when a request reaches it: entries that change while a map is read may be
seen before or after. Each request is answered by one operation on its partition. A partition that
needs several is read again from its beginning when the way to its owner changed in between, because
another replica may keep its entries in another order; so nothing of it is handed out before its
end.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...clients.hazelcast import internals
from ...clients.hazelcast.client import answer, client
from ...clients.hazelcast.placing import misplaced
from ...core.crash_points import crash_point
from ...core.errors import ReadTimeout, SourceError
from . import pushed as map_pushed
from .members import MembersOf
from .options import MapOptions
from .pushed import NOTHING_PUSHED, Pushed
from .rows import Rows, Typed

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
_IN_FLIGHT = 8
_NONE: Typed = {}
_BATCH_ITEMS = 2 * 8192
_BATCH_BYTES = 16 * 1024 * 1024


class EntriesTask(NamedTuple):
    """What one task reads."""

    cluster: str
    partitions: tuple[int, ...]
    pushed: Pushed = NOTHING_PUSHED


def plan(options: MapOptions, pushed: Pushed = NOTHING_PUSHED) -> list[EntriesTask]:
    """The tasks that read a map, or what it is restricted to; at least one. Driver. Raises
    ReadTimeout, EnvironmentRefused, SourceError."""
    hz = client(options.hazelcast)
    cluster = internals.cluster_id(hz)
    # Here, too: members tell once that a MapLoader failed, and Spark would just run a task again
    _await_loaded(options, hz)
    if pushed.keys:
        elsewhere = misplaced(options.hazelcast, options.map)
        if elsewhere is not None:
            log.warning(
                "Every entry of %s is read, and filters on 'key' are left to Spark: %s.",
                options.place,
                elsewhere,
            )
            pushed = replace(pushed, keys=None)
    every = range(hz.partition_service.get_partition_count())
    partitions = [one for one in every if pushed.reads(one)]
    if pushed.keys is not None:
        found = {at for key in pushed.keys for at, _ in internals.keys_of_text(hz, key)}
        partitions = [one for one in partitions if one in found]
    count = max(min(options.tasks, len(partitions)), 1)
    return [EntriesTask(cluster, tuple(partitions[first::count]), pushed) for first in range(count)]


def read_entries(
    options: MapOptions, task: EntriesTask, typed: Typed = _NONE
) -> Iterator[pa.RecordBatch]:
    """Every entry of the task's partitions, once. Raises ReadTimeout when members don't answer or
    the cluster is not the planned one any more, SourceError."""
    hz = client(options.hazelcast)
    # Not on the driver only: a partition whose copies have died since is loaded again
    _await_loaded(options, hz)
    rows = Rows(options, MembersOf(options, hz), typed)
    items: list[bytes] = []
    where: list[tuple[int, int]] = []
    size = 0
    for partition, piece in _pieces(options, task, hz):
        items += piece
        where.append((partition, len(piece) // 2))
        size += sum(map(len, piece))
        if len(items) >= _BATCH_ITEMS or size >= _BATCH_BYTES:
            yield rows.of_entries(items, _partitions(where))
            crash_point("source.while_reading_map")
            items, where, size = [], [], 0
    if items:
        yield rows.of_entries(items, _partitions(where))
    if internals.cluster_id(hz) != task.cluster:
        raise ReadTimeout(
            f"The cluster of {options.place} was started anew while it was read. Read it again."
        )


def _await_loaded(options: MapOptions, hz: Any) -> None:
    """Return once no MapLoader is loading the map: until then members answer with a part of it."""
    asked, done = internals.map_size(hz, options.map), threading.Event()
    asked.add_done_callback(lambda _: done.set())
    limit_s = options.hazelcast.request_ms / 1000
    if not done.wait(limit_s):  # members would wait for two minutes
        raise ReadTimeout(
            f"The members have not told the size of {options.place} within {limit_s:g} s. If it "
            "has a MapLoader or MapStore, they are still loading it, and a part of it is not read. "
            "Read it again later, or set 'hazelcast.request.timeout.ms' to longer than it takes."
        )
    try:
        answer(asked, options.map, options.hazelcast)
    except ReadTimeout:  # says what is wrong
        raise
    except SourceError as error:
        raise SourceError(
            f"{error} If the map has a MapLoader or MapStore, it may have failed. The members tell "
            "that once, and from then on answer as if the map was loaded: mend the cause, which "
            "their logs tell, and have it loaded again (IMap.loadAll) before you read it again."
        ) from None


def _partitions(where: Sequence[tuple[int, int]]) -> Any:
    numbers = np.array([partition for partition, _ in where], np.int32)
    return np.repeat(numbers, [count for _, count in where])


def _pieces(options: MapOptions, task: EntriesTask, hz: Any) -> Iterator[tuple[int, list[bytes]]]:
    """Partitions and their entries, some requests under way at a time."""
    if task.pushed.keys is not None and options.predicate is None:
        yield from _by_keys(options, task, hz)
        return
    predicate = map_pushed.predicate(options.predicate, task.pushed.comparisons)
    ask = _by_predicate(options, hz, predicate) if predicate else _first_piece(options, hz)
    todo = deque(task.partitions)
    asked: deque[tuple[int, Any, Any]] = deque()
    while todo or asked:
        while todo and len(asked) < _IN_FLIGHT:
            partition = todo.popleft()
            asked.append((partition, internals.route(hz, partition), ask(partition)))
        partition, owner, asked_for = asked.popleft()
        found = answer(asked_for, options.map, options.hazelcast)
        if isinstance(found, internals.FetchedEntries):
            items = found.items
            if not found.ended:
                rest = _rest(options, hz, partition, found)
                if rest is None or owner != internals.route(hz, partition):
                    todo.append(partition)
                    continue
                items = items + rest
        else:
            items = found
        if items:
            yield partition, items


def _rest(
    options: MapOptions, hz: Any, partition: int, found: internals.FetchedEntries
) -> list[bytes] | None:
    """What comes after the first piece; None if the owner changed meanwhile."""
    owner = internals.route(hz, partition)
    items: list[bytes] = []
    while not found.ended:
        asked = internals.fetch_entries(
            hz, options.map, partition, found.pointers, options.fetch_size
        )
        found = answer(asked, options.map, options.hazelcast)
        if internals.route(hz, partition) != owner:
            return None
        items += found.items
    return items


def _first_piece(options: MapOptions, hz: Any) -> Any:
    return lambda partition: internals.fetch_entries(
        hz, options.map, partition, internals.FIRST_POINTERS, options.fetch_size
    )


def _by_keys(options: MapOptions, task: EntriesTask, hz: Any) -> Iterator[tuple[int, list[bytes]]]:
    """The entries of the keys that were asked for, where they lie in the task's partitions."""
    every = [one for key in task.pushed.keys or () for one in internals.keys_of_text(hz, key)]
    todo = deque(one for one in sorted(every) if one[0] in task.partitions)
    asked: deque[tuple[int, Any]] = deque()
    while todo or asked:
        while todo and len(asked) < _IN_FLIGHT:
            partition, key = todo.popleft()
            asked.append((partition, internals.entry_of(hz, options.map, key)))
        partition, one = asked.popleft()
        items = answer(one, options.map, options.hazelcast)
        if items:
            yield partition, items


def _by_predicate(options: MapOptions, hz: Any, predicate: Any) -> Any:
    keys = _a_key_of_each(hz)
    return lambda partition: internals.matching_entries(hz, options.map, keys[partition], predicate)


def _a_key_of_each(hz: Any) -> dict[int, int]:
    """For each partition some number that would lie in it."""
    service, number = hz.partition_service, 0
    found: dict[int, int] = {}
    while len(found) < service.get_partition_count():
        found.setdefault(service.get_partition_id(number), number)
        number += 1
    return found
