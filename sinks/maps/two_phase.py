"""The executor's part of a batch for a map with `commit=two-phase`: S2 to S5.

Rows are staged beside the map. Where they go to a topic too, each goes into the task's Kafka
transaction as well, and both have one decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from ...core.crash_points import crash_point
from ...core.errors import SourceError, WriteFailed
from ...core.transaction import NO_TRANSACTION, Participant
from ...state.ledger.coordinator import check_owner
from ..options import SinkOptions
from ..protocol import two_phase
from ..protocol.committable import TaskReport, WritePlan
from ..protocol.two_phase import TaskIdentity
from ..rows.fast import row_digest
from .staging import ChunkKey, MapTarget, Staging, TaskStaging

if TYPE_CHECKING:
    import pyarrow as pa


def write(
    options: SinkOptions,
    target: MapTarget,
    plan: WritePlan,
    task: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
) -> TaskReport:
    """Stage one partition's entries: a key and a value each, null to remove it.

    Runs on an executor, once an attempt. Reads `batches` to the end in any case. Raises WriteFailed
    (Spark tries again), Fenced, ForeignLedger.
    """
    if not plan.must_write(task.batch, task.partition):
        if options.topic is not None:
            return two_phase.write(options, plan, task, batches)
        check_owner(options, plan.owner, task.query_id)
        rows, digest = row_digest(batches, target.map)
        skipped = plan.torn_at(task.batch) is None
        return two_phase.report(plan, task, rows, digest, skipped=skipped)
    check_owner(options, plan.owner, task.query_id)
    try:
        staging = _staging(options, target, plan, task)
        if options.topic is None:
            return _staged_alone(staging, target, plan, task, batches)
        found = two_phase.write(options, plan, task, staging.through(batches))
    except SourceError as error:  # what every request to the members raises
        raise WriteFailed(f"{task.name}: {error} Nothing of the batch is visible.") from None
    if found.participant is None:
        return found
    return replace(found, participant=replace(found.participant, staged=staging.staged))


def _staging(
    options: SinkOptions, target: MapTarget, plan: WritePlan, task: TaskIdentity
) -> TaskStaging:
    whose = (options.sink, plan.generation, task.batch, plan.round_of(task.batch))
    first = ChunkKey(*whose, task.partition, task.task_attempt_id, 0)
    return TaskStaging(Staging(target, options.job_and_ledger[0]), first)


def _staged_alone(
    staging: TaskStaging,
    target: MapTarget,
    plan: WritePlan,
    task: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
) -> TaskReport:
    rows, digest = row_digest(staging.through(batches), target.map)
    if not rows:
        return two_phase.report(plan, task, rows, digest)
    participant = Participant(
        partition=task.partition,
        round=plan.round_of(task.batch),
        generation=plan.generation,
        identity=NO_TRANSACTION,
        rows=rows,
        digest=digest,
        staged=staging.staged,
    )
    crash_point("S5.prepared")
    return two_phase.report(plan, task, rows, digest, participant)
