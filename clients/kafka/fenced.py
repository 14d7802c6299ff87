"""Who is told that its producer was fenced: has somebody else its transactional id now?

Kafka says the same of a transaction that it has aborted for its age. To who was stopped for a
while (an outage, a machine that slept) that matters: a successor goes on, and is left alone; where
there is none, one takes the id again. The coordinator tells: an abort for age leaves the producer
id and the next epoch, and nothing happens to them afterwards. Who takes an id under which a
transaction is open moves the epoch twice.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ...core.transaction import Identity, TransactionState

if TYPE_CHECKING:
    from .control_plane import ControlPlane

# Whose take finds an open transaction has it aborted first, and asks again after half a second.
_TAKES_S = 3.0
_POLL_S = 0.25
_CLOCKS_MS = 10_000
_ABORTED = (
    TransactionState.PREPARE_EPOCH_FENCE,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_ABORT,
)


def is_fencing(error: Any) -> bool:
    """Whether this KafkaError says that the producer was fenced, or its transaction aborted."""
    from confluent_kafka import KafkaError

    return error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)


def took_its_time(took_s: float, timeout_ms: int) -> bool:
    """Whether a transaction that took so long may have been aborted for its age, though Kafka has
    acknowledged nothing of it."""
    return took_s * 1000 >= max(timeout_ms - _CLOCKS_MS, timeout_ms / 2)


def was_aborted_for_age(control: ControlPlane, mine: Identity, *, was_open: bool) -> bool:
    """After `is_fencing`: whether nobody has taken the id. `mine`: as it was after one's own take;
    `was_open`: whether Kafka had heard of the transaction, by all one knows. Raises OutcomeUnknown
    if the coordinator does not answer."""
    if not was_open:  # taken while nothing is open, the epoch moves once, too
        return False
    until = time.monotonic() + _TAKES_S
    while True:
        found = control.describe_one(mine.transactional_id)
        next_epoch = (found.producer_id, found.epoch) == (mine.producer_id, mine.epoch + 1)
        if found.state not in _ABORTED or not next_epoch:
            return False
        if time.monotonic() > until:
            return True
        time.sleep(_POLL_S)
