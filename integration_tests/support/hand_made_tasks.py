"""Tasks of a job, run by the sink's own code in the test's process: what Spark would add is who
starts them, how often, and when it gives up on one."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from eo_kafka.core.transaction import Described
from eo_kafka.sinks.batches.committable import TaskReport, WritePlan
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, one_phase, two_phase
from eo_kafka.sinks.protocol.batch_figures import Course
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.testing.processes import wait_until
from harness import control_plane


def batch_of(*values: bytes, topic: str | None = None) -> pa.RecordBatch:
    columns = {"value": list(values)}
    return pa.RecordBatch.from_pydict(
        {**columns, "topic": [topic] * len(values)} if topic else columns
    )


@dataclass
class HandMadeTasks:
    """A job without Spark. `plan` is S1's for the batch at hand."""

    servers: str
    topic: str | None
    commit_option: str = "two-phase"
    query: str = field(default_factory=lambda: str(uuid.uuid4()))
    name: str = field(default_factory=lambda: f"tasks-{uuid.uuid4().hex[:8]}")

    def __post_init__(self) -> None:
        given = {
            "kafka.bootstrap.servers": self.servers,
            "jobName": self.name,
            "commit": self.commit_option,
        }
        if self.topic:
            given["topic"] = self.topic
        self.options = SinkOptions.parse(given, streaming=True)

    def plan(self) -> WritePlan:
        return make_plan(self.options)

    def write(
        self,
        plan: WritePlan,
        batches: Iterator[pa.RecordBatch],
        *,
        batch: int = 0,
        partition: int = 0,
        attempt: int = 0,
    ) -> TaskReport:
        task = TaskIdentity(self.query, batch, partition, attempt)
        write = one_phase.write if self.options.one_phase else two_phase.write
        return write(self.options, plan, task, batches)

    def commit(self, *reports: TaskReport) -> Course:
        return committer.commit(self.options, reports, reports[0].batch)

    def open(self) -> list[Described]:
        ids = self.options.ids
        with control_plane(self.servers) as control:
            return control.open_transactions(ids.task_pattern(), ids.is_task)


class StuckTask:
    """A task that has sent its first rows and gets no more: as one that is lost, to the others."""

    def __init__(self, run: Callable[[Iterator[pa.RecordBatch]], object], *values: bytes) -> None:
        self._values = values
        self._go = threading.Event()
        self.error: Exception | None = None
        self.report: object = None
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()

    def _run(self, run: Callable[[Iterator[pa.RecordBatch]], object]) -> None:
        try:
            self.report = run(self._batches())
        except Exception as error:
            self.error = error

    def _batches(self) -> Iterator[pa.RecordBatch]:
        yield batch_of(*self._values)
        self._go.wait(120)

    def end(self) -> None:
        """The last row was the last."""
        self._go.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def wait_open(job: HandMadeTasks, count: int) -> None:
    wait_until(lambda: len(job.open()) == count, f"{count} transactions are open")
