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
        before, after = change["before"], change["after"]
        if before is not None and (after is None or after["id"] != before["id"]):
            del table[str(before["id"])]
        if after is not None:
            table[str(after["id"])] = after
    return {"sink": [*table.items()]}
