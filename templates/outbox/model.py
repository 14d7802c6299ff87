"""What the output must be, computed without Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable

from pipeline import Settings
from rows import Made, Row

TOPIC_OF = {"order": "sink", "customer": "customers"}


def expected(records: Iterable[Made], job: Settings) -> dict[str, list[Row]]:
    """The events of each topic; those of one key in their order."""
    found: dict[str, list[Row]] = {topic: [] for topic in TOPIC_OF.values()}
    for event in inserted(records):
        found[TOPIC_OF[event["aggregatetype"]]].append(
            (event["aggregateid"], json.loads(event["payload"]))
        )
    return found


def inserted(records: Iterable[Made]) -> list[dict[str, str]]:
    """The rows that were put into the outbox."""
    return [change["after"] for _, _, change in records if change and change["op"] == "c"]
