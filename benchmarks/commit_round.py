"""What a commit costs by the number of tasks and brokers: up to 1,000 tasks on 10 real brokers.

    python -m benchmarks.commit_round [--nodes 1,3,10] [--tasks 1,10,50,200,1000] [--rounds 3]

Run it from the root of the repository. Each batch is run by the sink's own code, without Spark: the
tasks prepare one after the other, each a row, into up to 1,000 partitions; then `commit()` is
timed, and in it the requests that end the transactions. The brokers share this machine's cores, so
with many of them the times are upper bounds. The page goes to docs/benchmarks/commit_round.md.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import linear_regression, median
from textwrap import fill
from typing import Any
from unittest import mock

import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic

from eo_kafka.broker.embedded import cluster
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.clients.kafka.transactional_id import ATTEMPT_SLOTS, GENERATION_SLOTS
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.state.ledger.coordinator import Coordinator
from eo_kafka.state.ledger.topic_settings import MAX_MESSAGE_BYTES

PARTITIONS = 1000
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "commit_round.md"


@dataclass
class Round:
    """One batch. Seconds, and bytes of records."""

    plan: float = 0.0
    task: float = 0.0  # a task's part, the median: open, write, prepare
    commit: float = 0.0
    ending: float = 0.0  # of the commit: EndTxn for all, to the last answer
    requests: list[int] = field(default_factory=list)  # EndTxns in each wave
    decision_bytes: int = 0  # of its records in the ledger, before they are packed


@dataclass(frozen=True)
class Job:
    """A job whose tasks each write a row: to a partition of their own, up to PARTITIONS of them."""

    servers: str
    tasks: int
    name: str = field(default_factory=lambda: f"round-{uuid.uuid4().hex[:8]}")

    @property
    def options(self) -> SinkOptions:
        """As checked."""
        given = {
            "kafka.bootstrap.servers": self.servers,
            "kafka.transaction.timeout.ms": "900000",  # the tasks are not run side by side
            "topic": self.name,
            "jobName": self.name,
        }
        return SinkOptions.parse(given, streaming=True)

    def run(self, batch: int) -> Round:
        """S1 to S8."""
        found, began = Round(), time.monotonic()
        plan = make_plan(self.options)
        found.plan = time.monotonic() - began
        took, reports = [], []
        for number in range(self.tasks):
            began = time.monotonic()
            task = two_phase.TaskIdentity(self.name, batch, number, number)
            values = {"value": [b"row"], "partition": pa.array([number % PARTITIONS], pa.int32())}
            rows = iter([pa.RecordBatch.from_pydict(values)])
            reports.append(two_phase.write(self.options, plan, task, rows))
            took.append(time.monotonic() - began)
        found.task = median(took)
        with _watched(found):
            began = time.monotonic()
            committer.commit(self.options, reports, batch)
            found.commit = time.monotonic() - began
        return found


@contextmanager
def _watched(found: Round) -> Iterator[None]:
    """Note what the commit asks, as it does it."""
    end, append = ControlPlane.end, Coordinator.append

    def timed_end(self: Any, wanted: Any, *given: Any, **named: Any) -> Any:
        began, wanted = time.monotonic(), list(wanted)
        answers = end(self, wanted, *given, **named)
        found.ending += time.monotonic() - began
        found.requests.append(len(wanted))
        return answers

    def measured_append(self: Any, written: Any, *given: Any, **named: Any) -> Any:
        written = list(written)
        found.decision_bytes += sum(len(key) + len(value or b"") for key, value in written)
        return append(self, written, *given, **named)

    with (
        mock.patch.multiple(ControlPlane, end=timed_end),
        mock.patch.multiple(Coordinator, append=measured_append),
    ):
        yield


def measure(nodes: int, tasks: Sequence[int], rounds: int) -> dict[int, Round]:
    """Number of tasks -> the medians of the rounds after the first."""
    with cluster(nodes=nodes) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        found = {}
        for number in tasks:
            job = Job(kafka.bootstrap_servers, number)
            admin.create_topics([NewTopic(job.name, min(number, PARTITIONS))])[job.name].result(60)
            batches = [job.run(batch) for batch in range(rounds + 1)][1:]
            found[number] = _medians(batches)
            print(f"{nodes} brokers, {number} tasks: {found[number]}", file=sys.stderr, flush=True)
    return found


def _medians(batches: Sequence[Round]) -> Round:
    waves = max((batch.requests for batch in batches), key=len)
    numbers = ("plan", "task", "commit", "ending", "decision_bytes")
    return Round(
        **{name: median(getattr(batch, name) for batch in batches) for name in numbers},
        requests=waves,
    )


@dataclass(frozen=True)
class Line:
    """Seconds = fixed + per_task * tasks, by least squares."""

    fixed: float
    per_task: float

    @classmethod
    def through(cls, points: Mapping[int, float]) -> Line:
        """Raises StatisticsError for fewer than two points."""
        slope, intercept = linear_regression(list(points), list(points.values()))
        return cls(intercept, slope)


def render(facts: Mapping[str, Any], found: Mapping[int, Mapping[int, Round]]) -> str:
    """The page."""
    lines = [
        "# A commit by the number of tasks and brokers",
        "",
        "Written by `python -m benchmarks.commit_round`. Real brokers, all on this machine, and",
        "the sink's own code without Spark. Each task writes a row into a partition of its own; a",
        "commit is S6 to S8: check, decide, end all transactions, look, settle. Medians.",
        "",
        ", ".join(f"{name} {value}" for name, value in facts.items()),
        "",
        "| brokers | tasks | S1, ms | a task, ms | commit, ms | of it EndTxn, ms | waves of EndTxn "
        "| decision and DONE, bytes a task |",
        "|--:|--:|--:|--:|--:|--:|:--|--:|",
    ]
    for nodes, by_tasks in found.items():
        for tasks, one in by_tasks.items():
            waves = ", ".join(map(str, one.requests))
            lines.append(
                f"| {nodes} | {tasks:,} | {one.plan * 1000:.0f} | {one.task * 1000:.0f} | "
                f"{one.commit * 1000:.0f} | {one.ending * 1000:.0f} | {waves} | "
                f"{one.decision_bytes / tasks:.0f} |"
            )
    for nodes, by_tasks in found.items():
        line = Line.through({tasks: one.commit for tasks, one in by_tasks.items()})
        lines += [
            "",
            f"{nodes} broker(s): commit = {line.fixed * 1000:.0f} ms + {line.per_task * 1000:.2f} "
            "ms a task.",
        ]
    return "\n".join(lines) + "\n\n" + _limits(found)


def _limits(found: Mapping[int, Mapping[int, Round]]) -> str:
    """What follows for large jobs, from the largest that was measured."""
    nodes, by_tasks = max(found.items())
    tasks, one = max(by_tasks.items())
    a_task = one.decision_bytes / tasks
    most = int(MAX_MESSAGE_BYTES / (a_task / 2))
    kilobytes = one.decision_bytes / 1000
    bullets = (
        f"**Transactional ids.** A task number has {GENERATION_SLOTS} generation slots and "
        f"{ATTEMPT_SLOTS} attempt slots. {tasks:,} tasks use {tasks:,} ids in a batch, "
        f"{tasks * GENERATION_SLOTS:,} over time, as every batch takes the next generation, and "
        f"never more than {tasks * GENERATION_SLOTS * ATTEMPT_SLOTS:,}; Kafka forgets one after "
        "`transactional.id.expiration.ms` (7 days) without use.",
        "**Coordinators.** Kafka spreads ids by their hash over the 50 partitions of its "
        f"transaction log: with {nodes} brokers each answers about {tasks // nodes:,} of {tasks:,} "
        "EndTxns a batch.",
        f"**The ledger grows** by {kilobytes:,.0f} kB a batch of {tasks:,} tasks before it is "
        f"packed (lz4) and compacted: {kilobytes * 3.6:,.0f} MB an hour at a batch a second. What "
        "stays after compaction is a decision for each batch that Spark could still run again.",
        f"**The largest batch.** A decision is one record: at {a_task / 2:.0f} bytes a task, the "
        f"ledger's `max.message.bytes` of {MAX_MESSAGE_BYTES >> 20} MiB holds {most:,} tasks, more "
        "where it packs well. A ledger of an older version, or made by hand, has Kafka's default "
        "of 1 MiB. What is too large is refused before the decision, with the setting named "
        "(`test_a_decision_may_be_larger_than_kafkas_default_for_a_record`).",
    )
    filled = (fill(f"* {one}", 100, subsequent_indent="  ") for one in bullets)
    return "## What follows for large jobs\n\n" + "\n".join(filled) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print the page and write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.commit_round")
    parser.add_argument("--nodes", default="1,3,10", help="numbers of brokers")
    parser.add_argument("--tasks", default="1,10,50,200,1000", help="numbers of tasks")
    parser.add_argument("--rounds", type=int, default=3, help="measured batches, after a first one")
    options = parser.parse_args(arguments)
    load = round(os.getloadavg()[0], 1)
    tasks = [int(number) for number in options.tasks.split(",")]
    found = {
        int(nodes): measure(int(nodes), tasks, options.rounds) for nodes in options.nodes.split(",")
    }
    facts = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "cores": os.cpu_count(),
        "load before": load,
        "batches": options.rounds,
    }
    text = render(facts, found)
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
