"""Two installed versions of eo-kafka, in turns, over batches of one record: what a batch costs now.

    python -m benchmarks.paired OLD/bin/python NEW/bin/python [--rounds 12] [--batches 20]

Run it from the root of the repository; the interpreters are those of virtual environments with
PySpark and one version each. Each has a Spark session of its own that lives through all rounds;
both use one Kafka. A round is one query by each, who comes first changes; its ratio is that of the
two medians, so what slows the machine down for a while slows down both. Exits with 1 if the
median ratio is above `--limit` (1.05).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median

from benchmarks.queries import AT_LEAST_ONCE, EXACTLY_ONCE, SNAPSHOTS, Runner
from benchmarks.report import Spread
from benchmarks.session import benchmark_session
from benchmarks.workload import BROKER_PROPERTIES, Topics, Workload
from eo_kafka.broker.embedded import KafkaBroker

CONTENDERS = {
    "exactly-once": EXACTLY_ONCE,
    "snapshots": SNAPSHOTS,
    "at-least-once": AT_LEAST_ONCE,
}
# Versions that ask for a topic by its name, and are refused the one that Kafka then makes
_PROPERTIES = {**BROKER_PROPERTIES, "auto.create.topics.enable": "false"}
LEFT_OUT = 3  # of each query: they start workers and clients
WARM_UP = 2  # rounds


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it, print a line a round and the result; the exit code."""
    options = _options(arguments)
    if options.worker:
        work(options.worker, options.contender, options.batches)
        return 0
    with ExitStack() as stack:
        broker = stack.enter_context(KafkaBroker(properties=_PROPERTIES))
        servers = broker.bootstrap_servers
        Topics(servers).fill(workload(options.batches))
        runs = [stack.enter_context(worker(each, servers, options)) for each in options.pythons]
        rounds = [
            in_turns(runs, swapped=bool(number % 2)) for number in range(WARM_UP + options.rounds)
        ]
    for number, times in enumerate(rounds, 1 - WARM_UP):
        told = f"round {number:2}" if number > 0 else "warm-up "
        print(f"{told}  old {median(times[0]):6.1f} ms  new {median(times[1]):6.1f} ms")
    return tell(rounds[WARM_UP:], options)


def in_turns(runs: Sequence[subprocess.Popen[str]], swapped: bool) -> list[list[float]]:
    """Milliseconds of each batch, of the old and the new one."""
    times: dict[int, list[float]] = {}
    for at in (1, 0) if swapped else (0, 1):
        process = runs[at]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"{process.args} ended; what it said stands above")
        times[at] = json.loads(line)
    return [times[0], times[1]]


def tell(rounds: Sequence[list[list[float]]], options: argparse.Namespace) -> int:
    """Print medians, spreads and the ratio."""
    for name, at in (("old", 0), ("new", 1)):
        medians = Spread.of([median(times[at]) for times in rounds])
        print(f"{name}: {medians} ms a batch, median of {len(rounds)} rounds (least-greatest)")
    ratio = Spread.of([median(new) / median(old) for old, new in rounds])
    verdict = "within" if ratio.median <= options.limit else "ABOVE"
    print(f"new / old: {ratio}, {verdict} the limit of {options.limit} ({options.contender})")
    return int(ratio.median > options.limit)


@contextmanager
def worker(
    python: str, servers: str, options: argparse.Namespace
) -> Iterator[subprocess.Popen[str]]:
    """A process of an interpreter that runs a query for each line it is given."""
    words = ["--worker", servers, "--contender", options.contender]
    process = subprocess.Popen(
        [python, "-m", "benchmarks.paired", *words, "--batches", str(options.batches)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": python},
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)


def work(servers: str, contender: str, batches: int) -> None:
    """The worker's half."""
    with benchmark_session() as spark:
        runner = Runner(spark, Topics(servers))
        for _ in sys.stdin:
            found = runner.copy_unchecked(CONTENDERS[contender], workload(batches), batches)
            print(json.dumps([batch.seconds * 1000 for batch in found[LEFT_OUT:]]), flush=True)


def workload(batches: int) -> Workload:
    """A record for each batch."""
    return Workload("input-paired", batches, 100, 1)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.paired")
    parser.add_argument("pythons", nargs="*", metavar="PYTHON", help="the old one, the new one")
    parser.add_argument("--rounds", type=int, default=12, help="measured, after the warm-up")
    parser.add_argument("--batches", type=int, default=20, help="a query; three are left out")
    parser.add_argument("--contender", choices=list(CONTENDERS), default="exactly-once")
    parser.add_argument("--limit", type=float, default=1.05, help="of the median ratio")
    parser.add_argument("--worker", metavar="SERVERS", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not options.worker and len(options.pythons) != 2:
        parser.error("name two interpreters, the old version's and the new one's")
    return options


if __name__ == "__main__":
    sys.exit(main())
