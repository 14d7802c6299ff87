"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline import Settings
from rows import Made, Row


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The records of each topic that the job writes, if each purchase is joined with the customers
    that stand before it."""
    customers: dict[str, dict[str, str] | None] = {}
    found: list[Row] = []
    for of, key, value in records:
        if of == "customers":
            customers[key] = value
        elif value is None:
            found.append((key, None))
        else:
            found.append((key, {**value, **(customers.get(value["customer"]) or {})}))
    return {"sink": found}
