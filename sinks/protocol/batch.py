"""A batch `save()` without `batchId`: two-phase commit without a ledger.

All tasks prepare, then the driver ends every transaction in one pipelined round. Nothing is visible
before, a retried task repeats nothing, and a failed job leaves nothing. A driver that dies inside
that round can leave part of the transactions committed and the others to time out: `save()` has
no later start that could go on with them, as a streaming query has.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ...clients.kafka import control_plane
from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.control_requests import TopicPartition
from ...clients.kafka.lost_markers import Asker, forget, settle
from ...clients.kafka.transactional_id import TransactionalIds
from ...core.errors import (
    EnvironmentRefused,
    EoKafkaError,
    OutcomeUnknown,
    ParticipantsLost,
    Undecided,
)
from ...core.transaction import Described, EndTxnAnswer, Identity, TransactionState
from ..options import SinkOptions
from ..transactions.earlier_ends import EarlierEnds
from ..transactions.stragglers import beside, end_all, list_open
from ..transactions.task_transaction import SlotTaken, TaskTransaction
from .preflight import check_output

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

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
        earlier=EarlierEnds(
            control_plane.shared(options.kafka),
            ids,
            None,
            raises_epoch=batch.end_txn_version >= 5,
        ),
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


def _check_slot(options: SinkOptions, transactional_id: str) -> Described:
    found = control_plane.shared(options.kafka).describe_one(transactional_id)
    if found.state is TransactionState.ONGOING:  # of another attempt, perhaps the reported one
        raise SlotTaken(transactional_id)
    return found


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
    wrote = {at for found in described.values() for at in found.partitions}
    _settle(control, ids, batch, dict(topics), wrote, "is committed, and must not be repeated")


def _settle(
    control: ControlPlane,
    ids: TransactionalIds,
    batch: BatchIdentity,
    topics: Iterable[str],
    wrote: Collection[TopicPartition],
    outcome: str,
) -> None:
    """No later start does it for these ids. What the write has come to stands, whatever this finds:
    so it is told, and not raised."""
    asker = Asker(control, ids, raises_epoch=batch.end_txn_version >= 5)
    try:
        unseen = settle(asker, control.look(others=set(topics)).leader_epochs, wrote)
        problem = f"{sorted(unseen)} have no leader now: that may be left out there" * bool(unseen)
    except EoKafkaError as error:
        problem = str(error)
    finally:
        forget(asker)
    if problem:
        log.warning(
            "A write %s, and readers of its topics may stand still: %s (KAFKA-20734: 'eo-kafka txn "
            "list --topic' shows what hangs).",
            *(outcome, problem.rstrip(".")),
        )


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
                "transactions: part of the output is visible. A write with 'jobName' and "
                "'batchId', or a streaming query (Trigger.AvailableNow), would complete this by "
                "itself."
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
    ids = TransactionalIds(options.prefix, batch.name)
    found = list_open(control, ids)
    end_all(control, [one.identity for one in found], batch.end_txn_version)
    topics = {name for one in reports if one for name, _ in one.topics} | options.outputs
    _settle(control, ids, batch, topics, (), "has failed, and what it had open is aborted")
