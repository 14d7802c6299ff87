"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from pipeline import Settings
from rows import EPOCH, Made, Row, moment, text


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The records of each topic that the job writes, of all that it reads, in any order."""
    size, lateness = timedelta(minutes=job.window_minutes), timedelta(minutes=job.lateness_minutes)
    cents = defaultdict(list)
    newest = datetime.min.replace(tzinfo=timezone.utc)
    for _, _, ride in records:
        ended = moment(ride["ended"])
        newest = max(newest, ended)
        cents[ended - (ended - EPOCH) % size, ride["zone"]].append(ride["cents"])
    return {
        "sink": [
            (zone, {"from": text(begin), "rides": len(some), "cents": sum(some)})
            for (begin, zone), some in cents.items()
            if begin + size <= newest - lateness  # else a ride can still be added to it
        ]
    }
