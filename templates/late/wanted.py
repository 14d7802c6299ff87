"""What must be in the topics that the job writes, given which tickets are in topic `late`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from model import expected
from pipeline import Settings
from rows import Made, Row


def wanted(
    records: Iterable[Made], job: Settings, found: Mapping[str, list[Row]]
) -> dict[str, list[Row]]:
    """Each record is in its window or in `late`, once; and none is late that came in time."""
    return expected(records, job, {key for key, _ in found["late"]})
