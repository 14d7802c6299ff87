"""CPU time a record, by process; and what it leaves to any source and sink in Python.

    python -m benchmarks.cpu_wall [--rounds 3] [--records 4000000] [--out FOLDER]

Run it from the root of the repository. Where all cores are busy, a ratio of throughputs is a ratio
of CPU times. What a Python source cannot do without is measured alone: rows prepared in memory
through Spark's Python interface (no Kafka), and the same records through librdkafka in C (no Spark,
no Python). A source that did nothing else would cost their sum; the page compares that with Spark's
own connector.

A figure is the difference between a long topic and a quarter of it, by the difference in records,
so that planning, connecting and starting are not in it: user and system time of the broker, Spark's
JVM and all other processes.
"""

from __future__ import annotations

import argparse
import datetime
import os
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.peers.bare_copy import BareCopy
from benchmarks.peers.bare_programs import built
from benchmarks.peers.read_path import read_bare
from benchmarks.queries import EXACTLY_ONCE, JVM, READER, Contender, Runner
from benchmarks.session import CORES, benchmark_session, environment
from benchmarks.workload import BROKER_PROPERTIES, Topics, Workload
from eo_kafka.broker.embedded import KafkaBroker

DOCS = Path(__file__).parents[1] / "docs" / "benchmarks"
SIZES = {100: 1.0, 1000: 0.3}  # bytes a record -> records, in parts of --records
SHORT = 4
BATCHES = 5
KINDS = ("broker", "Spark's JVM", "Python or C")
KAFKA, OURS = "Spark's connector (JVM)", "eo-kafka"
PREPARED, BARE = "prepared rows, no Kafka", "librdkafka in C, no Spark"
BOUND = f"{PREPARED} + {BARE}"

Cpu = dict[str, float]  # kind of process -> seconds


def cpu_now() -> Cpu:
    """What the processes of this benchmark have used so far."""
    spent = dict.fromkeys(KINDS, 0.0)
    for process in psutil.Process().children(recursive=True):
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue
        try:
            words = process.cmdline()
        except psutil.Error:
            words = []  # a worker that has ended this moment
        java = bool(words) and words[0].endswith("java")
        kind = KINDS[2] if not java else KINDS[0] if "kafka.Kafka" in words else KINDS[1]
        # Its children that have ended, too: Spark ends a worker that was idle for a minute.
        spent[kind] += used.user + used.system + used.children_user + used.children_system
    # Programs in C end before they are looked at.
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent[KINDS[2]] += ended.ru_utime + ended.ru_stime
    return spent


def spent_by(run: Callable[[Workload], object], workload: Workload) -> Cpu:
    """CPU seconds of one run."""
    before = cpu_now()
    run(workload)
    after = cpu_now()
    return {kind: after[kind] - before[kind] for kind in KINDS}


@dataclass
class Work:
    """Reading, or copying, records of one size: microseconds a record, a sample a round."""

    title: str
    short: Workload
    long: Workload
    turns: Mapping[str, Callable[[Workload], object]]
    samples: dict[str, list[Cpu]] = field(default_factory=dict)

    def play(self, counts: bool) -> None:
        """One round, each contender once."""
        more = self.long.records - self.short.records
        for name, run in self.turns.items():
            run(self.short)  # Python workers that were idle for a minute are started anew
            short, long = spent_by(run, self.short), spent_by(run, self.long)
            sample = {kind: (long[kind] - short[kind]) * 1e6 / more for kind in KINDS}
            print(self.title, name, sample, file=sys.stderr, flush=True)
            if counts:
                self.samples.setdefault(name, []).append(sample)


def render(facts: Mapping[str, Any], works: Sequence[Work]) -> str:
    """The page."""
    intro, _, why, how = (__doc__ or "").strip().split("\n\n")
    lines = [
        "# The wall: CPU time a record",
        "",
        f"Written by `python -m benchmarks.cpu_wall`. {intro}",
    ]
    lines += ["", why.removeprefix("Run it from the root of the repository. "), "", how, ""]
    lines.append(", ".join(f"{name} {value}" for name, value in facts.items()))
    for work in works:
        lines += ["", f"## {work.title}", "", *_table(work)]
    return "\n".join(lines) + "\n"


def _table(work: Work) -> list[str]:
    costs = {
        name: {kind: median(sample[kind] for sample in samples) for kind in KINDS}
        for name, samples in work.samples.items()
    }
    costs[BOUND] = {kind: costs[PREPARED][kind] + costs[BARE][kind] for kind in KINDS}
    of_kafka = sum(costs[KAFKA].values())
    lines = [
        f"| CPU microseconds a record | {' | '.join(KINDS)} | all (min-max) | {KAFKA} / this |",
        "|:--|--:|--:|--:|--:|--:|",
    ]
    for name, cost in costs.items():
        sums = [sum(sample.values()) for sample in work.samples.get(name, [])]
        spread = f" ({min(sums):.2f}-{max(sums):.2f})" if sums else ""
        cells = [f"{cost[kind]:.2f}" for kind in KINDS]
        total = sum(cost.values())
        lines.append(
            f"| {name} | {' | '.join(cells)} | {total:.2f}{spread} | {of_kafka / total:.2f} |"
        )
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
    parser.add_argument("--records", type=int, default=4_000_000)
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
