"""Readings of electricity meters. Gateways send some again, seconds or minutes later."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from rows import Made, text

TOPICS = {"source": "delete", "sink": "delete"}  # the settings that name them: cleanup.policy
METERS = 8


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """In about the order of their times."""
    chance = random.Random(seed)
    now = start
    again: list[tuple[datetime, Made]] = []
    for number in range(count):
        now += timedelta(seconds=chance.expovariate(1 / 10))
        due = next((one for one in again if one[0] <= now), None)
        if due:
            again.remove(due)
            yield due[1]
            continue
        meter, watts = f"meter-{chance.randrange(METERS)}", chance.randrange(100, 3000)
        reading = {"meter": meter, "watts": watts, "at": text(now)}
        made = "source", f"reading-{start:%m%d%H%M%S}-{number}", reading
        yield made
        if chance.random() < 0.4:
            again.append((now + timedelta(seconds=chance.expovariate(1 / 120)), made))
