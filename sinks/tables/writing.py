"""The executor's part of a batch for a table: how its rows are staged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..options import SinkOptions
from ..protocol import staged_write
from ..protocol.committable import TaskReport, WritePlan
from ..protocol.two_phase import TaskIdentity
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
    """Stage one partition's rows. See `staged_write.write`."""
    return staged_write.write(options, _Stager(target), plan, task, batches)


class _Stager:
    def __init__(self, target: TableTarget) -> None:
        self._target = target
        self.label = target.table

    def sent(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return map(self._target.sent, batches)

    def begin(self, options: SinkOptions, plan: WritePlan, task: TaskIdentity) -> TaskStaging:
        whose = (plan.generation, task.partition, task.task_attempt_id)
        return TaskStaging(self._target, plan.ledger_id, options.sink, whose)
