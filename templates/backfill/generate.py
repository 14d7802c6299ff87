"""Orders of a shop."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import datetime

from rows import Made

TOPICS = {"source": "delete", "sink": "delete"}  # the settings that name them: cleanup.policy
ITEMS = {"lamp": 4900, "chair": 12500, "kettle": 3300, "rug": 21000, "clock": 1900}


def records(count: int, start: datetime, seed: int = 1) -> Iterator[Made]:
    """In the order in which they come."""
    chance = random.Random(seed)
    for number in range(count):
        names = chance.sample([*ITEMS], chance.randint(1, 3))
        items = [
            {"name": name, "cents": ITEMS[name], "count": chance.randint(1, 4)} for name in names
        ]
        order = {"customer": f"customer-{chance.randrange(20)}", "items": items}
        yield "source", f"order-{start:%m%d%H%M%S}-{number}", order
