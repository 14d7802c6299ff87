"""Reads a job's ledger to an end that is certain, and stops no driver.

A leader that is cut off from the other brokers goes on naming itself the leader, and tells an old
end. By that, the transaction of a newer generation looks like an older one's. So a record is
written that says nothing: once it is acknowledged, the log that holds it is the log, and all that
was acknowledged before stands before it. A driver that appends in that moment reads again
(state/ledger/append_point.py).
"""

from __future__ import annotations

from ...clients.kafka.control_plane import ControlPlane
from ...core.errors import EnvironmentRefused, OutcomeUnknown
from ...sinks.options import SinkOptions
from ...state.ledger import records
from ...state.ledger.ledger import DECISION_PARTITION, Ledger, fold
from ...state.ledger.log_reader import read_records
from ...state.ledger.plain_record import TIMEOUT_S, NotTaken, write_plain

# Forgets a decision that there never is: of no sink's name.
_NOTHING = (records.decision_key("-", 0, 0), None)


def read_acknowledged(options: SinkOptions, control: ControlPlane) -> Ledger:
    """All that stands in the ledger by now, with what is being decided. Raises OutcomeUnknown,
    ReadTimeout, CorruptLedger."""
    _, topic = options.job_and_ledger
    end = _append(options, topic)
    stable = control.reach((topic, DECISION_PARTITION, True), end, TIMEOUT_S)
    if stable < end:
        raise OutcomeUnknown(
            f"ledger '{topic}' is stable up to offset {stable} only, and goes on to {end}: a "
            "transaction is open on it, or its leader is cut off from the other brokers. So it is "
            "not known whether a newer driver has decided. Try again"
        )
    found = read_records(options.kafka, topic, DECISION_PARTITION, 0, end)
    return fold((key, value) for _, key, value in found)


def _append(options: SinkOptions, topic: str) -> int:
    """Write the record; the offset after it. Raises OutcomeUnknown, EnvironmentRefused."""
    from confluent_kafka import KafkaError

    try:
        return write_plain(options, DECISION_PARTITION, _NOTHING)
    except NotTaken as why:
        if KafkaError.TOPIC_AUTHORIZATION_FAILED in why.codes:
            raise EnvironmentRefused(
                f"this principal may not write to ledger '{topic}'. Its leader must acknowledge a "
                "record before what an older driver left is ended: without that it is not known "
                "whether a newer driver has decided. Grant Write on that topic"
            ) from None
        raise OutcomeUnknown(
            f"ledger '{topic}' took no record ({why}): its leader may be cut off from the other "
            "brokers, and not know what a newer driver has decided. Try again when all brokers see "
            "each other"
        ) from None
