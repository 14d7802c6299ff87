"""What `earliest` and `latest` mean in ranges that leave them open. On the driver, or in a task."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace

from ..core.errors import SourceError
from ..core.offsets import EARLIEST, LATEST, OffsetRange, TopicPartition
from ..core.process.driver_directory import remember
from .data_loss import TO_COME, tell_loss
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


def bound(
    options: SourceOptions,
    lookup: OffsetLookup,
    ranges: Collection[OffsetRange],
    *,
    planned: bool = False,
) -> list[OffsetRange]:
    """As `resolved`, of a batch query's `open_ranges`: LATEST stays that only where still no record
    is as new as the options say. Raises SourceError, too, where a start is behind an end; and
    DataLossError, if it is to fail, where all that is before an end is gone. Once the read is
    `planned`, the log may grow beyond an end, and LATEST with it: that reads nothing."""
    newest = resolved(lookup, ranges, fail=options.fail_on_data_loss)
    # Asked after LATEST: a record that comes in between is behind that.
    starts = _at_times(lookup, options.starting, [at for at, start, _ in ranges if start == LATEST])
    ends = _at_times(lookup, options.ending, [at for at, _, end in ranges if end == LATEST])
    found = [
        OffsetRange(at, min(start, starts.get(at, start)), ends.get(at, end))
        for at, start, end in newest
    ]
    behind = [
        one
        for wanted, one in zip(ranges, found, strict=True)
        if one.start > one.end
        and wanted.end != LATEST  # else `resolved` has told of it
        and (wanted.start != EARLIEST or one.end > 0)  # of a log that was empty nothing is gone
        and not (wanted.start == LATEST and planned)
    ]
    earliest = lookup.earliest([one.partition for one in behind])
    for at, start, end in behind:
        of_end = _option("ending", options.ending)
        if end >= earliest[at] or end == 0:
            raise SourceError(
                f"The read of partition {at} would begin at offset {start} "
                f"({_option('starting', options.starting)}), behind offset {end}, where it is to "
                f"end ({of_end}). Nothing of it was read. Give it a start before its end; "
                f"'eo-kafka topic offsets {at.topic} --at TIME' says which offsets are of a time."
            )
        tell_loss(
            f"All records of partition {at} before offset {end}, where the read is to end "
            f"({of_end}), expired or were deleted: its log begins at {earliest[at]}.",
            fail=options.fail_on_data_loss,
        )
    return found


def _at_times(
    lookup: OffsetLookup, limit: Limit, of: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Where a record is by now as new as `limit` says, of those it says a time of."""
    if not isinstance(limit, ByTime):
        return {}
    times = limit.times(of)
    found = lookup.at_times({at: times[at] for at in of})
    return {at: offset for at, offset in found.items() if offset is not None}


def _option(side: str, limit: Limit) -> str:
    """The option that gave it."""
    if not isinstance(limit, ByTime):
        return f"'{side}Offsets'"
    return f"'{side}Timestamp'" if limit.of_all is not None else f"'{side}OffsetsByTimestamp'"


def bound_anew(
    options: SourceOptions,
    ranges: Collection[OffsetRange],
    ids: Mapping[str, str],
    planned: Topics | None,
) -> tuple[list[OffsetRange], dict[str, str]]:
    """What a task of a stream's batch reads of `ranges` now, and the ids that their topics must
    have; and of what was added since it was `planned`, if that is told. Executor, once an attempt.
    Raises as `bound`."""
    added: list[OffsetRange] = []
    if planned is not None:
        added, theirs = added_ranges(options, planned)
        ids = {**theirs, **ids}
    with closing(OffsetLookup(options)) as lookup:
        return bound(options, lookup, [*ranges, *added], planned=True), dict(ids)


def added_ranges(
    options: SourceOptions, planned: Topics
) -> tuple[list[OffsetRange], dict[str, str]]:
    """The same of partitions that were added since a batch read was `planned`, which Spark does
    only once for all its uses; and the ids that their topics must have. Executor, once an attempt
    of one of its tasks: two would read them twice. Raises as `open_ranges`."""
    options = replace(options, starting=_of_added(options.starting))
    remember(options.servers)  # the plan has been there: an outage is waited for
    with closing(OffsetLookup(options)) as lookup:
        now = lookup.look()
        added = now.partitions - planned.partitions
        if not added:
            return [], {}
        ranges = open_ranges(options, lookup, now.partitions)
    topics = {at.topic for at in added}
    ids = {topic: i for topic, i in {**now.ids, **planned.ids}.items() if topic in topics}
    return [one for one in ranges if one.partition in added], ids


def _of_added(starting: Limit) -> Limit:
    """Where partitions begin that were not there when the rest began: no group has read them, and
    of a time, one without so new a record gives nothing."""
    if isinstance(starting, ByGroup):
        return "earliest"
    return replace(starting, or_latest=True) if isinstance(starting, ByTime) else starting


def resolved_now(options: SourceOptions, wanted: OffsetRange) -> OffsetRange:
    """`wanted`, with EARLIEST and LATEST resolved where they were left for the task. Raises
    as `resolved`."""
    if not {EARLIEST, LATEST} & {wanted.start, wanted.end}:
        return wanted
    with closing(OffsetLookup(options)) as lookup:
        return resolved(lookup, [wanted], fail=options.fail_on_data_loss)[0]


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
                f"topic was deleted and made again. {TO_COME}",
                fail=fail,
            )
    return found
