"""What must be in the topics that the job writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from model import expected
from pipeline import Settings
from rows import Made, Row


def wanted(
    records: Iterable[Made], job: Settings, found: Mapping[str, list[Row]]
) -> dict[str, list[Row]]:
    """What model.py says, whatever was `found` there."""
    return expected(records, job)
