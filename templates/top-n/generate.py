"""Songs that people play; some songs are played more than others."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from rows import Made, text

TOPICS = {"source": "delete", "sink": "delete"}  # the settings that name them: cleanup.policy
SONGS = ("Blue Monday", "Clair de lune", "Dancing Queen", "Heroes", "Nessun dorma", "Take Five")
OUT_OF_ORDER_S = 120


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """In about the order of their times."""
    chance = random.Random(seed)
    now = start
    for number in range(count):
        now += timedelta(seconds=chance.expovariate(1 / 10))
        at = now - timedelta(seconds=chance.uniform(0, OUT_OF_ORDER_S))
        (song,) = chance.choices(SONGS, range(1, len(SONGS) + 1))
        yield "source", f"listener-{number % 50}", {"song": song, "at": text(at)}
