"""Orders of a shop, and payments for most of them: soon, late, never, or twice."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from datetime import datetime, timedelta

from rows import Made, text

# The settings that name them: cleanup.policy
TOPICS = {"source": "delete", "payments": "delete", "sink": "delete"}


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """In the order of their times."""
    chance = random.Random(seed)
    now, number = start, 0
    to_come: list[tuple[datetime, int, str]] = []
    for _ in range(count):
        if to_come and to_come[0][0] <= now:
            paid, of, method = heapq.heappop(to_come)
            if chance.random() < 0.05:  # somebody pays again
                again = now + timedelta(minutes=chance.uniform(1, 5))
                heapq.heappush(to_come, (again, of, method))
            payment = {"order": _name(start, of), "method": method, "paid": text(paid)}
            yield "payments", f"payment-{of}", payment
            continue
        customer = f"customer-{chance.randrange(20)}"
        cents = round(100 * chance.lognormvariate(3, 1))
        order = {"customer": customer, "cents": cents, "ordered": text(now)}
        yield "source", _name(start, number), order
        if chance.random() < 0.9:
            paid = now + timedelta(minutes=chance.expovariate(1 / 12))
            heapq.heappush(to_come, (paid, number, chance.choice(("card", "transfer", "voucher"))))
        number += 1
        now += timedelta(seconds=chance.expovariate(1 / 40))


def _name(start: datetime, number: int) -> str:
    return f"order-{start:%m%d%H%M%S}-{number}"
