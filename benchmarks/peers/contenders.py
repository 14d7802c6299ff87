"""Who copies a topic: all contenders, and what the benchmark asks of one."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from benchmarks.peers.bare_copy import BareCopy
from benchmarks.peers.flink import Flink, FlinkCopy
from benchmarks.peers.quix import QuixCopy
from benchmarks.peers.settings import PRODUCER
from benchmarks.peers.spark import SparkCopy
from benchmarks.queries import DIRECT, EXACTLY_ONCE, JVM, Runner
from benchmarks.workload import Workload

EO_KAFKA = "eo-kafka"
OURS = "eo-kafka, exactly once"
LANE = "eo-kafka's direct lane, exactly once"
SPARK = "Spark's connector (JVM), at least once"
FLINK = "Flink SQL, exactly once"
QUIX = "Quix Streams, exactly once"
BARE_COPY = "bare librdkafka copy in C, in transactions"


class Copier(Protocol):
    """A system and its guarantee. One that `is_slow` gets a shorter topic."""

    @property
    def name(self) -> str: ...
    @property
    def is_slow(self) -> bool: ...

    def copy(self, workload: Workload, output: str) -> None:
        """Key and value of all records into `output`, which exists; returns when all is committed.

        Raises WrongResult when the system fails.
        """


def copiers(
    runner: Runner, flinks: Flink, quix_python: Path, bare_copy: Path, servers: str
) -> list[Copier]:
    """All of them."""
    return [
        SparkCopy(OURS, runner, EXACTLY_ONCE),
        SparkCopy(LANE, runner, DIRECT),
        SparkCopy(SPARK, runner, JVM),
        FlinkCopy(FLINK, flinks, "exactly-once", PRODUCER),
        FlinkCopy("Flink SQL, at least once", flinks, "at-least-once", PRODUCER),
        FlinkCopy("Flink SQL, exactly once, its own defaults", flinks, "exactly-once", {}),
        QuixCopy(QUIX, quix_python, servers),
        BareCopy(BARE_COPY, bare_copy, servers),
    ]
