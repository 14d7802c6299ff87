"""What jobs with thousands of tasks need: a round of 2,000 real transactions, and its costs.

    python -m benchmarks.scale [--tasks 2000]

Run it from the root of the repository. Real are: a round of as many tasks on one broker, by the
sink's own code without Spark (benchmarks/commit_round.py), and the connections of a task to three
brokers. What 10 to 1,000 executors would see is simulated from these costs, and the page says so.
The page goes to docs/benchmarks/scale.md.
"""

from __future__ import annotations

import argparse
import datetime
import heapq
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import fill

import psutil
import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.commit_round import PARTITIONS, Job, Line, Round
from eo_kafka.broker.embedded import cluster
from eo_kafka.clients.kafka.control_requests import CONNECTIONS
from eo_kafka.sinks.protocol import committer, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.state.ledger.topic_settings import MAX_MESSAGE_BYTES

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "scale.md"
COORDINATORS = 50  # partitions of Kafka's transaction log, its default
SLOTS = 4  # of an executor
PARTITIONS_OF_TOPIC = 10_000
EXECUTORS, BROKERS = (10, 100, 1000), (3, 10, 30)
REPLICATION_S = 0.005  # what an EndTxn waits for the log's other replicas: assumed, not measured
TIMEOUT_S = 900  # transaction.max.timeout.ms, Kafka's default
RUNS = 15


@dataclass(frozen=True)
class Costs:
    """Seconds and bytes, as measured."""

    fixed_s: float  # of a commit, whatever is in it
    driver_s: float  # of a commit, a task, but for EndTxn
    end_s: float  # of an EndTxn, all brokers on one machine
    decision_bytes: float  # in the ledger, a task
    connections: int  # of a task that reads and writes, while it runs


