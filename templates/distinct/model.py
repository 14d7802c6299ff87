"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline import Settings
from rows import Made, Row


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The records of each topic that the job writes, of all that it reads, in any order."""
    return {"sink": [*{key: reading for _, key, reading in records}.items()]}
