"""A shop's orders. Its program publishes some of them again, as it had no answer the first time."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from rows import Made, text

TOPICS = {"sink": "delete"}  # the setting that names it: cleanup.policy
ITEMS = ("tea", "coffee", "cake", "soup")


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """At least so many messages, in their order: of the queue, id and body."""
    chance = random.Random(seed)
    for number in range(count):
        order = {
            "customer": f"customer-{chance.randrange(30)}",
            "item": chance.choice(ITEMS),
            "cents": chance.randrange(100, 2000),
            "at": text(start + timedelta(seconds=number)),
        }
        for _ in range(chance.choice((1, 1, 1, 1, 2))):
            yield "source", f"order-{number}", order
