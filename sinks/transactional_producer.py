"""A librdkafka producer that holds a transactional id."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

INIT_TIMEOUT_S = 60.0
# librdkafka looks for the coordinator at once, and when its connections are not up yet it waits for
# half a second before it looks again: measured in one of five starts, and in none with this pause.
CONNECT_S = 0.02


def take(
    settings: Mapping[str, Any],
    transactional_id: str,
    timeout_ms: int,
    before: Callable[[], None] = lambda: None,
) -> Any:
    """A producer after InitProducerId: earlier holders of the id are fenced, their transaction is
    aborted. `before` is called right before that. Raises KafkaException.

    Dropping the producer leaves an open transaction open; its `close()` would abort it.
    """
    from confluent_kafka import Producer

    producer = Producer(
        {
            **settings,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": str(timeout_ms),
            "enable.idempotence": "true",
            "acks": "all",
        }
    )
    time.sleep(CONNECT_S)
    before()
    producer.init_transactions(INIT_TIMEOUT_S)
    return producer
