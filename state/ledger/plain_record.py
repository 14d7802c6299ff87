"""Writes a record of no transaction into a ledger. Once it is acknowledged, the log that holds it
is the log, and all that was acknowledged before stands before it."""

from __future__ import annotations

from typing import Any

from ...clients.kafka import config
from ...clients.kafka.transactional_producer import landed_at
from .job import Job

TIMEOUT_S = 60.0


class NotTaken(Exception):
    """Nobody acknowledged it: why, and the codes of Kafka's refusals."""

    def __init__(self, why: str, codes: set[int]) -> None:
        super().__init__(why)
        self.codes = codes


def write_plain(options: Job, partition: int, record: tuple[bytes, bytes | None]) -> int:
    """Write it; the offset after it. Raises NotTaken."""
    from confluent_kafka import KafkaException

    _, topic = options.job_and_ledger
    landed: list[int] = []
    refused: list[str] = []
    codes: set[int] = set()

    def note(error: Any, message: Any) -> None:
        if error is not None:
            refused.append(error.str())
            codes.add(error.code())
        elif (offset := landed_at(message)) >= 0:
            landed.append(offset)

    settings = {
        **config.quick_connect(options.kafka),
        **config.connection_settings(options.kafka),
        "acks": "all",
        "linger.ms": "0",
        "message.timeout.ms": str(int(TIMEOUT_S * 1000)),
    }
    key, value = record
    try:
        producer = config.producer(settings)
        producer.produce(topic, value, key, partition, on_delivery=note)
        producer.flush(TIMEOUT_S + 5)
    except KafkaException as error:
        refused.append(error.args[0].str())
    if not landed:
        raise NotTaken(", ".join(refused) or "no answer", codes)
    return max(landed) + 1
