"""What `earliest` and `latest` mean in ranges that leave them open. On the driver, or in a task."""

from __future__ import annotations

from collections.abc import Collection

from ..core.offsets import EARLIEST, LATEST, OffsetRange
from .data_loss import tell_loss
from .lookup import OffsetLookup


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
