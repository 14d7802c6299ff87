"""The executor's part of a batch for a map with `commit=two-phase`: how its rows are staged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..batches.committable import TaskReport, WritePlan
from ..options import SinkOptions
from ..protocol import staged_write
from ..protocol.staged_write import Stager
from ..protocol.two_phase import TaskIdentity
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
    """Stage one partition's entries: a key and a value each, null to remove it. See
    `staged_write.write`."""

    def begin(options: SinkOptions, plan: WritePlan, task: TaskIdentity) -> TaskStaging:
        whose = (options.sink, plan.generation, task.batch, plan.round_of(task.batch))
        first = ChunkKey(*whose, task.partition, task.task_attempt_id, 0)
        return TaskStaging(Staging(target, options.job_and_ledger[0]), first)

    stager = Stager(target.map, lambda entries: entries, begin)
    return staged_write.write(options, stager, plan, task, batches)
