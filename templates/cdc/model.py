"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline import Settings
from rows import Made, Row


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The newest record of each key: a row of the table, or null where it was deleted."""
    newest: dict[str, object] = {}
    for _, _, change in records:
        if change is not None:
            for row, told in (change["before"], None), (change["after"], change["after"]):
                if row is not None:
                    newest[str(row["id"])] = told
    return {"sink": [*newest.items()]}
