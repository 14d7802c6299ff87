"""Refuses a new query whose `startingOffsets` are beyond a log's end, whatever `failOnDataLoss`
says: nothing is lost, and a query that went on at the log's end would read what they exclude.
Runs on the driver."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.errors import SourceError
from ..core.offsets import LATEST, Offsets, TopicPartition
from .settings.limits import ByTopic, Limit


def check_reached(start: Offsets, newest: Offsets) -> None:
    """Of a first batch, before Spark stores its end: below the start it would spoil the checkpoint.

    Raises SourceError.
    """
    beyond = [at for at in sorted(start) if newest.get(at, start[at]) < start[at]]
    if beyond:
        raise SourceError(
            f"The query is to begin at {_told(beyond, start, newest)}. Nothing was read, and no "
            "offset is stored. If 'startingOffsets' is too high, or of a topic that was made again "
            "since, correct it. If the records are still to come, start the query again when they "
            "are there: it begins at exactly that offset."
        )


def check_stored(starting: Limit, begin: Offsets, end: Offsets) -> None:
    """Of a first batch whose end is stored: Spark's own connector stores one below the start, and
    so did eo-kafka. Raises SourceError."""
    given = starting.offsets if isinstance(starting, ByTopic) else starting
    numbers = given if isinstance(given, dict) else {}
    below = [at for at in sorted(begin) if end[at] < begin[at] and numbers.get(at, LATEST) >= 0]
    if below:
        raise SourceError(
            f"By 'startingOffsets' the first batch begins at {_told(below, begin, end)} in "
            "'offsets/0' of the checkpoint. Nothing was read. If 'startingOffsets' was changed "
            "since, set it as it was. Else the log ended there when the batch was planned, and the "
            "checkpoint is spoilt: a batch behind this one would begin at that end, and read what "
            "'startingOffsets' excludes, also with 'failOnDataLoss' as false. Nothing was written "
            "(unless that was false before): start the query with a new checkpoint, once the log "
            "is long enough."
        )


def _told(partitions: Iterable[TopicPartition], start: Offsets, end: Offsets) -> str:
    return ", ".join(
        f"offset {start[at]} of partition {at}, which ends at {end[at]}" for at in partitions
    )
