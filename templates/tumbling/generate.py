"""Taxi rides of a city, more of them in its centre."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from rows import Made, text

TOPICS = {"source": "delete", "sink": "delete"}  # the settings that name them: cleanup.policy
ZONES = {"Midtown": 5, "Harlem": 2, "Chelsea": 3, "JFK": 1, "Astoria": 1}
OUT_OF_ORDER_S = 120


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """In about the order of their times."""
    chance = random.Random(seed)
    now = start
    for number in range(count):
        now += timedelta(seconds=chance.expovariate(1 / 8))
        ended = now - timedelta(seconds=chance.uniform(0, OUT_OF_ORDER_S))
        (zone,) = chance.choices([*ZONES], [*ZONES.values()])
        cents = 350 + 50 * round(chance.expovariate(1 / 20))
        yield "source", f"ride-{number}", {"zone": zone, "cents": cents, "ended": text(ended)}
