"""Which offsets a query starts at and which ranges a batch covers. On the driver.

The rules are the JVM connector's: partitions added later are read from their earliest offset, and
what can no longer be read is reported as data loss, or logged with `failOnDataLoss=false`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from eo_kafka.errors import DataLossError, SourceError
from eo_kafka.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    TopicPartition,
    encode_text,
    names,
)
from eo_kafka.sources.declared import Limit
from eo_kafka.sources.lookup import OffsetLookup
from eo_kafka.sources.options import SourceOptions
from eo_kafka.sources.rate_limit import rate_limited

log = logging.getLogger(__name__)

_FAIL = "To go on without those records, set 'failOnDataLoss' to false."
_WARN = "To stop the query in such a case, set 'failOnDataLoss' to true."


class Planner:
    """Plans the batches of one query; asks the brokers through `lookup`."""

    def __init__(self, options: SourceOptions, lookup: OffsetLookup) -> None:
        self._options = options
        self._lookup = lookup

    def stored_start(self) -> dict[TopicPartition, int]:
        """Where a new query starts, of the partitions whose start a restart would find again.

        Partitions that start at `latest` are left out: a second look gives another answer, so
        their start is stored as the end of batch 0, which reads nothing of them.
        """
        if self._options.starting == "latest":
            return {}
        present = self._lookup.partitions()
        starts = _fixed(self._options.starting, present)
        _check_assigned("startingOffsets", starts, present)
        earliest = self._lookup.earliest([at for at in present if starts[at] == EARLIEST])
        return {at: earliest.get(at, start) for at, start in starts.items() if start != LATEST}

    def newest(self, known: Offsets) -> dict[TopicPartition, int]:
        """The end of what can be read now, of every partition there is."""
        return self._lookup.latest(self._lookup.partitions(), known)

    def end(self, start: Offsets, newest: Offsets, limit: int | None) -> dict[TopicPartition, int]:
        """Where the batch from `start` ends, within `limit` offsets if there is a limit."""
        if limit is None:
            return dict(newest)
        return rate_limited(limit, self._begin(start, newest), newest)

    def ranges(self, start: Offsets, end: Offsets, *, first: bool) -> list[OffsetRange]:
        """What the batch from `start` to `end` reads. Raises DataLossError.

        `first` says that `start` was looked up by this run and not read from the offset log: it
        may then name partitions younger than the batch, which the next one will find.
        """
        gone = start.keys() - end.keys()
        if gone and first:
            gone -= self._lookup.partitions()
        if gone:
            self._data_loss(f"Partitions {names(gone)} are gone; some data may have been missed.")
        begin = self._begin(start, end)
        for at in sorted(begin.keys() - start.keys()):
            # Without any stored offset the query is new, and none of its partitions is.
            added = start and not self._options.starts_at_latest(at, new_query=False)
            if added and begin[at] != 0:
                self._data_loss(
                    f"Added partition {at} starts from offset {begin[at]} instead of 0; some data "
                    "may have been missed."
                )
        for at in sorted(begin):
            if end[at] < begin[at]:
                self._data_loss(
                    f"The offset of partition {at} was changed from {begin[at]} to {end[at]}, some "
                    "data may have been missed: the topic was deleted and created again, or its "
                    "records expired."
                )
        return [OffsetRange(at, begin[at], end[at]) for at in sorted(begin) if begin[at] < end[at]]

    def batch_ranges(self) -> list[OffsetRange]:
        """A batch query's ranges; EARLIEST and LATEST are left for the tasks to resolve."""
        present = self._lookup.partitions()
        starts = _fixed(self._options.starting, present)
        ends = _fixed(self._options.ending, present)
        _check_assigned("startingOffsets", starts, present)
        _check_assigned("endingOffsets", ends, present)
        return [OffsetRange(at, starts[at], ends[at]) for at in sorted(present)]

    def _begin(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """Where each partition of `end` begins, those without an entry in `start` too."""
        begin = {at: start[at] for at in end if at in start}
        unstored = end.keys() - begin.keys()
        pinned = {at for at in unstored if self._options.starts_at_latest(at, new_query=not start)}
        return {
            **begin,
            **{at: end[at] for at in pinned},
            **self._lookup.earliest(unstored - pinned),
        }

    def _data_loss(self, sentence: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{sentence} {_FAIL}")
        log.warning("%s %s", sentence, _WARN)


def _fixed(limit: Limit, present: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    if isinstance(limit, dict):
        return limit
    return dict.fromkeys(present, EARLIEST if limit == "earliest" else LATEST)


def _check_assigned(name: str, offsets: Offsets, present: Collection[TopicPartition]) -> None:
    if offsets.keys() != set(present):
        raise SourceError(
            f"If {name} contains specific offsets, you must specify all TopicPartitions. Use -1 "
            f"for latest, -2 for earliest. Specified: {encode_text(offsets)}; the topics have: "
            f"{names(present)}."
        )
