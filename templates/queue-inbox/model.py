"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline import Settings
from rows import Made, Row


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """Each order once, however often it was published."""
    return {"sink": [*{key: order for _, key, order in records}.items()]}
