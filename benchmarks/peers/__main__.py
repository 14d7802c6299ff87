"""`python -m benchmarks.peers`: eo-kafka beside others on one broker, in turns.

    python -m benchmarks.peers [--rounds 3] [--records 6000000] [--python PYTHON] [--out FOLDER]

Run it from the root of the repository. The peers (Flink, Quix Streams) are installed on first use,
each in an environment of its own outside the repository. Page and plots go to docs/benchmarks/;
what is measured and how, the page says (benchmarks/peers/method.md).
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import harmonic_mean
from typing import Any

from benchmarks.peers import page, read_path
from benchmarks.peers.bare_programs import built
from benchmarks.peers.contenders import EO_KAFKA, Copier, copiers
from benchmarks.peers.environments import FACTS, installed
from benchmarks.peers.flink import flink
from benchmarks.peers.page import Results
from benchmarks.peers.visible import Watch
from benchmarks.queries import Runner, in_turn
from benchmarks.session import CORES, benchmark_session, environment
from benchmarks.workload import BROKER_PROPERTIES, Topics, Workload
from eo_kafka.broker.embedded import KafkaBroker

DOCS = Path(__file__).parents[2] / "docs" / "benchmarks"
# Bytes a record, key and value -> records, in parts of --records
SIZES = {100: 1.0, 1000: 0.3}
SHORT = 4  # the warm-up's topics, and those of a system that is much slower, are so much shorter
READS = 5  # of a topic in a turn, because one takes a second or two

Turn = tuple[str, Callable[[bool], None]]  # a name, and what is told whether the round counts


class Bench:
    """The topics of one run of the benchmark, what is done with them in a round, and the results.

    Its turns raise WrongResult when something was not read or written as it should be.
    """

    def __init__(self, runner: Runner, topics: Topics, records: int) -> None:
        self.results = Results({size: {} for size in SIZES}, {size: {} for size in SIZES})
        self._runner = runner
        self._topics = topics
        self._long = {size: self._filled("long", size, records) for size in SIZES}
        self._short = {size: self._filled("short", size, records // SHORT) for size in SIZES}

    @property
    def filled(self) -> str:
        """Records of the long topics, for the report."""
        return " and ".join(f"{one.records:,} of {one.size} bytes" for one in self._long.values())

    def _filled(self, name: str, size: int, records: int) -> Workload:
        workload = Workload(f"{name}-{size}", int(records * SIZES[size]), size, CORES)
        _say(f"filling {workload.topic}: {workload.records:,} records")
        self._topics.fill(workload)
        return workload

    def copy(self, copier: Copier, size: int) -> Turn:
        """Topic to topic, watched from outside, and compared afterwards."""
        results = self.results.copies[size].setdefault(copier.name, [])

        def play(counts: bool) -> None:
            workload = (self._long if counts and not copier.is_slow else self._short)[size]
            servers = self._topics.bootstrap_servers
            os.sync()  # what the turn before left to be written to the disk is not this one's
            with self._runner.output(workload) as output:
                with Watch(servers, output, workload.partitions) as watch:
                    copier.copy(workload, output)
                self._runner.check_copy(copier.name, workload, output)
            if counts:
                results.append(watch.seen(copier.name))

        return f"copy {size} B  {copier.name}", play

    def read(self, name: str, size: int, reader: Callable[[str, Workload], float]) -> Turn:
        """A topic into columns, without Spark."""
        results = self.results.reads[size].setdefault(name, [])

        def play(counts: bool) -> None:
            servers, workload = self._topics.bootstrap_servers, self._long[size]
            rates = [reader(servers, workload) for _ in range(READS)]
            if counts:
                results.append(harmonic_mean(rates))

        return f"read {size} B  {name}", play


def play(turns: Sequence[Turn], round_number: int) -> None:
    """Each once, in an order that moves on by one a round. Round 0 only warms up."""
    for name, turn in in_turn(turns, round_number):
        began = time.monotonic()
        turn(round_number > 0)
        label = f"round {round_number}" if round_number else "warm-up"
        _say(f"{label}  {name:<48} {time.monotonic() - began:5.1f} s")


def main(arguments: Sequence[str] | None = None) -> None:
    """Install, run, print the page, and write it with its plots."""
    options = _options(arguments)
    began = time.monotonic()
    load = round(os.getloadavg()[0], 1)  # of what else this machine does
    with ExitStack() as running:
        # first what may be missing on this machine
        program = running.enter_context(built("bare_loop"))
        bare_copy = running.enter_context(built("bare_copy"))
        peers = installed(options.python)
        broker = running.enter_context(KafkaBroker(properties=BROKER_PROPERTIES))
        servers = broker.bootstrap_servers
        spark = running.enter_context(benchmark_session())
        flinks = running.enter_context(flink(peers, servers))
        pool = running.enter_context(read_path.readers(CORES))
        topics = Topics(servers)
        runner = Runner(spark, topics)
        bench = Bench(runner, topics, options.records)
        contenders = copiers(runner, flinks, peers.quix, bare_copy, servers)
        groups = [[bench.copy(one, size) for one in contenders] for size in SIZES]
        groups += [
            [
                bench.read(EO_KAFKA, size, lambda *given: read_path.read_ours(pool, *given)),
                bench.read(page.BARE, size, lambda *given: read_path.read_bare(program, *given)),
            ]
            for size in SIZES
        ]
        for round_number in range(options.rounds + 1):
            for turns in groups:
                play(turns, round_number)
        facts: dict[str, Any] = {
            "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
            **environment(spark, broker.version),
            "load before": load,
            **FACTS,
            "rounds": options.rounds,
            "records": bench.filled,
            "minutes": round((time.monotonic() - began) / 60, 1),
        }
    print(page.write(facts, bench.results, options.out))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, after a warm-up")
    parser.add_argument(
        "--records",
        type=int,
        default=6_000_000,
        help="of 100 bytes; of 1000 bytes there are three tenths as many",
    )
    parser.add_argument("--python", help="what the peers run with (3.9 to 3.12)")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of page and plots")
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
