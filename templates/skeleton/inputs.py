"""What the job reads, for sample.py: topics."""

from __future__ import annotations

import json
from collections.abc import Iterable

from confluent_kafka import Producer

import job
import topics
from rows import Made


def write(made: Iterable[Made]) -> None:
    """Write what generate.py has made into the topics that it is for."""
    config = job.config("job", "dev")
    producer = Producer(
        {"bootstrap.servers": config["bootstrap_servers"], "enable.idempotence": True}
    )
    for role, key, value in made:
        producer.produce(config[role], encoded(value), key)
    if producer.flush(60):
        raise SystemExit("Kafka did not take all records.")


def written() -> int:
    """How many records are there."""
    config = job.config("job", "dev")
    return sum(topics.end(config[role]) for role in topics.INPUTS)


def encoded(value: object) -> bytes | None:
    """Text as it is, objects as JSON."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
