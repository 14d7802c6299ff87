"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta, timezone

from pipeline import Settings
from rows import EPOCH, Made, Row, moment


def expected(
    records: Iterable[Made], job: Settings, late: Collection[str] | None = None
) -> dict[str, list[Row]]:
    """The newest result of each window, and the tickets that came too late.

    How batches were cut decides which of those that may be late are: `late` names the tickets that
    were found in that topic. Without it, each record was a batch of its own.
    """
    size, lateness = timedelta(minutes=job.window_minutes), timedelta(minutes=job.lateness_minutes)
    closes = size + timedelta(minutes=job.correct_minutes)
    windows, missed = defaultdict(list), []
    newest = datetime.min.replace(tzinfo=timezone.utc) + lateness
    for _, key, ticket in records:
        at = moment(ticket["at"])
        begin = at - (at - EPOCH) % size
        may_be_late = begin + closes <= newest - lateness
        if may_be_late and (late is None or key in late):
            missed.append((key, ticket))
        else:
            windows[ticket["line"], begin].append(ticket["cents"])
        newest = max(newest, at)
    results: list[Row] = []
    for (line, begin), some in windows.items():
        is_complete = begin + size <= newest - lateness
        value = {"tickets": len(some), "sum": sum(some), "complete": is_complete}
        results.append((f"{line} {begin:%Y-%m-%dT%H:%M}Z", value))
    return {"sink": results, "late": missed}
