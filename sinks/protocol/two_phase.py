"""The executor's part of a batch: S2 open, S3 write, S4 token, S5 prepared.

What tasks of both ways to commit have in common is here too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...clients.kafka import control_plane
from ...core.crash_points import crash_point
from ...core.digest import Digest
from ...core.errors import Fenced, WriteFailed
from ...core.transaction import Described, Participant, Token, TransactionState
from ...state.ledger import records
from ...state.ledger.owner import check_owner
from ...state.ledger.topics import TOKEN_PARTITION
from ..batches.committable import TaskReport, WritePlan
from ..options import SinkOptions
from ..rows.fast import row_digest
from ..transactions.earlier_ends import EarlierEnds
from ..transactions.task_transaction import SlotTaken, TaskTransaction

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TaskIdentity:
    """Which attempt of which partition of which batch this is, as Spark says. `follows`: whether
    one before it failed, or is slow, in the same run of the stage. The first one of a stage that
    runs again follows none: what was reported before counts, and Spark does not end this one.
    `run`: which start of the query it is of."""

    query_id: str
    batch: int
    partition: int
    task_attempt_id: int
    checkpoint: str | None = None
    follows: bool = False
    run: str = ""

    @property
    def name(self) -> str:
        """For errors."""
        return f"Batch {self.batch}, partition {self.partition}"


def write(
    options: SinkOptions,
    plan: WritePlan,
    task: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
    beside: Digest | None = None,
) -> TaskReport:
    """Write one partition's rows in a transaction of its own and leave it prepared.

    Runs on an executor, once an attempt. Reads `batches` to the end in any case: Spark's state
    store commits only then. `beside` is of what else belongs to the rows, once they are read.
    Raises WriteFailed (Spark tries again), Fenced, ForeignLedger.
    """
    check_owner(options, plan.owner, task.query_id)
    # What is staged is known by its partition, and so are the rows that go to a topic beside it.
    torn = plan.torn_at(task.batch) if options.staging is None else None
    if torn is None and not plan.must_write(task.batch, task.partition):
        rows, digest = row_digest(batches, options.topic)
        digest = Digest.of(rows, digest).beside(beside or Digest()).text()
        return report(plan, task, rows, digest, skipped=plan.torn_at(task.batch) is None)
    transaction = TaskTransaction(
        options,
        options.ids.attempt_slots(
            options.sink, task.partition, plan.generation, task.task_attempt_id
        ),
        who=task.name,
        before_open=lambda name: _check_slot(options, plan, task, name),
        still_wanted=lambda: check_still_wanted(options, plan, task),
        earlier=EarlierEnds(
            control_plane.shared(options.kafka),
            options.ids,
            options.ledger_topic,
            raises_epoch=plan.end_txn_version >= 5,
        ),
    )
    transaction.beside = beside or Digest()
    transaction.open_ahead()
    try:
        for batch in batches:
            if batch.num_rows:
                transaction.send(batch)
                crash_point("S3.while_writing")
        rows, digest = transaction.rows, transaction.digest
        if not rows or (torn and torn.shows(task.partition, rows, digest)):
            transaction.abort()
            return report(plan, task, rows, digest if rows else "")
        prepared = prepare(transaction, options, plan, task)
    except BaseException:
        transaction.abort()  # or it would hold up the readers until it times out
        raise
    crash_point("S5.prepared")
    return report(
        plan,
        task,
        rows,
        digest,
        prepared,
        token_until=transaction.ours_until,
        open_s=transaction.open_s,
        size=transaction.size,
    )


def check_not_replaced(
    options: SinkOptions, plan: WritePlan, task: TaskIdentity, transactional_id: str
) -> Described:
    """Raise Fenced if the coordinator's id has been taken since the plan was made, WriteFailed if
    Kafka has forgotten it; else, what Kafka has under the task's. Ids are used again: a task of a
    driver that has been replaced must not take one under which a newer driver's transaction may be
    prepared."""
    coordinator = options.ids.coordinator
    found = control_plane.shared(options.kafka).describe([coordinator, transactional_id])
    _check_coordinator(options, plan, task, found[coordinator])
    crash_point("S2.before_init")
    return found[transactional_id]


def _check_slot(
    options: SinkOptions, plan: WritePlan, task: TaskIdentity, transactional_id: str
) -> Described:
    # S1 ended all that was older: what is open is another attempt's, and perhaps the reported one.
    found = check_not_replaced(options, plan, task, transactional_id)
    if found.state is TransactionState.ONGOING:
        raise SlotTaken(transactional_id)
    return found


def check_still_wanted(options: SinkOptions, plan: WritePlan, task: TaskIdentity) -> None:
    """Raise Fenced if the batch was decided or given up, or another driver has taken over;
    WriteFailed if Kafka cannot tell."""
    control = control_plane.shared(options.kafka)
    _check_coordinator(options, plan, task, control.describe_one(options.ids.coordinator))


def _check_coordinator(
    options: SinkOptions, plan: WritePlan, task: TaskIdentity, found: Described
) -> None:
    if found.state is TransactionState.MISSING:
        # Who had taken it since would be forgotten, too: nobody can tell, and the next S1 need not.
        raise WriteFailed(
            f"{task.name}: Kafka has forgotten the coordinator's transactional id "
            f"'{options.ids.coordinator}' since this batch was planned: the brokers' "
            "transactional.id.expiration.ms is shorter than the batch takes until its tasks have "
            "written. Nothing of this attempt is visible, and nothing is lost. Set it to a day or "
            "more on each broker (Kafka's default is 604800000, seven days; 'eo-kafka doctor' "
            "shows it), restart the brokers, and start the query again."
        )
    if found.identity != plan.coordinator:
        raise fenced(options, task)


def fenced(options: SinkOptions, task: TaskIdentity) -> Fenced:
    """What a task raises that nobody waits for."""
    return Fenced(
        f"{task.name}: another driver of job '{options.job}' has taken over, or the batch has "
        "ended without this attempt. Nothing of this attempt is visible."
    )


def prepare(
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
        topics=transaction.asked,
    )
    transaction.produce(
        ledger,
        records.token_key(token.sink, token.partition, token.round),
        records.encode_token(token),
        TOKEN_PARTITION,
    )
    crash_point("S4.after_token")
    coordinator = options.ids.coordinator
    identity = transaction.prepare((ledger, TOKEN_PARTITION), watched=[coordinator])
    # Or it would stay open until it times out: nobody who knows of it is left.
    _check_coordinator(options, plan, task, transaction.seen[coordinator])
    return Participant(
        partition=token.partition,
        round=token.round,
        generation=token.generation,
        identity=identity,
        rows=token.rows,
        digest=token.digest,
        topics=transaction.topics,
    )


def report(
    plan: WritePlan,
    task: TaskIdentity,
    rows: int,
    digest: str,
    participant: Participant | None = None,
    *,
    committed: bool = False,
    skipped: bool = False,
    token_until: int = 0,
    open_s: float = 0.0,
    size: int = 0,
) -> TaskReport:
    """What the task answers to the driver. In a repair every task takes part in the new round,
    also those that only look on."""
    return TaskReport(
        partition=task.partition,
        batch=task.batch,
        round=plan.round_of(task.batch),
        skipped=skipped,
        query_id=task.query_id,
        generation=plan.generation,
        end_txn_version=plan.end_txn_version,
        token_from=plan.token_from,
        rows=rows,
        digest=digest,
        participant=participant,
        committed=committed,
        torn=plan.torn_at(task.batch) if task.partition == 0 else None,
        checkpoint=task.checkpoint,
        coordinator=plan.coordinator,
        began=plan.began,
        planned=plan.planned.get(task.batch),
        token_until=token_until,
        open_s=open_s,
        size=size,
        aborted=plan.aborted,
        run=task.run,
    )
