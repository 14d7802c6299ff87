"""Card payments as terminals send them. Some are declined, some are cut off on their way."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from rows import Made, text

# The settings that name them: cleanup.policy
TOPICS = {"source": "delete", "sink": "delete", "large": "delete", "rejects": "delete"}


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """In the order of their times."""
    chance = random.Random(seed)
    now = start
    for number in range(count):
        now += timedelta(seconds=chance.expovariate(1 / 3))
        card = f"{chance.choice((4929, 5500))}{chance.randrange(10**12):012}"
        digits = [card[at : at + 4] for at in range(0, 16, 4)]
        payment = {
            "id": f"{start:%m%d%H%M%S}-{number}",
            "card": chance.choice((" ", "", "")).join(digits),
            "cents": round(100 * chance.lognormvariate(3.5, 1.5)),
            "currency": chance.choice(("EUR", "USD", "GBP")),
            "approved": chance.random() < 0.9,
            "at": text(now),
        }
        is_cut = chance.random() < 0.03
        value: object = json.dumps(payment)[: chance.randrange(5, 60)] if is_cut else payment
        yield "source", f"terminal-{chance.randrange(8)}", value
