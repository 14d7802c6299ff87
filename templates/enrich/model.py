"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline import Settings
from rows import Made, Row


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The records of each topic that the job writes, if each purchase is joined with the customers
    that stand before it."""
    customers: dict[str, dict[str, str]] = {}
    found: list[Row] = []
    for of, key, value in records:
        if of == "customers":
            customers[key] = value
        else:
            found.append((key, {**value, **customers.get(value["customer"], {})}))
    return {"sink": found}
