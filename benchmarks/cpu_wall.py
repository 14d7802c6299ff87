"""CPU time a record, and what it leaves to any source and sink in Python.

    python -m benchmarks.cpu_wall [--rounds 3] [--records 6000000] [--out FOLDER]    (15 minutes)

Where all cores are busy, a ratio of throughputs is a ratio of CPU times. What a Python source
cannot do without is measured alone: rows prepared in memory through Spark's Python interface (no
Kafka), and the same records through librdkafka in C (no Spark, no Python). A source that did
nothing else would cost their sum; the page compares that with Spark's own connector. Who leaves
cores idle makes less than its CPU time would let it: see the [throughputs](README.md).

A figure is what the machine's cores were busy for, whatever process it was, over a long topic, less
the same over a quarter of it, by the difference in records: planning, connecting and starting are
not in it. The broker's work is. Ratios are made within a round. Nothing else may run beside it.
"""

from __future__ import annotations

import argparse
import datetime
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.peers.bare_copy import BareCopy
from benchmarks.peers.bare_programs import built
from benchmarks.peers.read_path import read_bare
from benchmarks.queries import EXACTLY_ONCE, JVM, READER, Contender, Runner
from benchmarks.report import Spread, ratios
from benchmarks.session import CORES, benchmark_session, environment
from benchmarks.workload import BROKER_PROPERTIES, Topics, Workload
from eo_kafka.broker.embedded import KafkaBroker

DOCS = Path(__file__).parents[1] / "docs" / "benchmarks"
SIZES = {100: 1.0, 1000: 0.3}  # bytes a record -> records, in parts of --records
SHORT = 4
BATCHES = 5
KAFKA, OURS = "Spark's connector (JVM)", "eo-kafka"
PREPARED, BARE = "prepared rows, no Kafka", "librdkafka in C, no Spark"
BOUND = f"{PREPARED} + {BARE}"


def busy_s() -> float:
    """Seconds that this machine's cores have worked, since it started."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def spent_by(run: Callable[[Workload], object], workload: Workload) -> float:
    """CPU seconds of one run."""
    before = busy_s()
    run(workload)
    return busy_s() - before


@dataclass
class Work:
    """Reading, or copying, records of one size: microseconds a record, a sample a round."""

    title: str
    short: Workload
    long: Workload
    turns: Mapping[str, Callable[[Workload], object]]
    samples: dict[str, list[float]] = field(default_factory=dict)

    def play(self, counts: bool) -> None:
        """One round, each contender once."""
        more = self.long.records - self.short.records
        for name, run in self.turns.items():
            run(self.short)  # Python workers that were idle for a minute are started anew
            short, long = spent_by(run, self.short), spent_by(run, self.long)
            sample = (long - short) * 1e6 / more
            print(self.title, name, f"{sample:.2f}", file=sys.stderr, flush=True)
            if counts:
                self.samples.setdefault(name, []).append(sample)

    def costs(self) -> dict[str, list[float]]:
        """The samples, and those of the least that any source and sink in Python cost."""
        least = zip(self.samples[PREPARED], self.samples[BARE], strict=True)
        return {**self.samples, BOUND: [sum(both) for both in least]}


def render(facts: Mapping[str, Any], works: Sequence[Work]) -> str:
    """The page."""
    intro, _, why, how = (__doc__ or "").strip().split("\n\n")
    lines = ["# The wall: CPU time a record", ""]
    lines += [f"Written by `python -m benchmarks.cpu_wall`. {intro}", "", why, "", how, ""]
    lines.append(", ".join(f"{name} {value}" for name, value in facts.items()))
    for work in works:
        lines += ["", f"## {work.title}", "", *_table(work)]
    return "\n".join(lines) + "\n"


def _table(work: Work) -> list[str]:
    costs = work.costs()
    lines = [f"| CPU time | microseconds a record | {KAFKA} / this |", "|:--|--:|--:|"]
    for name, samples in costs.items():
        lines.append(f"| {name} | {Spread.of(samples)} | {ratios(costs[KAFKA], samples)} |")
    return lines


def works(runner: Runner, topics: Topics, programs: Sequence[Path], records: int) -> list[Work]:
    """What is measured; fills the topics."""
    servers, (loop, copy) = topics.bootstrap_servers, programs
    bare = BareCopy(BARE, copy, servers)

    def copied(contender: Contender) -> Callable[[Workload], object]:
        return lambda workload: runner.copy_unchecked(contender, workload, BATCHES)

    def copied_bare(workload: Workload) -> None:
        with runner.output(workload) as output:
            bare.copy(workload, output)

    read: dict[str, Callable[[Workload], object]] = {
        KAFKA: lambda workload: runner.read(JVM, workload, BATCHES),
        OURS: lambda workload: runner.read(READER, workload, BATCHES),
        PREPARED: lambda workload: runner.read_prepared(workload, BATCHES),
        BARE: lambda workload: read_bare(loop, servers, workload),
    }
    copies: dict[str, Callable[[Workload], object]] = {
        KAFKA: copied(JVM),
        OURS: copied(EXACTLY_ONCE),
        PREPARED: lambda workload: runner.copy_prepared(workload, BATCHES),
        BARE: copied_bare,
    }
    found = []
    for size, part in SIZES.items():
        number = int(records * part)
        long = Workload(f"long-{size}", number, size, CORES)
        short = Workload(f"short-{size}", number // SHORT, size, CORES)
        topics.fill(long)
        topics.fill(short)
        found.append(Work(f"Read-only, {size}-byte records", short, long, read))
        title = (
            f"Topic to topic, {size}-byte records ({KAFKA}: at least once; others: exactly once)"
        )
        found.append(Work(title, short, long, copies))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu_wall")
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds, after a warm-up")
    parser.add_argument("--records", type=int, default=6_000_000)
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of the page")
    options = parser.parse_args(arguments)
    load = round(os.getloadavg()[0], 1)
    with ExitStack() as stack:
        programs = [stack.enter_context(built(name)) for name in ("bare_loop", "bare_copy")]
        broker = stack.enter_context(KafkaBroker(properties=BROKER_PROPERTIES))
        spark = stack.enter_context(benchmark_session())
        topics = Topics(broker.bootstrap_servers)
        measured = works(Runner(spark, topics), topics, programs, options.records)
        date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        facts = {"date": date, **environment(spark, broker.version), "load before": load}
        for number in range(options.rounds + 1):
            for work in measured:
                work.play(counts=number > 0)
            if number:
                text = render({**facts, "rounds": number}, measured)
                (options.out / "cpu_wall.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