def measured(tasks: int) -> tuple[Costs, dict[int, Round]]:
    """By rounds of a hundredth, a tenth and all of `tasks`, after one of 10."""
    found: dict[int, Round] = {}
    with cluster(nodes=1) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        for number in (10, tasks // 100, tasks // 10, tasks):
            job = Job(kafka.bootstrap_servers, number)
            topic = NewTopic(job.name, min(number, PARTITIONS))
            admin.create_topics([topic])[job.name].result(60)
            found[number] = job.run(0)
            print(f"{number} tasks: {found[number]}", file=sys.stderr, flush=True)
    del found[10]
    besides = Line.through({n: one.commit - one.ending for n, one in found.items()})
    ending = Line.through({n: one.ending for n, one in found.items() if n < tasks})
    costs = Costs(
        max(0.0, besides.fixed),
        besides.per_task,
        ending.per_task,
        found[tasks].decision_bytes / tasks,
        _connections(),
    )
    return costs, found


def _connections() -> int:
    """Those that a task holds to three brokers while it writes."""
    counted = []

    def rows() -> Iterator[pa.RecordBatch]:
        before = len(psutil.Process().net_connections("tcp"))
        for _ in range(3):
            yield pa.RecordBatch.from_pydict({"value": [b"row"]})
            time.sleep(1)  # whoever has rows for a while knows all brokers that it needs
        counted.append(len(psutil.Process().net_connections("tcp")) - before)

    with cluster(nodes=3) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        job = Job(kafka.bootstrap_servers, 3)
        admin.create_topics([NewTopic(job.name, 3)])[job.name].result(60)
        plan = make_plan(job.options)
        task = two_phase.TaskIdentity(job.name, 0, 0, 0)
        committer.commit(job.options, [two_phase.write(job.options, plan, task, rows())], 0)
    return counted[0]


def simulated_end_s(
    tasks: int, brokers: int, costs: Costs, waits_s: float, chance: random.Random
) -> float:
    """Until the last of `tasks` EndTxns is answered. Ids are spread over the coordinators by
    chance, as by Kafka's hash. A broker serves each of the driver's connections one request at a
    time; a request takes its work, exponentially distributed, and waits for the replicas."""
    load = [0] * brokers
    for _ in range(tasks):
        load[chance.randrange(COORDINATORS) % brokers] += 1
    longest = 0.0
    for requests in load:
        free_at = [0.0] * CONNECTIONS
        processor = 0.0  # requests of all connections share the broker's work
        for _ in range(requests):
            began = max(heapq.heappop(free_at), processor)
            processor = began + chance.expovariate(1 / costs.end_s)
            heapq.heappush(free_at, processor + waits_s)
        longest = max(longest, *free_at)
    return longest


def commit_s(tasks: int, brokers: int, costs: Costs, waits_s: float = REPLICATION_S) -> float:
    """A whole commit: the median of some simulated ones."""
    chance = random.Random(tasks * brokers)
    ends = [simulated_end_s(tasks, brokers, costs, waits_s, chance) for _ in range(RUNS)]
    return costs.fixed_s + costs.driver_s * tasks + median(ends)


def render(costs: Costs, found: dict[int, Round], facts: dict[str, object]) -> str:
    """The page."""
    most = max(found)
    chances = [random.Random(number) for number in range(RUNS)]
    predicted = median(simulated_end_s(most, 1, costs, 0.0, chance) for chance in chances)
    told = ", ".join(f"{name} {value}" for name, value in facts.items())
    return (
        "\n\n".join(
            (
                "# Jobs with thousands of tasks",
                "How far does a job's commit scale, and where does it break first?",
                f"Written by `python -m benchmarks.scale`. {told}",
                "## Measured: one broker, real transactions",
                _paragraph(
                    "The sink's own code without Spark, each task a row; one batch of each size, "
                    "after one of 10 tasks. Broker and driver share the machine's cores."
                ),
                _measured_table(found),
                _paragraph(
                    f"So a commit takes {costs.fixed_s * 1000:.0f} ms, and for each task "
                    f"{costs.driver_s * 1e6:.0f} µs besides EndTxn, most of it in the driver, and "
                    f"{costs.end_s * 1e6:.0f} µs of EndTxn. The simulation below, fed with the "
                    f"EndTxns of the smaller rounds only, says {predicted:.2f} s for those "
                    f"of {most:,} tasks; measured were {found[most].ending:.2f} s. A task that "
                    f"writes held {costs.connections} connections to a cluster of three brokers."
                ),
                f"## Simulated: {PARTITIONS_OF_TOPIC:,} partitions, a task each",
                _paragraph(
                    f"From these costs. Each EndTxn waits {REPLICATION_S * 1000:.0f} ms for the "
                    "replicas of Kafka's transaction log, which is assumed, not measured. The "
                    f"driver has {CONNECTIONS} connections to each broker, an executor {SLOTS} "
                    "slots. Connections are those of tasks that write; a task that reads has as "
                    "many again, at most."
                ),
                _simulated_table(costs),
                "## Where it breaks first",
                *map(_paragraph, _limits(costs)),
            )
        )
        + "\n"
    )


def _paragraph(text: str) -> str:
    return fill(text, 100, subsequent_indent="   " if text[:1].isdigit() else "")


def _measured_table(found: dict[int, Round]) -> str:
    lines = [
        "| tasks | a task, ms | commit, s | of it EndTxn, s | decision and DONE, MB |",
        "|--:|--:|--:|--:|--:|",
    ]
    for tasks, one in found.items():
        cells = (f"{one.commit:.2f}", f"{one.ending:.2f}", f"{one.decision_bytes / 1e6:.2f}")
        lines.append(f"| {tasks:,} | {one.task * 1000:.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _simulated_table(costs: Costs) -> str:
    lines = [
        "| executors | brokers | tasks at a time | waves of tasks | a task may take, s | EndTxns a "
        "broker | connections a broker | commit, s |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for executors, brokers in zip(EXECUTORS, BROKERS, strict=True):
        at_a_time = min(PARTITIONS_OF_TOPIC, executors * SLOTS)
        waves = -(-PARTITIONS_OF_TOPIC // at_a_time)
        held = at_a_time * costs.connections / 3
        lines.append(
            f"| {executors:,} | {brokers} | {at_a_time:,} | {waves} | {TIMEOUT_S / waves:.1f} | "
            f"{PARTITIONS_OF_TOPIC // brokers:,} | {held:,.0f} | "
            f"{commit_s(PARTITIONS_OF_TOPIC, brokers, costs):.1f} |"
        )
    return "\n".join(lines)


def _limits(costs: Costs) -> list[str]:
    tasks = int(MAX_MESSAGE_BYTES / (costs.decision_bytes / 2))
    an_hour = costs.decision_bytes * PARTITIONS_OF_TOPIC * 360 / 1e6
    return [
        "1. **The transaction timeout.** A task's transaction stays open until the batch is "
        "decided: with few executors the first tasks wait for all others. So all tasks of a batch "
        "must end within the timeout, 15 minutes at most by Kafka's default; the table has what "
        "that leaves for one. Beyond it the query stops, and its next start writes the batch "
        "again: nothing is lost, but nothing is gained. More slots help, and smaller batches.",
        f"2. **The driver**, which is one process: {costs.driver_s * PARTITIONS_OF_TOPIC:.1f} s of "
        f"a commit of {PARTITIONS_OF_TOPIC:,} tasks are its own, and more brokers do not help. "
        "`maxPartitions` does.",
        f"3. **The decision's record.** The ledger's `max.message.bytes` "
        f"of {MAX_MESSAGE_BYTES >> 20} MiB holds {tasks:,} tasks. At a batch in ten "
        f"seconds, {PARTITIONS_OF_TOPIC:,} tasks write {an_hour:,.0f} MB an hour into the ledger, "
        "before lz4 and compaction.",
        "What Spark needs to schedule as many tasks, and what brokers need for as many partitions, "
        "is not in this.",
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, simulate, print the page and write it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale")
    parser.add_argument("--tasks", type=int, default=2000, help="of the largest real round")
    options = parser.parse_args(arguments)
    load = round(os.getloadavg()[0], 1)
    costs, found = measured(options.tasks)
    facts: dict[str, object] = {
        "Date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "cores": os.cpu_count(),
        "load before": load,
    }
    text = render(costs, found, facts)
    PAGE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
