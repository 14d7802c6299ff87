"""Reads ranges of a map's journal into record batches. On an executor, once a task attempt.

Members never say that an event is gone: they answer with what is left. So every answer is compared
with what was asked for, before a row of it is handed out: the sequences must follow each other, the
events before the range and at its end must be the ones that the driver saw when it planned, and the
cluster must still be the same one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...clients.hazelcast import internals
from ...clients.hazelcast.client import answer, client
from ...clients.hazelcast.internals import JournalItems
from ...core.crash_points import crash_point
from .columns import event_digest
from .members import MembersOf
from .options import MapOptions
from .position import JournalRange, missing, replaced, restarted
from .rows import Rows, Typed

if TYPE_CHECKING:
    import pyarrow as pa

_IN_FLIGHT = 8
_NONE: Typed = {}
_BATCH_EVENTS = 8192
_BATCH_BYTES = 16 * 1024 * 1024


class JournalTask(NamedTuple):
    """What one task reads, and of which cluster."""

    cluster: str
    ranges: tuple[JournalRange, ...]


def tasks(cluster: str, ranges: Sequence[JournalRange], count: int) -> list[JournalTask]:
    """Share out ranges among about as many tasks, always in the same way."""
    groups: list[list[JournalRange]] = [[] for _ in range(count)]
    sizes = [0] * count
    for wanted in sorted(ranges, key=lambda one: (one.start - one.end, one.partition)):
        smallest = sizes.index(min(sizes))
        groups[smallest].append(wanted)
        sizes[smallest] += wanted.end - wanted.start
    return [JournalTask(cluster, tuple(group)) for group in groups if group]


def read_journal(
    options: MapOptions, task: JournalTask, typed: Typed = _NONE
) -> Iterator[pa.RecordBatch]:
    """Every event of the task's ranges, in order within a partition.

    Raises DataLossError where events are gone or were replaced (with failOnDataLoss=false it warns
    and goes on with what is left), ReadTimeout, SourceError.
    """
    hz = client(options.hazelcast)
    rows = Rows(options, MembersOf(options, hz), typed)
    reading = _Reading(options, task, hz)
    items: list[bytes] = []
    where: list[tuple[int, int, int]] = []  # partition, first sequence, how many
    size = 0
    for partition, first, piece in reading.pieces():
        items += piece
        where.append((partition, first, len(piece)))
        size += sum(map(len, piece))
        if len(items) >= _BATCH_EVENTS or size >= _BATCH_BYTES:
            yield _batch(rows, items, where)
            crash_point("source.while_reading_map")
            items, where, size = [], [], 0
    if items:
        yield _batch(rows, items, where)
        crash_point("source.while_reading_map")


def _batch(rows: Rows, items: list[bytes], where: Sequence[tuple[int, int, int]]) -> pa.RecordBatch:
    counts = [count for _, _, count in where]
    partitions = np.repeat(np.array([one[0] for one in where], np.int32), counts)
    firsts = [np.arange(first, first + count, dtype=np.int64) for _, first, count in where]
    return rows.of_events(items, partitions, np.concatenate(firsts))


class _Reading:
    """The requests of one task, some of them under way at a time."""

    def __init__(self, options: MapOptions, task: JournalTask, hz: Any) -> None:
        self._options = options
        self._task = task
        self._client = hz

    def pieces(self) -> Iterator[tuple[int, int, list[bytes]]]:
        """Partition, first sequence and events, as answers come and are found to be right."""
        # From the event before the range, where one is known, to see that it is still there
        todo = deque((one, one.start - bool(one.before)) for one in self._task.ranges)
        asked: deque[tuple[JournalRange, int, Any]] = deque()
        while todo or asked:
            while todo and len(asked) < _IN_FLIGHT:
                wanted, position = todo.popleft()
                asked.append((wanted, position, self._ask(wanted, position)))
            wanted, position, answer = asked.popleft()
            found = self._answer(answer)
            now = internals.cluster_id(self._client)
            if now != self._task.cluster:
                # Nothing that another cluster holds belongs to this batch
                self._options.report_loss(restarted(self._options.map, self._task.cluster, now))
                return
            first, items = self._checked(wanted, position, found)
            if items:
                yield wanted.partition, first, items
                if first + len(items) < wanted.end:
                    todo.appendleft((wanted, first + len(items)))

    def _ask(self, wanted: JournalRange, position: int) -> Any:
        most = min(self._options.fetch_size + 1, wanted.end - position)
        return internals.read_journal(
            self._client, self._options.map, wanted.partition, position, most
        )

    def _answer(self, asked: Any) -> JournalItems:
        found: JournalItems = answer(asked, self._options.map, self._options.hazelcast)
        return found

    def _checked(
        self, wanted: JournalRange, position: int, found: JournalItems
    ) -> tuple[int, list[bytes]]:
        """The answer's events that belong to the range, and the sequence of the first."""
        name, items = self._options.map, found.items
        if not items or found.first() != position:
            self._options.report_loss(
                missing(name, wanted, position, self._bounds(wanted.partition))
            )
            if not items:
                return position, []
        first = found.first()
        if found.last() - first + 1 != len(items):
            raise AssertionError(f"sequences {first} to {found.last()} are {len(items)} events")
        if first == wanted.start - 1:
            if event_digest(items[0]) != wanted.before:
                self._options.report_loss(replaced(name, wanted, first))
            first, items = first + 1, items[1:]
            if not items and wanted.end > first:
                return first, self._rest(wanted, first)
        if first + len(items) > wanted.end:  # after a gap, answers go further than was asked for
            items = items[: max(wanted.end - first, 0)]
        at_end = items and first + len(items) == wanted.end
        if at_end and wanted.last and event_digest(items[-1]) != wanted.last:
            self._options.report_loss(replaced(name, wanted, wanted.end - 1))
        return first, items

    def _rest(self, wanted: JournalRange, first: int) -> list[bytes]:
        """After an answer that ended with the event before the range: planned events are gone."""
        self._options.report_loss(
            missing(self._options.map, wanted, first, self._bounds(wanted.partition))
        )
        return []

    def _bounds(self, partition: int) -> internals.Bounds:
        asked = internals.journal_bounds(self._client, self._options.map, partition)
        found: internals.Bounds = answer(asked, self._options.map, self._options.hazelcast)
        return found
