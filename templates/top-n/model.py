"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from pipeline import Settings
from rows import EPOCH, Made, Row, moment


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The records of each topic that the job writes, of all that it reads, in any order."""
    size, lateness = timedelta(minutes=job.window_minutes), timedelta(minutes=job.lateness_minutes)
    plays: dict[datetime, Counter[str]] = defaultdict(Counter)
    newest = datetime.min.replace(tzinfo=timezone.utc)
    for _, _, play in records:
        at = moment(play["at"])
        newest = max(newest, at)
        plays[at - (at - EPOCH) % size][play["song"]] += 1
    charts: list[Row] = []
    for begin, songs in plays.items():
        if begin + size <= newest - lateness:  # else a play can still be added to it
            chart = sorted(songs.items(), key=lambda pair: (-pair[1], pair[0]))[: job.places]
            value = {"songs": [{"song": song, "plays": number} for song, number in chart]}
            charts.append((f"{begin:%Y-%m-%dT%H:%M}Z", value))
    return {"sink": charts}
