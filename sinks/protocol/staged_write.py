"""The executor's part of a batch whose rows wait beside their target: S2 to S5.

Where rows go to a topic too, each goes into the task's Kafka transaction as well, and both have one
decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ...core.crash_points import crash_point
from ...core.digest import Digest
from ...core.errors import SourceError, WriteFailed
from ...core.transaction import NO_TRANSACTION, Participant, Staged
from ...state.ledger.owner import check_owner
from ..batches.committable import TaskReport, WritePlan
from ..options import SinkOptions
from ..rows.fast import row_digest
from . import two_phase
from .two_phase import TaskIdentity

if TYPE_CHECKING:
    import pyarrow as pa


class Staging(Protocol):
    """What one attempt of a task stages. Its methods raise SourceError where the target is away."""

    staged: Staged | None  # once the target has all of it

    def through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches as a topic gets them, each staged on its way."""


@dataclass(frozen=True)
class Stager:
    """How rows are staged for one target. `label` goes into the rows' digest where there is no
    topic; `sent` makes the batches as a topic gets them, for a task that stages nothing; `begin` is
    of a task that stages its rows; `beside` stands for that of a batch which a topic does not get:
    none, if it gets all of it."""

    label: str
    sent: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    begin: Callable[[SinkOptions, WritePlan, TaskIdentity], Staging]
    beside: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None

    def noted(self, batches: Iterator[pa.RecordBatch], beside: Digest) -> Iterator[pa.RecordBatch]:
        """The same; what a topic does not get of them is added to `beside`."""
        for batch in batches:
            if self.beside is not None:
                # No topic has such a name
                beside.merge(Digest.of(*row_digest([self.beside(batch)], f"beside {self.label}")))
            yield batch


def write(
    options: SinkOptions,
    stager: Stager,
    plan: WritePlan,
    task: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
) -> TaskReport:
    """Stage one partition's rows.

    Runs on an executor, once an attempt. Reads `batches` to the end in any case. Raises WriteFailed
    (Spark tries again), SinkError for rows that the target does not take, Fenced, ForeignLedger.
    """
    beside = Digest()
    if options.topic is not None:
        batches = stager.noted(batches, beside)
    if not plan.must_write(task.batch, task.partition):
        if options.topic is not None:
            return two_phase.write(options, plan, task, stager.sent(batches), beside)
        check_owner(options, plan.owner, task.query_id)
        rows, digest = row_digest(stager.sent(batches), stager.label)
        skipped = plan.torn_at(task.batch) is None
        return two_phase.report(plan, task, rows, digest, skipped=skipped)
    check_owner(options, plan.owner, task.query_id)
    try:
        staging = stager.begin(options, plan, task)
        if options.topic is None:
            return _staged_alone(staging, stager.label, plan, task, batches)
        found = two_phase.write(options, plan, task, staging.through(batches), beside)
    except SourceError as error:  # what every request to the target raises
        raise WriteFailed(f"{task.name}: {error} Nothing of the batch is visible.") from None
    if found.participant is None:
        return found
    return replace(found, participant=replace(found.participant, staged=staging.staged))


def _staged_alone(
    staging: Staging,
    label: str,
    plan: WritePlan,
    task: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
) -> TaskReport:
    rows, digest = row_digest(staging.through(batches), label)
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
