"""Tickets sold in buses. Some buses are without a network for a while, and send theirs later."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from rows import Made, text

# The settings that name them: cleanup.policy
TOPICS = {"source": "delete", "sink": "compact", "late": "delete"}
LINES = ("M10", "M20", "X5", "N1")


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """In the order in which they come."""
    chance = random.Random(seed)
    now = start
    to_come: list[tuple[datetime, int, Made]] = []
    number = 0
    for _ in range(count):
        while not to_come or to_come[0][0] > now:
            line, cents = chance.choice(LINES), chance.choice((180, 320, 990))
            ticket = {"line": line, "cents": cents, "at": text(now)}
            made = "source", f"ticket-{start:%m%d%H%M%S}-{number}", ticket
            (minutes,) = chance.choices((0, chance.uniform(5, 60)), (9, 1))
            heapq.heappush(to_come, (now + timedelta(minutes=minutes), number, made))
            number += 1
            now += timedelta(seconds=chance.expovariate(1 / 10))
        yield heapq.heappop(to_come)[2]
