"""The executor's part of a batch for a table: how its rows are staged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ..batches.committable import TaskReport, WritePlan
from ..options import TWO_PHASE, SinkOptions
from ..protocol import staged_write
from ..protocol.staged_write import Stager
from ..protocol.two_phase import TaskIdentity
from .preparing import TaskPrepared
from .staging import TaskStaging
from .table import TableTarget

if TYPE_CHECKING:
    import pyarrow as pa


def write(
    options: SinkOptions,
    target: TableTarget,
    plan: WritePlan,
    task: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
) -> TaskReport:
    """Stage, or prepare, one partition's rows. See `staged_write.write`."""

    def begin(options: SinkOptions, plan: WritePlan, task: TaskIdentity) -> TaskStaging:
        whose = (plan.generation, task.partition, task.task_attempt_id)
        if target.commit == TWO_PHASE:
            return TaskPrepared(target, plan.ledger_id, options.sink, whose, task)
        return TaskStaging(target, plan.ledger_id, options.sink, whose)

    stager = Stager(target.table, partial(map, target.sent), begin, target.beside)
    return staged_write.write(options, stager, plan, task, batches)
