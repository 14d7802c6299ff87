"""What Debezium tells of a table of customers: its first snapshot, and then its changes.

As from a connector with `schemas.enable=false`. After a deletion comes a tombstone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from rows import Made

NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances", "Alan", "Margaret")
FIRST = 5


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """In their order."""
    chance = random.Random(seed)
    table: dict[int, dict[str, Any]] = {}
    for number in range(count):
        at = start + timedelta(seconds=number)
        old = table.get(chance.randrange(1, 40)) if number >= FIRST else None
        if old is not None and chance.random() < 0.2:
            yield "source", _key(old), _envelope("d", table.pop(old["id"]), None, number, at)
            yield "source", _key(old), None
            continue
        id_ = old["id"] if old else next(n for n in range(1, count + 1) if n not in table)
        name = old["name"] if old else chance.choice(NAMES)
        new = {"id": id_, "name": name, "email": f"{name.lower()}.{number}@example.com"}
        table[id_] = new
        op = "u" if old else "r" if number < FIRST else "c"
        yield "source", _key(new), _envelope(op, old, new, number, at)


def _key(row: dict[str, Any]) -> str:
    return f'{{"id": {row["id"]}}}'


def _envelope(
    op: str, before: dict[str, Any] | None, after: dict[str, Any] | None, lsn: int, at: datetime
) -> dict[str, Any]:
    source = {"connector": "postgresql", "db": "shop", "table": "customers", "lsn": lsn}
    ms = round(at.timestamp() * 1000)
    return {"op": op, "before": before, "after": after, "source": source, "ts_ms": ms}
