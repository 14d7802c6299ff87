"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from pipeline import Settings
from rows import EPOCH, Made, Row, moment, text


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The records of each topic that the job writes, of all that it reads, in any order."""
    size, slide = timedelta(minutes=job.window_minutes), timedelta(minutes=job.slide_minutes)
    speeds = defaultdict(list)
    newest = datetime.min.replace(tzinfo=timezone.utc)
    for _, _, car in records:
        at = moment(car["at"])
        newest = max(newest, at)
        begin = at - (at - EPOCH) % slide  # of the last window that it is in
        while begin + size > at:
            speeds[begin + size, car["road"]].append(car["kmh"])
            begin -= slide
    watermark = newest - timedelta(minutes=job.lateness_minutes)
    found: list[Row] = []
    for (end, road), some in speeds.items():
        if end <= watermark:  # else a car can still be added to it
            value = {"cars": len(some), "slowest": min(some), "kmh": sum(some) // len(some)}
            found.append((road, {"until": text(end), **value}))
    return {"sink": found}
