"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline import Settings
from rows import Made, Row


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The records of each topic that stream and backfill write, in any order."""
    found: list[Row] = []
    for _, key, order in records:
        if order is None:
            found.append((key, None))
            continue
        pieces = sum(item["count"] for item in order["items"])
        cents = sum(item["cents"] * item["count"] for item in order["items"])
        found.append((key, {"customer": order["customer"], "pieces": pieces, "cents": cents}))
    return {"sink": found}
