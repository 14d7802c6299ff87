"""What the parts of one demo run share: where things are, and the processes that use them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil  # type: ignore[import-untyped]
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

HERE = Path(__file__).parent
PARTITIONS = 3
PER_BATCH = 16_000
DIE_SECONDS = 10.0  # what is left of a job after a kill may take so long to end by itself


@dataclass(frozen=True)
class Run:
    """The names of one run. `id` keeps it apart from earlier ones on the same Kafka."""

    id: str
    format: str
    bootstrap_servers: str
    folder: Path
    limit: int | None
    seconds: float  # how long the producer plays
    database: str = ""  # URL of the PostgreSQL that has the table, if there is one

    @property
    def input(self) -> str:
        """The topic of flights."""
        return f"flights-{self.id}"

    @property
    def output(self) -> str:
        """The topic of delays by carrier and hour."""
        return f"delays-{self.id}"

    @property
    def table(self) -> str:
        """The table of the same."""
        return f"delays_{self.id.replace('-', '_')}"

    @property
    def job_name(self) -> str:
        """The job's name, under which eo-kafka keeps its ledger."""
        return f"flight-delays-{self.id}"

    @property
    def checkpoint(self) -> Path:
        """Spark's checkpointLocation."""
        return self.folder / "checkpoint"

    def create_topics(self) -> None:
        """Make both topics."""
        # Of its own accord the client tells of a last event on closing: warnings only.
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 4})
        topics = [NewTopic(name, num_partitions=PARTITIONS) for name in (self.input, self.output)]
        for created in admin.create_topics(topics).values():
            created.result(timeout=30)


@contextmanager
def producer(run: Run) -> Iterator[subprocess.Popen[bytes]]:
    """The producer while it plays."""
    words: list[Any] = ["--topic", run.input, "--partitions", PARTITIONS, "--seconds", run.seconds]
    if run.limit is not None:
        words += ["--limit", run.limit]
    process = _start(run, "producer", words)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Job:
    """The streaming job as a supervisor sees it: processes that it starts again when they die."""

    def __init__(self, run: Run, last_window_end: pd.Timestamp) -> None:
        self._run = run
        self._until = last_window_end
        self._progress = run.folder / "progress.jsonl"
        self._tree: list[psutil.Process] = []
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self) -> None:
        """Start a driver on the checkpoint."""
        words: list[Any] = ["--format", self._run.format, "--input", self._run.input]
        words += ["--output", self._run.output, "--job-name", self._run.job_name]
        words += ["--checkpoint", self._run.checkpoint, "--progress", self._progress]
        words += ["--per-batch", PER_BATCH, "--until", self._until.isoformat()]
        if self._run.database:
            words += ["--url", self._run.database, "--table", self._run.table]
        self._process = _start(self._run, "job", words)
        self.starts += 1

    @property
    def exit_code(self) -> int | None:
        """None while the driver runs; 0 when all windows are written."""
        return self._process.poll() if self._process else None

    def processes(self) -> list[psutil.Process]:
        """The driver, then the JVM and the Python workers under it. Empty once it is dead."""
        try:
            driver = psutil.Process(self._process.pid if self._process else -1)
            return [driver, *driver.children(recursive=True)]
        except (psutil.NoSuchProcess, ValueError):
            return []

    def clear(self, tree: list[psutil.Process]) -> None:
        """Wait until the processes are gone; end those that stay."""
        if self._process is None:
            return
        try:  # not by psutil, which would take the exit code away from us
            self._process.wait(DIE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        awaited = [process for process in tree[1:] if not _watches_driver(process)]
        _, left = psutil.wait_procs(awaited, timeout=DIE_SECONDS)
        for process in left:
            process.kill()

    def progress(self) -> list[dict[str, Any]]:
        """The micro-batches so far; see `facts_of` in job.py."""
        if not self._progress.exists():
            return []
        lines = self._progress.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n") and line.startswith("{")]

    def close(self) -> None:
        """End whatever runs."""
        tree = self.processes()
        for process in tree:
            process.kill()
        self.clear(tree)


def _watches_driver(process: psutil.Process) -> bool:
    """Whether it is eo-kafka's process beside the driver. After a kill it waits half a minute for
    Spark's own end, which does not come, and then ends: no supervisor would wait for that."""
    try:
        return "eo_kafka.sinks.protocol.after_driver" in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def _start(run: Run, name: str, words: list[Any]) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(HERE / f"{name}.py")]
    command += ["--bootstrap-servers", run.bootstrap_servers, *map(str, words)]
    with (run.folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
