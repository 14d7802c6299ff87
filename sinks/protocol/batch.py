"""A batch `save()` without `batchId`: two-phase commit without a ledger.

All tasks prepare, then the driver ends every transaction in one pipelined round. Nothing is visible
before, a retried task repeats nothing, and a failed job leaves nothing. A driver that dies inside
that round can leave part of the transactions committed and the others to time out: `save()` has
no later start that could go on with them, as a streaming query has.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ...clients.kafka import control_plane
from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.transactional_id import TransactionalIds
from ...core.errors import EnvironmentRefused, OutcomeUnknown, ParticipantsLost, Undecided
from ...core.transaction import EndTxnAnswer, Identity, TransactionState
from ..options import SinkOptions
from .preflight import check_output
from .stragglers import beside, end_all, list_open
from .task_transaction import SlotTaken, TaskTransaction

if TYPE_CHECKING:
    import pyarrow as pa

END_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class BatchIdentity:
    """One `save()`: made on the driver, pickled to its tasks."""

    name: str
    end_txn_version: int


@dataclass(frozen=True)
class BatchReport:
    """One task's prepared transaction; None if it had no rows."""

    partition: int
    prepared: Identity | None
    topics: tuple[tuple[str, str], ...] = ()  # names and ids of what it wrote to


def new_batch(options: SinkOptions) -> BatchIdentity:
    """Check the topic and name the job. Runs on the driver, once a `save()`."""
    check_output(options)
    if not options.exactly_once:
        return BatchIdentity("", 0)
    version = control_plane.shared(options.kafka).end_txn_version()
    return BatchIdentity(f"batch-{uuid.uuid4()}", version)


def write(
    options: SinkOptions,
    batch: BatchIdentity,
    partition: int,
    task_attempt_id: int,
    rows: Iterator[pa.RecordBatch],
) -> BatchReport:
    """Write and prepare. Runs on an executor, once an attempt. Raises WriteFailed."""
    ids = TransactionalIds(options.prefix, batch.name)
    transaction = TaskTransaction(
        options,
        ids.attempt_slots(options.sink, partition, 0, task_attempt_id),
        who=f"Partition {partition}",
        before_open=partial(_check_slot, options),
    )
    try:
        for found in rows:
            if found.num_rows:
                transaction.send(found)
        prepared = transaction.prepare() if transaction.rows else None
    except BaseException:
        transaction.abort()
        raise
    return BatchReport(partition, prepared, transaction.topics)


def _check_slot(options: SinkOptions, transactional_id: str) -> None:
    found = control_plane.shared(options.kafka).describe_one(transactional_id)
    if found.state is TransactionState.ONGOING:  # of another attempt, perhaps the reported one
        raise SlotTaken(transactional_id)


def commit(
    options: SinkOptions, batch: BatchIdentity, reports: Sequence[BatchReport | None]
) -> None:
    """Look that all are open, then end all, and abort what other attempts left open: it would hide
    the rows from readers. Runs on the driver. Raises Undecided (nothing is visible),
    ParticipantsLost or OutcomeUnknown (part may be)."""
    control = control_plane.shared(options.kafka)
    prepared = [report for report in reports if report and report.prepared]
    identities = [report.prepared for report in prepared if report.prepared]
    topics = {topic for report in prepared for topic in report.topics}
    seen = control.look([one.transactional_id for one in identities], topics=dict(topics))
    if replaced := topics - set(seen.topic_ids.items()):
        raise Undecided(
            f"Topics {sorted(name for name, _ in replaced)} were deleted while rows were written "
            "to them. Nothing is visible. Run the write again."
        )
    described = seen.described
    closed = [one for one in identities if not described[one.transactional_id].is_open(one)]
    if closed:
        raise Undecided(
            f"{len(closed)} of {len(identities)} transactions are not open any more, the first "
            f"is '{closed[0].transactional_id}'. Nothing is visible. If the job took longer than "
            f"kafka.transaction.timeout.ms ({options.transaction_timeout_ms}), raise that."
        )
    ids = TransactionalIds(options.prefix, batch.name)
    others = beside(lambda: list_open(control, ids, but=identities))
    _commit_all(control, identities, batch.end_txn_version)
    end_all(control, [found.identity for found in others.result()], batch.end_txn_version)


def _commit_all(control: ControlPlane, identities: Sequence[Identity], version: int) -> None:
    found = control.end_all(identities, True, version, END_TIMEOUT_S)
    total = len(identities)
    committed = sum(answer is EndTxnAnswer.ENDED for answer, _ in found.values())
    late = sum(answer is EndTxnAnswer.RETRY for answer, _ in found.values())
    for name, (answer, error) in found.items():
        if answer in (EndTxnAnswer.LOOK, EndTxnAnswer.REFUSED):
            kind = ParticipantsLost if answer is EndTxnAnswer.LOOK else EnvironmentRefused
            raise kind(
                f"Kafka did not commit '{name}' ({error}); it committed {committed} of {total} "
                "transactions: part of the output is visible. A streaming query "
                "(Trigger.AvailableNow) would mend this by itself."
            )
    if late:
        raise OutcomeUnknown(
            f"{late} of {total} transactions got no final answer in {END_TIMEOUT_S:.0f} s: part of "
            "the output may be visible."
        )


def abort(
    options: SinkOptions, batch: BatchIdentity, reports: Sequence[BatchReport | None]
) -> None:
    """Abort whatever the save has open: of attempts that did not report, too, but for what opens
    later. Runs on the driver; what it misses times out. Raises OutcomeUnknown."""
    control = control_plane.shared(options.kafka)
    found = list_open(control, TransactionalIds(options.prefix, batch.name))
    end_all(control, [one.identity for one in found], batch.end_txn_version)
