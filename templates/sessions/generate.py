"""Page views of an encyclopedia: visitors come, read for a while, go, and come again."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from rows import Made, text

TOPICS = {"source": "delete", "sink": "delete"}  # the settings that name them: cleanup.policy
PAGES = ("Main_Page", "Apache_Kafka", "Ada_Lovelace", "Grace_Hopper", "Coffee", "Comet", "Tide")
VISITORS = 12
OUT_OF_ORDER_S = 120


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """In about the order of their times."""
    chance = random.Random(seed)
    now, readers = start, {0, 1, 2, 3}
    for _ in range(count):
        now += timedelta(seconds=chance.expovariate(1 / 20))
        if chance.random() < 0.1:
            readers ^= {chance.randrange(VISITORS)}  # somebody comes, or goes
        visitor = chance.choice(sorted(readers) or [0])
        at = now - timedelta(seconds=chance.uniform(0, OUT_OF_ORDER_S))
        at = at.replace(second=0, microsecond=0)  # several at once, and pauses of just the gap
        yield "source", f"visitor-{visitor}", {"page": chance.choice(PAGES), "at": text(at)}
