"""The bare transactional copy as a contender: what librdkafka alone leaves possible."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.bare_programs import ran
from benchmarks.peers.read_path import settings
from benchmarks.peers.settings import PRODUCER, TRANSACTION_TIMEOUT_MS
from benchmarks.workload import Workload

_TIMEOUT_S = 300
# It is so quick that a topic that takes the others long gives it two commits at one a second.
_COMMIT_INTERVAL_S = 0.25


@dataclass(frozen=True)
class BareCopy:
    """`program` is bare_copy.c's."""

    name: str
    program: Path
    servers: str
    is_slow: bool = False

    def copy(self, workload: Workload, output: str) -> None:
        """Raises WrongResult."""
        consumers = settings(self.servers, workload)
        producers = {
            "bootstrap.servers": self.servers,
            **PRODUCER,
            "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
        }
        told = (str(workload.partitions), str(_COMMIT_INTERVAL_S))
        given = [f"{name}={value}" for name, value in consumers.items()]
        written = [f"{name}={value}" for name, value in producers.items()]
        ran([str(self.program), workload.topic, output, *told, *given, "--", *written], _TIMEOUT_S)
