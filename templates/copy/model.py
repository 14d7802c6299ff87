"""What the output must be, computed without Spark."""

from __future__ import annotations

from collections.abc import Iterable

from pipeline import Settings
from rows import Made, Row


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The records of each topic that the job writes, of all that it reads, in any order."""
    found: dict[str, list[Row]] = {"sink": [], "large": [], "rejects": []}
    for _, terminal, payment in records:
        if isinstance(payment, str):
            found["rejects"].append((terminal, payment))
        elif payment["approved"]:
            digits = "".join(one for one in payment["card"] if one.isdigit())
            card = f"{digits[:4]}-xxxx-{digits[-4:]}"
            kept = {name: payment[name] for name in ("id", "cents", "currency", "at")}
            topic = "large" if payment["cents"] >= job.large_cents else "sink"
            found[topic].append((terminal, {**kept, "card": card}))
    return found
