"""What stream writers with a ledger share: S1 when they are pickled, S6 to S8 in `commit`."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage

from ..core import build
from ..core.errors import SinkError, Undecided
from ..core.process import task_slots
from ..core.process.moment import Moment
from ..sinks.batches.committable import TaskReport, WritePlan
from ..sinks.options import SinkOptions
from .one_build import OneBuild
from .pickling import tells_errors
from .spark_versions import StreamArrowWriter

if TYPE_CHECKING:
    from ..sinks.protocol.two_phase import TaskIdentity

log = logging.getLogger(__name__)


@dataclass
class Report(WriterCommitMessage):
    """A task's message to the driver. `task` is None under the weaker guarantees. `ran`: when, for
    the source (`core/process/task_slots.py`). The others are for `eo_kafka.progress`: what S1 took,
    and how many records a task of the direct lane read; but for `build`."""

    task: Any = None
    ran: task_slots.Span | None = None
    planned_ms: float = 0.0
    records_read: int | None = None
    build: str = ""  # of the task; an older version says none


class LedgerWriter(OneBuild, StreamArrowWriter):
    """One micro-batch. Spark makes a new writer for planning, for `commit` and for `abort`."""

    _began: Moment  # of the task, where one runs

    def __init__(self, options: SinkOptions, batch: tuple[str, int] | None = None) -> None:
        """`batch`: query id and number, where Spark does not tell the tasks."""
        # Who writes is known before S1, then: another's ledger is refused without a fence.
        self._options = replace(options, query_id=batch[0]) if batch else options
        self._batch = batch
        self._run = ""  # which start of the query it is, where the task may not be told
        self._plan: WritePlan | None = None
        self._planned_ms = 0.0

    @property
    def options(self) -> SinkOptions:
        """As checked."""
        return self._options

    def of_foreach_batch(self, run: str) -> None:
        """Said before S1 of a writer that a function of foreachBatch calls, or not, in this `run`
        of its query: the function may have set a job group of its own."""
        self._run = run
        self._options = replace(self._options, may_pass_batches=True)

    @tells_errors
    def __getstate__(self) -> dict[str, Any]:
        """S1 runs here: being pickled for the tasks is the one thing that happens to a writer
        before a batch and never before `commit` or `abort`. Spark pickles it more than once."""
        if not self._options.exactly_once:
            from ..sinks.protocol.preflight import check_output

            check_output(self._options)
        elif self._plan is None:
            from ..sinks.protocol import driver_memory
            from ..sinks.protocol.preflight import with_allowed_timeout
            from ..sinks.protocol.recovery import make_plan

            began = time.perf_counter()
            self._options = with_allowed_timeout(self._options)
            self._plan = make_plan(self._options)
            self._planned_ms = (time.perf_counter() - began) * 1000
            driver_memory.begin(self._options, self._plan.generation)
        return self.__dict__.copy()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """S6 to S8, on the driver, once a batch, or again after a failure."""
        told = [message for message in messages if isinstance(message, Report)]
        task_slots.learn([one.ran for one in told if one.ran])
        if self._options.exactly_once:
            from ..sinks.protocol import batch_figures, committer, driver_memory

            build.check_tasks([one.build for one in told])
            done = all_tasks(messages)
            course = committer.commit(self._options, done, batchId)
            driver_memory.end(self._options)
            planned = [one.planned_ms for one in told]
            read = [one.records_read for one in told if one.records_read is not None]
            batch_figures.leave(self._options, done, course, planned, read)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when a task or `commit` failed, or the query was stopped in the middle of
        a batch. It must not hide why."""
        if self._options.exactly_once:
            from ..core.patience import in_a_hurry
            from ..sinks.protocol import committer, driver_memory

            planned = self._plan.generation if self._plan else None
            try:
                generation = planned or driver_memory.remembered(self._options)
                with in_a_hurry():
                    committer.abort(self._options, _reports(messages), generation)
                driver_memory.end(self._options)
            except Exception as error:
                log.warning("Batch %d: the next start cleans up (%s).", batchId, error)

    def _context(self) -> Any:
        """Spark's context of the task that begins now. Executor. Raises SinkError outside one."""
        self._began = Moment.now()
        return task_context()

    def _reported(self, task: TaskReport | None) -> Report:
        """What a task answers that has ended. Executor."""
        ran = task_slots.Span.since(self._began)
        return Report(task, ran, self._planned_ms, build=build.mark())

    def _task(self, context: Any) -> TaskIdentity:
        """Which attempt of which task this is. Executor."""
        from ..sinks.protocol.two_phase import TaskIdentity

        query_id, batch = self._batch or told_batch(context, "; exactly-once needs that.")
        return TaskIdentity(
            query_id=query_id,
            batch=batch,
            partition=context.partitionId(),
            task_attempt_id=context.taskAttemptId(),
            checkpoint=self._options.checkpoint or _default_checkpoint(self._options, context),
            follows=context.attemptNumber() > 0,
            run=self._run or context.getLocalProperty("spark.jobGroup.id") or "",  # Spark's runId
        )


def task_context() -> Any:
    """Spark's context of this task. Raises SinkError outside one."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        raise SinkError("write() was called outside a Spark task.")
    return context


def told_batch(context: Any, needed_for: str) -> tuple[str, int]:
    """The query's id and the batch's number, as Spark tells a stream's tasks. Raises SinkError,
    with the end of a sentence that says what they are needed for."""
    query_id = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    if query_id is None or batch is None:
        raise SinkError(
            "This Spark does not tell its tasks which query and batch they belong to (Spark "
            f"Connect does not inside foreachBatch){needed_for} Nothing was written."
        )
    return query_id, int(batch)


def all_tasks(messages: Sequence[WriterCommitMessage | None]) -> list[Any]:
    """What the tasks of a write reported that has succeeded, one of each partition. Driver. Raises
    Undecided where one said nothing: nobody would miss its rows."""
    tasks = _reports(messages)
    told = {one.partition for one in tasks if one is not None}
    if lacking := sorted(set(range(len(tasks))) - told):
        raise Undecided(
            f"Spark says that all {len(tasks)} tasks have written, and brings no report of "
            f"partitions {lacking[:20]}. Nothing was decided. Start the query, or the write, "
            "again."
        )
    return [one for one in tasks if one is not None]


def _default_checkpoint(options: SinkOptions, context: Any) -> str | None:
    """Where Spark puts the checkpoint of a named query without option `checkpointLocation`."""
    root = context.getLocalProperty("spark.sql.streaming.checkpointLocation")
    return f"{root.rstrip('/')}/{options.query_name}" if root and options.query_name else None


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport | None]:
    return [message.task if isinstance(message, Report) else None for message in messages]
