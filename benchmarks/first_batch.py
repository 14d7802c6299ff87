"""How soon the first batch of a query is written, topic to topic.

    python -m benchmarks.first_batch [--rounds 5] [--records 20000]

Run it from the root of the repository. Each turn is an application of its own: a new JVM, new
Python processes. Its clock begins when Spark itself has started, and runs from before a query is
built to the end of its only batch: of the application's first query, and of its third, which finds
a JVM that is warm. CPU seconds are those of the JVM and all Python processes in that time.
`do-nothing` is a Python source and sink that do no work: no connector in Python can be sooner.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import psutil

from benchmarks.queries import DIRECT, EXACTLY_ONCE, JVM, PREPARED, Contender, Runner
from benchmarks.report import Spread
from benchmarks.session import CORES, benchmark_session
from benchmarks.workload import BROKER_PROPERTIES, Topics, Workload
from eo_kafka.broker.embedded import KafkaBroker

CONTENDERS = {one.name: one for one in (JVM, PREPARED, EXACTLY_ONCE, DIRECT)}
SIZE = 100
QUERIES = 3


class Turn(NamedTuple):
    """Seconds and CPU seconds of an application's first query, and seconds of its last."""

    first_s: float
    cpu_s: float
    last_s: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_batch")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds, after a warm-up")
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--one", nargs=2, metavar=("CONTENDER", "SERVERS"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    workload = Workload("first-batch", options.records, SIZE, CORES)
    if options.one:
        name, servers = options.one
        print(json.dumps(measured(CONTENDERS[name], servers, workload)))
        return
    found: dict[str, list[Turn]] = {name: [] for name in CONTENDERS}
    with KafkaBroker(properties=BROKER_PROPERTIES) as broker:
        Topics(broker.bootstrap_servers).fill(workload)
        for number in range(options.rounds + 1):
            for name, times in found.items():
                time.sleep(1)  # what the last application left behind is gone
                turn = in_new_application(name, broker.bootstrap_servers, options.records)
                print(f"round {number}  {name}: {turn}", file=sys.stderr, flush=True)
                if number:
                    times.append(turn)
    print(table(found))


def in_new_application(name: str, servers: str, records: int) -> Turn:
    """A contender's turn."""
    command = [sys.executable, "-m", "benchmarks.first_batch", "--records", str(records)]
    run = subprocess.run(
        [*command, "--one", name, servers], stdout=subprocess.PIPE, text=True, check=True
    )
    return Turn(*json.loads(run.stdout.splitlines()[-1]))


def measured(contender: Contender, servers: str, workload: Workload) -> Turn:
    """The same, in this process, which then has a Spark application."""
    times = []
    with benchmark_session() as spark:
        runner, used = Runner(spark, Topics(servers)), _cpu_s()
        for _ in range(QUERIES):
            with runner.output(workload) as output:
                began = time.monotonic()
                if contender == PREPARED:
                    runner.copy_prepared(workload, 1)
                else:
                    runner.copy_into(contender, workload, 1, output)
                times.append((time.monotonic() - began, _cpu_s() - used))
    return Turn(*times[0], times[-1][0])


def _cpu_s() -> float:
    """Of this process and all below it; those that have ended are counted by those above."""
    mine = psutil.Process()
    total = 0.0
    for process in (mine, *mine.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def table(found: dict[str, list[Turn]]) -> str:
    """Medians with extremes, and how much later than Spark's own connector."""
    lines = [
        "| contender | first query, s | later than kafka, s | CPU s | third query, s | later, s |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    for name, turns in found.items():
        pairs = list(zip(turns, found[JVM.name], strict=True))
        columns = (
            [turn.first_s for turn in turns],
            [turn.first_s - kafka.first_s for turn, kafka in pairs],
            [turn.cpu_s for turn in turns],
            [turn.last_s for turn in turns],
            [turn.last_s - kafka.last_s for turn, kafka in pairs],
        )
        lines.append(f"| {name} | {' | '.join(str(Spread.of(column)) for column in columns)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
