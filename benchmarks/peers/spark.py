"""eo-kafka and Spark's own connector as contenders, in the one Spark session of the benchmark."""

from __future__ import annotations

from dataclasses import dataclass, replace

from benchmarks.peers.settings import OF_SPARK
from benchmarks.queries import Contender, Runner
from benchmarks.workload import Workload

BATCHES = 5  # of a copy: each takes a second or more, as long as the others' commit interval


@dataclass(frozen=True)
class SparkCopy:
    """A query that is triggered as soon as the batch before is done."""

    name: str
    runner: Runner
    contender: Contender
    is_slow: bool = False

    def copy(self, workload: Workload, output: str) -> None:
        """Raises WrongResult, and what Spark raises."""
        sink = {**self.contender.sink_options, **OF_SPARK}
        told = replace(self.contender, sink_options=sink)
        self.runner.copy_into(told, workload, BATCHES, output)
