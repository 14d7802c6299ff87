"""Views of a shop's products, and purchases: about one for eight views."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from rows import Made, text

# The settings that name them: cleanup.policy
TOPICS = {"source": "delete", "purchases": "delete", "sink": "delete"}
PRODUCTS = ("chair", "clock", "kettle", "lamp", "rug")
OUT_OF_ORDER_S = 60


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """In about the order of their times."""
    chance = random.Random(seed)
    now = start
    for number in range(count):
        now += timedelta(seconds=chance.expovariate(1 / 8))
        at = text(now - timedelta(seconds=chance.uniform(0, OUT_OF_ORDER_S)))
        product, visitor = chance.choice(PRODUCTS), f"visitor-{number % 40}"
        if chance.random() < 1 / 9:
            cents = 100 * chance.randrange(10, 200)
            yield "purchases", visitor, {"product": product, "cents": cents, "at": at}
        else:
            yield "source", visitor, {"product": product, "at": at}
