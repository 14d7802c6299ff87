"""Throughput by cores, partitions and record size, in one process and with executors of their own.

    python -m benchmarks.scaling [--rounds 2] [--out FOLDER] [--sweeps NAME...]    (65 minutes)

Each row is eo-kafka and Spark's own connector in turns, on the same topic and in the same Spark:
reading all seven columns, and topic to topic (ours exactly once, with rows and by the direct lane,
Spark's at least once). Rows without Kafka are prepared in memory, and dropped by a sink that does
nothing, both in Python: no source and sink in Python carry rows through Spark faster. Rates are
those of the batches between the first and the last of five, of up to 150 MB or 400,000 records
each: where that is done in half a second, what a batch costs whatever is in it weighs more. Broker,
driver and executors share this machine's cores. Unix sockets: with Spark's setting
`spark.python.unix.domain.socket.enabled=true`. Arrow batches of 2 MB: with Spark's setting
`spark.sql.execution.arrow.maxBytesPerBatch=2m`, in whose batches rows reach a sink in Python. Two
tasks: with eo-kafka's source option `maxPartitions=2`. Without it, topics of more than eight
partitions have eight tasks here after the first batch, four for each that runs at once.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.queries import (
    DIRECT,
    EXACTLY_ONCE,
    JVM,
    PREPARED,
    READER,
    Contender,
    Runner,
)
from benchmarks.report import ratios, steady_rate
from benchmarks.session import benchmark_session, environment
from benchmarks.workload import BROKER_PROPERTIES, Topics, Workload
from eo_kafka.broker.embedded import KafkaBroker

DOCS = Path(__file__).parents[1] / "docs" / "benchmarks"
BATCHES = 5
BYTES, FEWEST, MOST = 750_000_000, 750, 2_000_000  # of a topic, and records
USUAL = "local[2]"
ARROW_BATCH = "spark.sql.execution.arrow.maxBytesPerBatch"
Session = tuple[str, bool]


@dataclass(frozen=True)
class Point:
    """One row: what is varied, where Spark runs, and the topic."""

    sweep: str
    label: str
    master: str = USUAL
    partitions: int = 2
    size: int = 100
    unix_sockets: bool = False
    arrow_batch: str | None = None  # at most so large; None: Spark's default, 64 MB
    most_tasks: int | None = None  # of eo-kafka's; None: as many as partitions

    @property
    def session(self) -> Session:
        """What one Spark session is started with."""
        return self.master, self.unix_sockets

    @property
    def workload(self) -> Workload:
        """The topic that is read."""
        records = min(MOST, max(FEWEST, BYTES // self.size))
        return Workload(f"in-{self.partitions}-{self.size}", records, self.size, self.partitions)

    def told(self, contender: Contender) -> Contender:
        """`contender` with the options of this point."""
        if self.most_tasks is None or contender is JVM:
            return contender
        return replace(contender, source_options={"maxPartitions": str(self.most_tasks)})


POINTS = (
    Point("cores", "1, local", "local[1]"),
    Point("cores", "2, local"),
    Point("cores", "2, in two executors", "local-cluster[2,1,1024]"),
    *(Point("partitions", f"{number}", partitions=number) for number in (1, 2, 8, 32, 64)),
    *(
        Point("partitions, Unix sockets", f"{number}", partitions=number, unix_sockets=True)
        for number in (2, 8, 32)
    ),
    *(
        Point("partitions, two tasks", f"{number}", partitions=number, most_tasks=2)
        for number in (8, 32)
    ),
    *(
        Point("record size", f"{size:,} B", size=size)
        for size in (30, 100, 1_000, 10_000, 100_000, 900_000)
    ),
    *(
        Point("record size, Arrow batches of 2 MB", f"{size:,} B", size=size, arrow_batch="2m")
        for size in (1_000, 10_000, 100_000, 900_000)
    ),
)
TURNS: dict[str, Contender] = {
    "read": READER, "read, kafka": JVM, "copy": EXACTLY_ONCE, "direct": DIRECT,
    "no Kafka": PREPARED, "copy, kafka": JVM,
}  # fmt: skip
COLORS = {"read": "tab:orange", "copy": "tab:blue", "direct": "tab:green", "no Kafka": "tab:gray"}
Found = dict[str, list[float]]  # turn -> records/s, one a round


def measure(session: Session, servers: str, rounds: int, sweeps: Collection[str]) -> None:
    """The points of one Spark session, in a process of its own. Prints a line of JSON a point."""
    master, unix_sockets = session
    with benchmark_session(master, unix_sockets=unix_sockets) as spark:
        runner = Runner(spark, Topics(servers))
        for number, point in enumerate(POINTS):
            if point.session == session and point.sweep in sweeps:
                if point.arrow_batch is None:
                    spark.conf.unset(ARROW_BATCH)
                else:
                    spark.conf.set(ARROW_BATCH, point.arrow_batch)
                found: Found = {turn: [] for turn in TURNS}
                for counts in (False, *[True] * rounds):
                    _round(runner, point, found if counts else None)
                print(json.dumps([number, found]), flush=True)
        print(json.dumps([-1, environment(spark, "")]), flush=True)


def _round(runner: Runner, point: Point, found: Found | None) -> None:
    """Each turn once, checked; its rate into `found` if the round counts."""
    for turn, contender in TURNS.items():
        if contender is PREPARED:
            tasks = point.most_tasks or point.partitions
            batches = runner.copy_prepared(replace(point.workload, partitions=tasks), BATCHES)
        else:
            run = runner.read if turn.startswith("read") else runner.copy
            batches = run(point.told(contender), point.workload, BATCHES)
        rate = steady_rate(batches)
        if found is not None:
            found[turn].append(rate)


def measured(
    rounds: int, sweeps: Collection[str]
) -> Iterator[tuple[dict[str, Any], dict[Point, Found]]]:
    """The environment, and what came out so far, after each Spark session. Raises
    CalledProcessError."""
    points = [point for point in POINTS if point.sweep in sweeps]
    results: dict[Point, Found] = {}
    facts: dict[str, Any] = {}
    with KafkaBroker(properties=BROKER_PROPERTIES) as broker:
        topics = Topics(broker.bootstrap_servers)
        for workload in dict.fromkeys(point.workload for point in points):
            topics.fill(workload)
        for master, unix_sockets in dict.fromkeys(point.session for point in points):
            print(master, "Unix sockets" if unix_sockets else "", file=sys.stderr, flush=True)
            command = [sys.executable, "-m", "benchmarks.scaling", "--master", master]
            command += ["--servers", broker.bootstrap_servers, "--rounds", str(rounds)]
            command += ["--unix-sockets"] if unix_sockets else []
            command += ["--sweeps", *sweeps]
            for number, found in _said(command):
                if number < 0:
                    facts = {**found, "broker": broker.version}
                else:
                    results[POINTS[number]] = found
                    print(asdict(POINTS[number]), found, file=sys.stderr, flush=True)
            yield facts, results


def _said(command: Sequence[str]) -> Iterator[tuple[int, Any]]:
    """What `measure` prints in a process of its own, as it does."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            number, found = json.loads(line)
            yield number, found
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command))


