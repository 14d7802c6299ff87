"""Cars that pass the counters of some roads. On one of them there is a jam for a while."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from rows import Made, text

TOPICS = {"source": "delete", "sink": "delete"}  # the settings that name them: cleanup.policy
ROADS = ("A1", "A4", "A9")
OUT_OF_ORDER_S = 60


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """In about the order of their times."""
    chance = random.Random(seed)
    now = start
    for number in range(count):
        now += timedelta(seconds=chance.expovariate(1 / 6))
        at = now - timedelta(seconds=chance.uniform(0, OUT_OF_ORDER_S))
        road, is_jam = chance.choice(ROADS), 100 < number < 250
        kmh = round(chance.gauss(25 if is_jam and road == "A4" else 105, 8))
        yield "source", f"counter-{road}", {"road": road, "kmh": kmh, "at": text(at)}
