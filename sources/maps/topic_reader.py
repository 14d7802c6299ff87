"""Reads a map that is a compacted topic, with the Kafka source's reader.

A stream is the topic's records, one after the other. A batch is the newest record of each key up
to where its partition ends when it is read, without those that say that the key was removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from ...core.crash_points import crash_point
from ...core.errors import DataLossError, EnvironmentRefused
from ...core.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from ..late_bound import added_ranges, resolved_now
from ..lookup import OffsetLookup, Topics
from ..reader import read_range, read_ranges
from .newest_records import NewestRecords
from .pushed import NOTHING_PUSHED, Pushed
from .rows import Typed
from .topic_options import TopicMapOptions
from .topic_position import now_ms, too_late
from .topic_rows import TopicRows

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_NONE: Typed = {}
_DAY_MS = 24 * 3600 * 1000  # Kafka's default of delete.retention.ms


class ChangesTask(NamedTuple):
    """What one task of a stream reads, and until when it must have, so that no removal can be
    gone."""

    wanted: OffsetRange
    read_until_ms: int
    ids: Mapping[str, str] | None = None  # the topic's, as it was planned


class EntriesTask(NamedTuple):
    """What one task of a batch reads, and how long Kafka keeps removals. With `known`, it also
    reads what was added to the topic since, of which `pushed` leaves something."""

    partitions: tuple[TopicPartition, ...]
    removals_kept_ms: int
    known: Topics | None = None
    pushed: Pushed = NOTHING_PUSHED


def removals_kept_ms(
    options: TopicMapOptions, lookup: OffsetLookup, last_ms: int | None = None
) -> int:
    """How long Kafka keeps the records that say that a key was removed; `last_ms` where it does
    not say it now. Driver, once a batch.

    Raises EnvironmentRefused if the topic is not kept as a map must be, SourceError, ReadTimeout.
    """
    lookup.partitions()  # an unknown topic is told as that
    settings = lookup.topic_settings(options.map)
    policy = settings.get("cleanup.policy", "compact")
    if policy != "compact":
        sentence = (
            f"Topic '{options.map}' has cleanup.policy={policy}, so Kafka deletes entries by "
            "their age, without an event. It cannot be read as a map."
        )
        if options.fail_on_data_loss:
            raise EnvironmentRefused(
                f"{sentence} Set the policy to 'compact', or 'failOnDataLoss' to false."
            )
        log.warning("%s Reading what is left, as 'failOnDataLoss' is false.", sentence)
    return int(settings.get("delete.retention.ms", _DAY_MS if last_ms is None else last_ms))


def plan_entries(options: TopicMapOptions, pushed: Pushed = NOTHING_PUSHED) -> list[EntriesTask]:
    """The tasks that read all entries, or those of some partitions. Driver; Spark asks once for all
    uses of a DataFrame, so that each task finds out itself where its partition ends. Raises as
    `removals_kept_ms`."""
    with closing(OffsetLookup(options.source)) as lookup:
        kept_ms = removals_kept_ms(options, lookup)
        found = lookup.look()
    read = [at for at in sorted(found.partitions) if pushed.reads(at.partition)]
    first = EntriesTask(tuple(read[:1]), kept_ms, found, pushed)
    return [first, *(EntriesTask((at,), kept_ms) for at in read[1:])]


def read_changes(
    options: TopicMapOptions, task: ChangesTask, typed: Typed = _NONE
) -> Iterator[pa.RecordBatch]:
    """Every record of the task's range that compaction has left. Executor, once a task attempt.

    Raises DataLossError where removals may be gone (with failOnDataLoss=false it warns), what
    `read_range` raises, and SourceError for a record that cannot be read as asked for.
    """
    rows = TopicRows(options, typed)
    found = 0
    for records in read_ranges(options.source, [task.wanted], task.ids):
        found += records.num_rows
        yield rows.of_changes(records)
        crash_point("source.while_reading_map")
    _check_in_time(options, task, found)


def read_entries(
    options: TopicMapOptions, task: EntriesTask, typed: Typed = _NONE
) -> Iterator[pa.RecordBatch]:
    """Every entry of the task's partitions, each as of its end now, once; all those of one are in
    memory. Executor, once a task attempt. Raises as `read_changes`."""
    rows, added = TopicRows(options, typed), list[OffsetRange]()
    if task.known is not None:
        added, _ = added_ranges(options.source, task.known)
    theirs = [one.partition for one in added if task.pushed.reads(one.partition.partition)]
    for at in (*task.partitions, *theirs):
        yield from _read_partition(options, at, task.removals_kept_ms, rows)


def _read_partition(
    options: TopicMapOptions, at: TopicPartition, kept_ms: int, rows: TopicRows
) -> Iterator[pa.RecordBatch]:
    newest = NewestRecords()
    read_until_ms = now_ms() + kept_ms
    wanted = resolved_now(options.source, OffsetRange(at, EARLIEST, LATEST))
    found = 0
    for records in read_range(options.source, wanted):
        found += records.num_rows
        newest.add(records)
    _check_in_time(options, ChangesTask(wanted, read_until_ms), found)
    for records in newest.batches(at.partition):
        yield rows.of_entries(records)
        crash_point("source.while_reading_map")


def _check_in_time(options: TopicMapOptions, task: ChangesTask, found: int) -> None:
    if not too_late(task.read_until_ms, found, task.wanted.end - task.wanted.start):
        return
    sentence = (
        f"Removals of map '{options.map}' may be missing: reading {task.wanted} ended more than "
        "the topic's delete.retention.ms (the smallest that was seen) after the query had last "
        "read everything (a batch: after it began), and by then Kafka takes the records of "
        "removals away. Or the checkpoint names a time for that which is yet to come, and nobody "
        "knows."
    )
    if options.fail_on_data_loss:
        raise DataLossError(
            f"{sentence} To go on with what is left, set 'failOnDataLoss' to false; and raise that "
            "setting above the longest pause of the query, for the next time."
        )
    log.warning("%s Going on with what is left, as 'failOnDataLoss' is false.", sentence)
