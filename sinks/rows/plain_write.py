"""The weaker guarantees: sends rows without transaction, token, ledger or decision.

`at-least-once`: idempotent producer, every row acknowledged by all in-sync replicas before the task
ends; a batch or task that runs again repeats rows. `none`: one replica's acknowledgement, and rows
that are refused are counted in a warning, not an error; rows may be lost or repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...clients.kafka import config as kafka_config
from ...core.crash_points import crash_point
from ..options import AT_LEAST_ONCE, NONE, SinkOptions
from .fast import arrow_producer
from .plain import not_written
from .producer_settings import ACKS_ALIAS, producer_settings

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
FLUSH_TIMEOUT_S = 300.0


def write(options: SinkOptions, partition: int, batches: Iterator[pa.RecordBatch]) -> None:
    """Send all rows. Runs on an executor, once an attempt. Raises WriteFailed, and
    EnvironmentRefused for what may not be written."""
    producer = kafka_config.producer(producer_settings(options))
    writer = arrow_producer(producer, options.topic, options.own_topics)
    writer.goes_on = options.guarantee == NONE
    for batch in batches:
        writer.send(batch)
        crash_point("S3.while_writing")
    producer.flush(FLUSH_TIMEOUT_S)
    missing = writer.rows - writer.acknowledged
    acks = options.kafka.get("acks", options.kafka.get(ACKS_ALIAS))
    if not missing or acks == "0":  # then nobody says what arrived
        return
    sentence = f"Partition {partition}: " + (
        writer.failures or f"{missing} rows got no answer in {FLUSH_TIMEOUT_S:.0f} s"
    )
    if options.guarantee == AT_LEAST_ONCE:
        repeated = f"{sentence}. Rows sent before it are visible and will be repeated."
        raise not_written(repeated, writer.first_code)
    log.warning("guarantee=none, so this is not an error: %s.", sentence)
