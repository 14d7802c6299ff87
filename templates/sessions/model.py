"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import timedelta

from pipeline import Settings
from rows import Made, Row, moment


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The records of each topic that the job writes, of all that it reads, in any order."""
    gap, lateness = timedelta(minutes=job.gap_minutes), timedelta(minutes=job.lateness_minutes)
    views = defaultdict(list)
    for _, visitor, view in records:
        views[visitor].append((moment(view["at"]), view))
    watermark = max(at for some in views.values() for at, _ in some) - lateness
    closed: list[Row] = []
    for visitor, some in views.items():
        some.sort(key=lambda pair: (pair[0], pair[1]["page"]))
        begins = [n for n, (at, _) in enumerate(some) if n == 0 or at > some[n - 1][0] + gap]
        for begin, end in zip(begins, [*begins[1:], len(some)], strict=True):
            (_, first), (last_at, last) = some[begin], some[end - 1]
            if last_at + gap <= watermark:  # else a view can still be added to it
                session = {"views": end - begin, "first": first["at"], "last": last["at"]}
                closed.append((visitor, {**session, "entry": first["page"], "exit": last["page"]}))
    return {"sink": closed}
