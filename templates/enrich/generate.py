"""Purchases in a shop, and its customers, who move up from tier to tier."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from rows import Made, text

# The settings that name them: cleanup.policy
TOPICS = {"source": "delete", "customers": "compact", "sink": "delete"}
NAMES = ("Ada", "Grace", "Edsger", "Barbara", "Donald", "Frances")
ITEMS = ("lamp", "chair", "kettle", "rug", "clock")


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """First the customers, then purchases in the order of their times. One customer in seven, who
    buys, is not known."""
    yield from customers("bronze")
    chance = random.Random(seed)
    now = start
    for number in range(count - len(NAMES)):
        now += timedelta(seconds=chance.expovariate(1 / 10))
        purchase = {
            "customer": f"customer-{chance.randrange(len(NAMES) + 1)}",
            "item": chance.choice(ITEMS),
            "cents": 100 * chance.randrange(10, 200),
            "at": text(now),
        }
        yield "source", f"purchase-{start:%m%d%H%M%S}-{number}", purchase


def customers(tier: str) -> Iterator[Made]:
    """All of them, in a tier."""
    for number, name in enumerate(NAMES):
        yield "customers", f"customer-{number}", {"name": name, "tier": tier}
