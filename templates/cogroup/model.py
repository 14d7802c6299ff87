"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from pipeline import Settings
from rows import EPOCH, Made, Row, moment, text


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The records of each topic that the job writes, of all that it reads, in any order."""
    size, lateness = timedelta(minutes=job.window_minutes), timedelta(minutes=job.lateness_minutes)
    newest: dict[str, datetime] = {}
    counts: dict[Any, dict[str, int]] = defaultdict(
        lambda: {"views": 0, "purchases": 0, "cents": 0}
    )
    for of, _, one in records:
        at = moment(one["at"])
        newest[of] = max(newest.get(of, at), at)
        count = counts[at - (at - EPOCH) % size, one["product"]]
        count["views" if of == "source" else "purchases"] += 1
        count["cents"] += one.get("cents", 0)
    watermark = min(newest.values()) - lateness  # of two topics the older one
    return {
        "sink": [
            (product, {"from": text(begin), **count})
            for (begin, product), count in counts.items()
            if begin + size <= watermark  # else something can still be added to it
        ]
    }