def render(facts: Mapping[str, Any], results: Mapping[Point, Found]) -> str:
    """The page."""
    intro, _, how = (__doc__ or "").split("\n\n")
    lines = [
        "# Scaling",
        "",
        intro,
        "",
        f"Written by `python -m benchmarks.scaling`. {how.strip()}",
        "",
        ", ".join(f"{name} {value}" for name, value in facts.items()),
        "",
        "![throughput by cores, partitions and record size](scaling.svg)",
    ]
    for sweep in dict.fromkeys(point.sweep for point in results):
        lines += [
            "",
            f"## By {sweep}",
            "",
            f"| {sweep} | read, records/s | MB/s | x kafka | copy exactly once, records/s | MB/s "
            "| x kafka, at least once | direct copy exactly once, records/s | MB/s "
            "| x kafka, at least once | rows without Kafka, x kafka's copy |",
            "|:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
        ]
        lines += [_line(point, found) for point, found in results.items() if point.sweep == sweep]
    return "\n".join(lines) + "\n"


def _line(point: Point, found: Found) -> str:
    cells = []
    for turn, beside in (("read", "read"), ("copy", "copy"), ("direct", "copy")):
        rate = median(found[turn])
        times = ratios(found[turn], found[f"{beside}, kafka"])
        cells += [f"{rate:,.0f}", f"{rate * point.size / 1e6:.0f}", str(times)]
    cells.append(str(ratios(found["no Kafka"], found["copy, kafka"])))
    return f"| {point.label} | {' | '.join(cells)} |"


def plot(results: Mapping[Point, Found], path: Path) -> None:
    """A panel a sweep: MB/s of each turn."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    sweeps = list(dict.fromkeys(point.sweep for point in results))
    figure, panels = plt.subplots(1, len(sweeps), figsize=(5 * len(sweeps), 4), squeeze=False)
    for axes, sweep in zip(panels[0], sweeps, strict=True):
        points = [point for point in results if point.sweep == sweep]
        labels = [point.label for point in points]
        for turn in TURNS:
            rates = [median(results[point][turn]) * point.size / 1e6 for point in points]
            style = "--" if turn.endswith("kafka") else "-"
            color = COLORS[turn.partition(",")[0]]
            axes.plot(labels, rates, style, color=color, marker="o", label=turn)
        axes.set(title=f"by {sweep}", ylabel="MB/s")
        axes.set_ylim(bottom=0)
        axes.tick_params(axis="x", labelsize=8)
    panels[0][0].legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all points; print page and write page and plot as far as they are measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling")
    parser.add_argument("--rounds", type=int, default=2, help="measured rounds, after a warm-up")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder of page and plot")
    every = list(dict.fromkeys(point.sweep for point in POINTS))
    parser.add_argument("--sweeps", nargs="+", default=every, choices=every, help="all by default")
    parser.add_argument("--master", help=argparse.SUPPRESS)  # of the process of one Spark session
    parser.add_argument("--unix-sockets", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.master:
        session = options.master, options.unix_sockets
        measure(session, options.servers, options.rounds, options.sweeps)
        return
    load = round(os.getloadavg()[0], 1)
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    for found, results in measured(options.rounds, options.sweeps):
        facts = {"date": date, **found, "load before": load, "rounds": options.rounds}
        _write(render(facts, results), results, options.out)


def _write(text: str, results: Mapping[Point, Found], out: Path) -> None:
    (out / "scaling.md").write_text(text)
    plot(results, out / "scaling.svg")
    print(text)


if __name__ == "__main__":
    main()
