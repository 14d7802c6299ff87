"""What the table must hold, computed without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline import Settings
from rows import Made, Row


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The rows that are there when all changes are made, each with its key."""
    table: dict[str, object] = {}
    for _, _, change in records:
        if change is None:
            continue
        if change["op"] == "d":
            del table[str(change["before"]["id"])]
        else:
            table[str(change["after"]["id"])] = change["after"]
    return {"sink": [*table.items()]}
