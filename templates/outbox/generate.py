"""What Debezium tells of a shop's outbox: rows that are inserted, and mostly deleted at once.

As from a connector with `schemas.enable=false` and `message.key.columns=shop.outbox:aggregateid`.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from rows import Made, text

# The settings that name them: cleanup.policy
TOPICS = {"source": "delete", "sink": "delete", "customers": "delete"}
TYPES = {"order": ("placed", "paid", "sent"), "customer": ("registered", "moved")}


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """In their order."""
    chance = random.Random(seed)
    for number in range(count):
        kind = chance.choice([*TYPES])
        row = {
            "id": str(uuid.UUID(int=chance.getrandbits(128), version=4)),
            "aggregatetype": kind,
            "aggregateid": f"{kind}-{chance.randrange(12)}",
            "type": chance.choice(TYPES[kind]),
            "payload": json.dumps(
                {"number": number, "at": text(start + timedelta(seconds=number))}
            ),
        }
        key = json.dumps({"aggregateid": row["aggregateid"]})
        yield "source", key, _envelope("c", None, row)
        if chance.random() < 0.8:
            yield "source", key, _envelope("d", row, None)
            yield "source", key, None


def _envelope(op: str, before: Any, after: Any) -> dict[str, Any]:
    source = {"connector": "postgresql", "db": "shop", "table": "outbox"}
    return {"op": op, "before": before, "after": after, "source": source}
