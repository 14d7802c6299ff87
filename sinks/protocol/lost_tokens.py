"""The ledger has lost tokens of a decided batch: what Kafka itself says of its transactions, and
what a person is told where that is not enough."""

from __future__ import annotations

from collections.abc import Sequence

from ...clients.kafka.control_plane import ControlPlane
from ...core.transaction import Decision, Participant
from ..options import SinkOptions


def aborted_of(
    control: ControlPlane, decision: Decision, parts: Sequence[Participant]
) -> list[Participant]:
    """Those of which Kafka says that just their transaction is aborted. Raises OutcomeUnknown."""
    now = control.describe(part.identity.transactional_id for part in parts)
    version = decision.end_txn_version
    return [
        part
        for part in parts
        if now[part.identity.transactional_id].is_abort_of(part.identity, version)
    ]


def lost_sentence(
    options: SinkOptions, decision: Decision, committed: Sequence[Participant], problem: str
) -> str:
    """That nobody knows what of the batch is visible. Said also where it was just committed."""
    _, topic = options.job_and_ledger
    known = (
        f" Of the transactions of partitions {[part.partition for part in committed]} "
        f"({sum(part.rows for part in committed)} of {decision.rows} rows) it is known that they "
        "are committed."
        if committed
        else ""
    )
    return (
        f"Batch {decision.batch} is decided, and ledger '{topic}' has lost tokens, which say "
        f"what of it is committed.{problem}{known} Rows of the batch may be visible, and writing "
        "it again would repeat them. It stays decided, and is not written again. 'eo-kafka verify' "
        "says which of its rows are in the output. To go on without those that are not: 'eo-kafka "
        f"job repair {options.job} --batch {decision.batch} --accept-loss --bootstrap-servers ...'."
    )
