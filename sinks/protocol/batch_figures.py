"""Leaves figures of a query's last batches where the user's process finds them: where time went.

The steps of a batch run in processes that Spark starts on the driver; they and the user's process
share the driver's local directory. `eo_kafka.progress` reads there. All of it is written after S8,
and nothing reads it to decide anything.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from ...core.process.driver_directory import driver_directory
from ...state.ledger.blob_names import SnapshotHead
from ..batches.committable import TaskReport
from ..options import SinkOptions
from . import driver_memory

log = logging.getLogger(__name__)

MOST = 64 << 10  # bytes, of a few hundred batches: a listener may hear of one much later
PLAN, TASKS, DECIDE, SNAPSHOT = "plan", "tasks", "decide", "snapshot"
FINISH, DONE = "finish", "done"


@dataclass(frozen=True)
class SinkProgress:
    """What one batch was to one job's sink. `durationMs` has no step twice: `plan` (S1), `tasks`
    (S2 to S5, with Spark's scheduling), `decide` (S6), `snapshot` (its part of S6), `finish` (S7),
    `done` (S8). `openTransactions`: how many waited for the decision. The snapshot's files and
    bytes, and the bytes of them that were new, are None where the batch took none.
    `numOutputRows`: how many rows its tasks wrote or, in a batch that runs again, found written.
    `numInputRecords`: how many records the tasks of the direct lane read; None elsewhere.
    `numOutputBytes`: of the keys and values that its tasks sent to topics, before compression.
    `abortedTransactions`: how many transactions S1 and S7 found open, and ended, that nothing had
    decided: of drivers and attempts that died."""

    jobName: str
    batchId: int
    durationMs: dict[str, float]
    openTransactions: int
    snapshotFiles: int | None = None
    snapshotBytes: int | None = None
    snapshotSentBytes: int | None = None
    numOutputRows: int | None = None
    numInputRecords: int | None = None
    numOutputBytes: int | None = None
    abortedTransactions: int | None = None


class Course:
    """What `commit` notes on its way: how long each step took, and the snapshot it took."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self.snapshot: SnapshotHead | None = None
        self.aborted = 0  # transactions that were open, and that nothing had decided
        self._began = self._since = time.perf_counter()

    def age_s(self) -> float:
        """How long ago `commit` began."""
        return time.perf_counter() - self._began

    def lap(self, step: str) -> None:
        """The time since the last lap was `step`'s."""
        now = time.perf_counter()
        self.ms[step] = self.ms.get(step, 0.0) + (now - self._since) * 1000
        self._since = now


def leave(
    options: SinkOptions,
    reports: Sequence[TaskReport],
    course: Course,
    planned_ms: Sequence[float],
    records_read: Sequence[int] = (),
) -> None:
    """Leave the figures of a batch that is DONE; `planned_ms`: what S1 took, as each task was told;
    `records_read`: by tasks of the direct lane. Driver, once a batch. It never raises: the batch is
    written."""
    try:
        head, directory = course.snapshot, driver_directory()
        if not directory:
            return
        before = {PLAN: max(planned_ms), **_waited(reports[0], course)}
        figures = SinkProgress(
            jobName=options.job_and_ledger[0],
            batchId=reports[0].batch,
            durationMs={step: round(ms, 1) for step, ms in {**before, **course.ms}.items()},
            openTransactions=sum(
                report.prepared is not None and report.prepared.has_transaction
                for report in reports
            ),
            snapshotFiles=head.files if head else None,
            snapshotBytes=head.size if head else None,
            snapshotSentBytes=head.sent if head else None,
            numOutputRows=sum(report.rows for report in reports),
            numInputRecords=sum(records_read) if records_read else None,
            numOutputBytes=sum(report.size for report in reports),
            abortedTransactions=reports[0].aborted + course.aborted,
        )
        whose = driver_memory.whose(options)
        path = Path(directory, f"{_of_query(reports[0].query_id)}-{whose}")
        with path.open("a") as file:  # a new file in place of the old one takes a millisecond
            file.write(json.dumps(asdict(figures)) + "\n")
            size = file.tell()
        if size > MOST:
            _shorten(path)
    except Exception as error:
        log.info("No figures of this batch for eo_kafka.progress: %s", error)


def of_batch(directory: str, query_id: str, batch: int) -> Iterator[SinkProgress]:
    """What the jobs of a query left of a batch; nothing where it is not known, or not any more."""
    for path in sorted(Path(directory).glob(f"{_of_query(query_id)}-*")):
        found = filter(None, map(_figures, reversed(_lines(path))))
        yield from islice((one for one in found if one.batchId == batch), 1)


def _waited(report: TaskReport, course: Course) -> dict[str, float]:
    """From the end of S1 to the beginning of `commit`, which are in two processes."""
    age_s = report.began.age_s() if report.began else None
    return {} if age_s is None else {TASKS: (age_s - course.age_s()) * 1000}


def _shorten(path: Path) -> None:
    lines = _lines(path)
    written = path.with_name(f".{path.name}")
    written.write_text("".join(lines[len(lines) // 2 :]))
    written.replace(path)  # whoever reads sees the old or the new, and nothing between


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines(keepends=True)


def _figures(line: str) -> SinkProgress | None:
    with suppress(ValueError, TypeError):
        return SinkProgress(**json.loads(line))
    return None


def _of_query(query_id: str) -> str:
    return f"eo-kafka-batches-{hashlib.sha256(query_id.encode()).hexdigest()[:16]}"
