"""Flink SQL as a contender: one JVM for all its jobs, a mini cluster of `CORES` slots."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.peers.environments import Environments, own
from benchmarks.peers.settings import COMMIT_INTERVAL_S, TRANSACTION_TIMEOUT_MS
from benchmarks.queries import WrongResult
from benchmarks.session import CORES
from benchmarks.workload import Workload
from eo_kafka.broker.java import find_java

_JOB = Path(__file__).with_name("flink_job.py")
_TIMEOUT_S = 600
_ANSWER = "answer: "  # how the lines begin that are meant for us
IN_TRANSACTIONS = {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS)}
_HEAP = "-Xmx2g"  # as much as the Spark session has


@dataclass(frozen=True)
class Statement:
    """`query` over a table `source`, into another one. `options` are of both tables, `sink_options`
    of the latter."""

    options: Mapping[str, str]
    read: str  # columns and their types
    written: str
    query: str
    sink_options: Mapping[str, str] = field(default_factory=dict)


COPY = Statement(
    {
        "key.format": "raw",
        "key.fields": "k",
        "value.format": "raw",
        "value.fields-include": "EXCEPT_KEY",
    },
    read="k BYTES, v BYTES",
    written="k BYTES, v BYTES",
    query="SELECT k, v FROM source",
)


@dataclass
class Flink:
    """A Flink that waits for jobs. It uses no processor between them."""

    servers: str
    process: subprocess.Popen[str]
    errors: IO[str]

    def run(
        self,
        topic: str,
        output: str,
        guarantee: str,
        settings: Mapping[str, str],
        statement: Statement = COPY,
    ) -> None:
        """One job, to its end. Raises WrongResult when it fails."""
        job = self._job(topic, output, statement)
        self._ask({**job, "guarantee": guarantee, "settings": settings})

    @contextmanager
    def running(self, topic: str, output: str, interval: str) -> Iterator[None]:
        """An exactly-once job with checkpoints in this `interval`, from when it runs until it is
        cancelled. Raises WrongResult when it fails."""
        told = {"guarantee": "exactly-once", "settings": IN_TRANSACTIONS, "interval": interval}
        self._ask({**self._job(topic, output, COPY), **told})
        try:
            yield
        finally:
            self._ask({"cancel": True})

    def _job(self, topic: str, output: str, statement: Statement) -> dict[str, object]:
        named = {"servers": self.servers, "topic": topic, "output": output}
        return {**named, **asdict(statement)}

    def _ask(self, request: Mapping[str, object]) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        watchdog = threading.Timer(_TIMEOUT_S, self.process.kill)
        watchdog.start()
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            answers = (line for line in self.process.stdout if line.startswith(_ANSWER))
            answer = next(answers, "").removeprefix(_ANSWER).strip()
        except BrokenPipeError:
            answer = ""
        finally:
            watchdog.cancel()
        if answer != "done":
            reason = (
                answer or f"its process ended, or had to be after {_TIMEOUT_S} s: {self._said()}"
            )
            raise WrongResult(f"Flink's job failed: {reason}")

    def _said(self) -> str:
        self.errors.seek(0)
        return self.errors.read()[-1500:]


@contextmanager
def flink(environments: Environments, servers: str, more: Sequence[Path] = ()) -> Iterator[Flink]:
    """Started, and ended with the block; `more` jars for the formats of its tables."""
    jars = (f"file://{jar}" for jar in (*environments.flink_jars, *more))
    configuration = {
        "pipeline.jars": ";".join(jars),
        "parallelism.default": str(CORES),
        "execution.checkpointing.interval": f"{COMMIT_INTERVAL_S} s",
        # a client thread that outlives its job by a moment would be told off on the terminal
        "classloader.check-leaked-classloader": "false",
        "pipeline.object-reuse": "true",  # no copies between operators: quicker, and safe here
    }
    with (
        tempfile.TemporaryDirectory(prefix="eo-kafka-bench-flink-") as logs,
        tempfile.TemporaryFile("w+") as errors,
    ):
        process = subprocess.Popen(
            [str(environments.flink), str(_JOB), json.dumps(configuration)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={
                **own(),
                "JVM_ARGS": _HEAP,
                "FLINK_LOG_DIR": logs,
                "JAVA_HOME": str(find_java().resolve().parent.parent),
            },
        )
        try:
            yield Flink(servers, process, errors)
        finally:
            assert process.stdin is not None
            process.stdin.close()  # its loop over the lines ends
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass(frozen=True)
class FlinkCopy:
    """`INSERT INTO ... SELECT` with one of the sink's guarantees and these producer settings."""

    name: str
    flink: Flink
    guarantee: str
    settings: Mapping[str, str]
    is_slow: bool = False

    def copy(self, workload: Workload, output: str) -> None:
        """Raises WrongResult."""
        settings = dict(self.settings)
        if self.guarantee == "exactly-once":
            settings |= IN_TRANSACTIONS
        self.flink.run(workload.topic, output, self.guarantee, settings)
