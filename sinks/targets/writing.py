"""The executor's part of a batch for a target of the user's own: how its rows are staged."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ...core.crash_points import crash_point
from ...core.errors import SinkError
from ...core.transaction import Staged
from ..batches.committable import TaskReport, WritePlan
from ..options import SinkOptions
from ..protocol import staged_write
from ..protocol.staged_write import Stager
from ..protocol.two_phase import TaskIdentity
from .custom import CustomTarget, name_of, told, writer_of

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES = 32 << 20  # of rows, in Arrow
_LABEL = "eo-target"  # in digests; not the class's name, which may change between two tries


def write(
    options: SinkOptions,
    target: CustomTarget,
    plan: WritePlan,
    task: TaskIdentity,
    batches: Iterator[pa.RecordBatch],
) -> TaskReport:
    """Stage one partition's rows. See `staged_write.write`."""

    def begin(options: SinkOptions, plan: WritePlan, task: TaskIdentity) -> TaskStaging:
        writer = writer_of(options.job_and_ledger[0], options.sink)
        whose = (plan.generation, task.partition, task.task_attempt_id)
        name = name_of(writer, plan.ledger_id, *whose)
        return TaskStaging(target, name, task)

    stager = Stager(_LABEL, partial(map, target.sent), begin, target.beside)
    return staged_write.write(options, stager, plan, task, batches)


class TaskStaging:
    """What one attempt of a task stages."""

    def __init__(self, target: CustomTarget, name: str, task: TaskIdentity) -> None:
        self._target, self._name, self._task = target, name, task
        self._waiting: list[pa.RecordBatch] = []
        self._chunks = 0
        self.staged: Staged | None = None  # once the target has all of it

    def through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows as a topic gets them, or what stands for them in a digest; at their end the
        target has all rows."""
        size = 0
        for batch in batches:
            if batch.num_rows:
                mine = batch.select(list(self._target.columns))
                self._waiting.append(mine)
                size += mine.nbytes
            if size >= CHUNK_BYTES:
                self._stage()
                size = 0
            yield self._target.sent(batch)
        if self._waiting:
            self._stage()
        if self._chunks:
            place = self._target.place
            attempt = self._task.task_attempt_id
            self.staged = Staged(place, self._name, attempt, self._chunks)

    def _stage(self) -> None:
        import pyarrow as pa

        place = self._target.place
        try:
            with told(place):
                made, rows = self._target.made(), pa.Table.from_batches(self._waiting)
                made.stage(self._name, self._chunks, rows)
        except SinkError as error:  # of rows that it can never take
            said = f"{self._task.name}: {place}: {error} Nothing of the batch is visible."
            # A class of the user's own may take other arguments, and nobody else knows it
            kind = next(k for k in type(error).__mro__ if k.__module__ == SinkError.__module__)
            raise kind(said) from None
        self._chunks += 1
        self._waiting = []
        crash_point("target.while_staging")
