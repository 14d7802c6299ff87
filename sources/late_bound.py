"""What `earliest` and `latest` mean in ranges that leave them open. On the driver, or in a task."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..core.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from ..core.process.driver_directory import remember
from .data_loss import tell_loss
from .given_offsets import GivenOffsets
from .lookup import OffsetLookup, Topics
from .settings.limits import ByGroup, ByTime, Limit
from .settings.options import SourceOptions


def open_ranges(
    options: SourceOptions, lookup: OffsetLookup, present: Collection[TopicPartition]
) -> list[OffsetRange]:
    """What a batch query reads of `present`, with EARLIEST and LATEST as the options say. Raises
    SourceError."""
    given = GivenOffsets(options, lookup)
    starts = given.resolved("startingOffsets", options.starting, present)
    ends = given.resolved("endingOffsets", options.ending, present)
    return [OffsetRange(at, starts[at], ends[at]) for at in sorted(present)]


def added_ranges(
    options: SourceOptions, planned: Topics
) -> tuple[list[OffsetRange], dict[str, str]]:
    """The same of partitions that were added since a batch read was `planned`, which Spark does
    only once for all its uses; and the ids that their topics must have. Executor, once an attempt
    of one of its tasks: two would read them twice. Raises as `open_ranges`."""
    options = replace(options, starting=_of_added(options.starting))
    remember(options.servers)  # the plan has been there: an outage is waited for
    lookup = OffsetLookup(options)
    try:
        now = lookup.look()
        added = now.partitions - planned.partitions
        if not added:
            return [], {}
        ranges = open_ranges(options, lookup, now.partitions)
    finally:
        lookup.close()
    topics = {at.topic for at in added}
    ids = {topic: i for topic, i in {**now.ids, **planned.ids}.items() if topic in topics}
    return [one for one in ranges if one.partition in added], ids


def _of_added(starting: Limit) -> Limit:
    """Where partitions begin that were not there when the rest began: no group has read them, and
    of a time, one without so new a record gives nothing."""
    if isinstance(starting, ByGroup):
        return "earliest"
    return replace(starting, or_latest=True) if isinstance(starting, ByTime) else starting


def resolved(
    lookup: OffsetLookup, ranges: Collection[OffsetRange], *, fail: bool
) -> list[OffsetRange]:
    """`ranges` with EARLIEST and LATEST replaced by what they mean now. A start is LATEST where no
    record is as new as was asked for. Raises SourceError, ReadTimeout; DataLossError, if it is to
    `fail`, where a start is behind the newest offset."""
    known = {
        EARLIEST: lookup.earliest([at for at, *limits in ranges if EARLIEST in limits]),
        LATEST: lookup.latest(
            [at for at, *limits in ranges if LATEST in limits],
            {at: start for at, start, _ in ranges},
        ),
    }
    found = [
        OffsetRange(at, *(known[limit][at] if limit in known else limit for limit in limits))
        for at, *limits in ranges
    ]
    for wanted, (at, start, end) in zip(ranges, found, strict=True):
        if wanted.end == LATEST and start > end:
            tell_loss(
                f"The read is to begin at offset {start} of partition {at}, which ends at {end}: "
                "the offset was given too high ('startingOffsets'), or records were lost, or the "
                "topic was deleted and made again.",
                fail=fail,
            )
    return found
