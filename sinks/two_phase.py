"""The executor's half of a batch: S2 open, S3 write, S4 token, S5 prepared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eo_kafka.crash_points import crash_point
from eo_kafka.errors import Fenced, ForeignLedger
from eo_kafka.sinks import control_plane
from eo_kafka.sinks.committable import TaskReport, WritePlan
from eo_kafka.sinks.coordinator import foreign_ledger
from eo_kafka.sinks.fast import row_digest
from eo_kafka.sinks.ledger_topic import TOKEN_PARTITION
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.task_transaction import TaskTransaction
from eo_kafka.sinks.transactional_id import TransactionalIds
from eo_kafka.state import records
from eo_kafka.transaction import Participant, Token

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TaskIdentity:
    """Which attempt of which partition of which batch this is, as Spark says."""

    query_id: str
    batch: int
    partition: int
    task_attempt_id: int


def write(
    options: SinkOptions, plan: WritePlan, task: TaskIdentity, batches: Iterator[pa.RecordBatch]
) -> TaskReport:
    """Write one partition's rows in a transaction of its own and leave it prepared.

    Runs on an executor, once an attempt. Reads `batches` to the end in any case: Spark's state
    store commits only then. Raises WriteFailed (Spark tries again), Fenced, ForeignLedger.
    """
    _, ledger = options.job_and_ledger
    if plan.owner is not None and plan.owner != task.query_id:
        raise ForeignLedger(foreign_ledger(ledger, plan.owner, task.query_id, options.job))
    if not plan.must_write(task.batch, task.partition):
        rows, digest = row_digest(batches, options.topic)
        return _report(plan, task, rows, digest, prepared=None, skipped=True)
    job, _ = options.job_and_ledger
    ids = TransactionalIds(options.prefix, job)
    transaction = TaskTransaction(
        options,
        ids.task(options.sink, task.partition, plan.generation, task.task_attempt_id),
        who=f"Batch {task.batch}, partition {task.partition}",
        before_open=lambda: _check_not_replaced(options, plan, ids, task),
    )
    try:
        for batch in batches:
            if batch.num_rows:
                transaction.send(batch)
                crash_point("S3.while_writing")
        prepared = _prepare(transaction, options, plan, task) if transaction.rows else None
    except BaseException:
        transaction.abort()  # or it would hold up the readers until it times out
        raise
    crash_point("S5.prepared")
    return _report(
        plan, task, transaction.rows, transaction.digest, prepared=prepared, skipped=False
    )


def _check_not_replaced(
    options: SinkOptions, plan: WritePlan, ids: TransactionalIds, task: TaskIdentity
) -> None:
    """Ids are used again. A task of a driver that has been replaced must not take one under which
    a newer driver's transaction may be prepared."""
    control = control_plane.shared(options.kafka)
    if control.describe([ids.coordinator])[ids.coordinator].identity != plan.coordinator:
        raise Fenced(
            f"Batch {task.batch}, partition {task.partition}: another driver of job "
            f"'{options.job}' has taken over. Nothing was written."
        )


def _prepare(
    transaction: TaskTransaction, options: SinkOptions, plan: WritePlan, task: TaskIdentity
) -> Participant:
    """S4 and S5: the token goes into the rows' own transaction, so that its being visible says,
    for good, that they are."""
    _, ledger = options.job_and_ledger
    token = Token(
        sink=options.sink,
        partition=task.partition,
        batch=task.batch,
        round=plan.round_of(task.batch),
        generation=plan.generation,
        rows=transaction.rows,
        digest=transaction.digest,
    )
    transaction.produce(
        ledger,
        records.token_key(token.sink, token.partition),
        records.encode_token(token),
        TOKEN_PARTITION,
    )
    crash_point("S4.after_token")
    return Participant(
        partition=token.partition,
        round=token.round,
        generation=token.generation,
        identity=transaction.prepare(must_include=(ledger, TOKEN_PARTITION)),
        rows=token.rows,
        digest=token.digest,
    )


def _report(
    plan: WritePlan,
    task: TaskIdentity,
    rows: int,
    digest: str,
    *,
    prepared: Participant | None,
    skipped: bool,
) -> TaskReport:
    lost = plan.lost if plan.lost and plan.lost.decision.batch == task.batch else None
    # In a repair every task takes part in the new round, also those that only look on.
    return TaskReport(
        partition=task.partition,
        batch=task.batch,
        round=plan.round_of(task.batch),
        skipped=skipped and lost is None,
        query_id=task.query_id,
        generation=plan.generation,
        end_txn_version=plan.end_txn_version,
        token_from=plan.token_from,
        rows=rows,
        digest=digest,
        prepared=prepared,
        missing=lost.missing if lost else (),
    )
