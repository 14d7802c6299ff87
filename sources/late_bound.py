"""What `earliest` and `latest` mean in ranges that leave them open. On the driver, or in a task."""

from __future__ import annotations

from collections.abc import Collection

from ..core.offsets import EARLIEST, LATEST, OffsetRange
from .lookup import OffsetLookup


def resolved(lookup: OffsetLookup, ranges: Collection[OffsetRange]) -> list[OffsetRange]:
    """`ranges` with EARLIEST and LATEST replaced by what they mean now. A start is LATEST where no
    record is as new as was asked for. Raises SourceError, ReadTimeout."""
    known = {
        EARLIEST: lookup.earliest([at for at, *limits in ranges if EARLIEST in limits]),
        LATEST: lookup.latest(
            [at for at, *limits in ranges if LATEST in limits],
            {at: start for at, start, _ in ranges},
        ),
    }
    return [
        OffsetRange(at, *(known[limit][at] if limit in known else limit for limit in limits))
        for at, *limits in ranges
    ]
