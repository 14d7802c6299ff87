"""What the job reads, for sample.py: topics."""

from __future__ import annotations

import json
from collections.abc import Iterable

from confluent_kafka import KafkaError, Producer

import job
import topics
from rows import Made

QUEUED = 10_000  # at most: records that Kafka has not taken yet


def write(made: Iterable[Made]) -> None:
    """Write what generate.py has made into the topics that it is for."""
    config = job.config("job", "dev")
    refused: list[str] = []

    def told(error: KafkaError | None, _record: object) -> None:
        if error is not None:
            refused.append(error.str())

    producer = Producer({**topics.client(), "enable.idempotence": True})
    for role, key, value in made:
        producer.produce(config[role], encoded(value), key, on_delivery=told)
        while len(producer) >= QUEUED:
            producer.poll(1)
    left = producer.flush(60)
    if refused or left:
        raise SystemExit(
            f"Kafka did not take {len(refused) + left} records: {[*refused, 'timed out'][0]}. Mend "
            "that, and name new topics in config.toml: 'check' takes what is in them for the first "
            "records of generate.py, without a gap."
        )


def written() -> int:
    """How many records are there."""
    config = job.config("job", "dev")
    return sum(topics.end(config[role]) for role in topics.INPUTS)


def encoded(value: object) -> bytes | None:
    """Text as it is, objects as JSON."""
    if value is None:
        return None
    return value.encode() if isinstance(value, str) else json.dumps(value).encode()
