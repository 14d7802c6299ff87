"""Quix Streams as a contender: one process a core, in one consumer group."""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from benchmarks.peers.environments import own
from benchmarks.peers.settings import COMMIT_INTERVAL_S, PRODUCER
from benchmarks.queries import WrongResult
from benchmarks.session import CORES
from benchmarks.workload import Workload

_JOB = Path(__file__).with_name("quix_job.py")
_TIMEOUT_S = 600
_POLL_S = 0.2


@dataclass(frozen=True)
class QuixCopy:
    """`app.dataframe(source).to_topic(sink)`, exactly once. `python` is Quix's environment's."""

    name: str
    python: Path
    servers: str
    is_slow: bool = True

    def copy(self, workload: Workload, output: str) -> None:
        """Runs until the group's committed offsets, which its transactions move with the records,
        have reached the end of the input. Raises WrongResult."""
        job = {
            "servers": self.servers,
            "topic": workload.topic,
            "output": output,
            "commit_interval": COMMIT_INTERVAL_S,
            "settings": PRODUCER,
        }
        with ExitStack() as running:
            processes = [running.enter_context(_process(self.python, job)) for _ in range(CORES)]
            self._wait(workload, output, processes)

    def _wait(
        self,
        workload: Workload,
        group: str,
        processes: list[tuple[subprocess.Popen[bytes], IO[bytes]]],
    ) -> None:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group})
        parts = [TopicPartition(workload.topic, number) for number in range(workload.partitions)]
        ends = [consumer.get_watermark_offsets(one, timeout=30)[1] for one in parts]
        deadline = time.monotonic() + _TIMEOUT_S
        try:
            while [one.offset for one in consumer.committed(parts, timeout=30)] != ends:
                for process, errors in processes:
                    if process.poll() is not None:
                        errors.seek(0)
                        said = errors.read().decode(errors="replace")[-1500:]
                        raise WrongResult(f"Quix Streams ended by itself: {said}")
                if time.monotonic() > deadline:
                    raise WrongResult(f"Quix Streams was not done within {_TIMEOUT_S} s.")
                time.sleep(_POLL_S)
        finally:
            consumer.close()


@contextmanager
def _process(
    python: Path, job: Mapping[str, object]
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """One running application, and the file with what it says; ended with the block."""
    with (
        tempfile.TemporaryDirectory(prefix="eo-kafka-bench-quix-") as state,
        tempfile.TemporaryFile() as errors,
    ):
        command = [str(python), str(_JOB), json.dumps({**job, "state": state})]
        process = subprocess.Popen(command, stderr=errors, stdout=errors, env=own())
        try:
            yield process, errors
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
