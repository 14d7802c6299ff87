"""Records among the tokens, that all which stand there by then stand before.

A driver's stands in its generation's own transaction (appender.py). A task that commits by itself
reads up to its own token whether there is one of a newer driver, who will not look behind it. That
needs nobody's word for who the newest driver is: a coordinator that is cut off from the other
brokers would deny it.

A task's belongs to no transaction: one of its own would be open for as long as the task writes, and
hide from every other task what it looks for.
"""

from __future__ import annotations

from typing import Any

from ...clients.kafka import config
from ...clients.kafka.transactional_producer import landed_at
from ...core.errors import WriteFailed
from .job import Job
from .log_reader import read_records
from .records import barrier_generation, barrier_key
from .topics import TOKEN_PARTITION

TIMEOUT_S = 60.0
# Of one ledger (its id) and start: up to where this process has read, and the newest generation
# before that. Else each task of a batch would read the tokens of all before it.
_read: dict[tuple[str, int], tuple[int, int]] = {}


def write_barrier(options: Job) -> int:
    """Write it; the offset after it. Runs on an executor, for an attempt that may not be its
    task's first. Raises WriteFailed."""
    from confluent_kafka import KafkaException

    _, topic = options.job_and_ledger
    landed: list[int] = []
    refused: list[str] = []

    def note(error: Any, message: Any) -> None:
        if error is not None:
            refused.append(error.str())
        elif (offset := landed_at(message)) >= 0:
            landed.append(offset)

    settings = {
        **config.quick_connect(options.kafka),
        **config.connection_settings(options.kafka),
        "acks": "all",
        "linger.ms": "0",
        "message.timeout.ms": str(int(TIMEOUT_S * 1000)),
    }
    try:
        producer = config.producer(settings)
        producer.produce(topic, None, barrier_key(), TOKEN_PARTITION, on_delivery=note)
        producer.flush(TIMEOUT_S + 5)
    except KafkaException as error:
        refused.append(error.args[0].str())
    if not landed:
        raise WriteFailed(
            f"Ledger '{topic}' took no record among the tokens, so it is unknown whether an "
            f"earlier attempt of the task committed ({', '.join(refused) or 'no answer'}). Nothing "
            "of this attempt is visible."
        )
    return max(landed) + 1


def newest_generation(options: Job, ledger_id: str, start: int, until: int) -> int:
    """Of the barriers in [start, until), whether their transactions have ended or not; 0 without
    one. The record that ends at `until` is the caller's own. Runs on an executor, once a task,
    before it commits. Raises WriteFailed if that record is not there, ReadTimeout."""
    _, topic = options.job_and_ledger
    position, newest = _read.get((ledger_id, start), (start, 0))
    between = min(position, until - 1), until
    reached = 0
    for offset, key, _ in read_records(
        options.kafka, topic, TOKEN_PARTITION, *between, committed=False
    ):
        newest = max(newest, barrier_generation(key) or 0)
        reached = offset + 1
    if reached != until:  # nothing that was not read may count as read
        raise WriteFailed(
            f"Ledger '{topic}' does not hold the record of the rows at offset {until - 1} of "
            f"partition {TOKEN_PARTITION}, which it had taken: it was deleted and made again, or "
            "its newest records are lost. Nothing of this attempt is visible."
        )
    _read.clear()
    _read[ledger_id, start] = max(position, until), newest
    return newest
