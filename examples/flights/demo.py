"""The demo: a streaming job over real flights, killed again and again, and what came out of it.

    python examples/flights/demo.py --format eo-kafka     exactly once
    python examples/flights/demo.py --format eo-postgres  the same into a topic and a table
    python examples/flights/demo.py --format kafka        the same job with Spark's own connector

Exits with 0 only if eo-kafka's output is, row by row, what a batch computation says. Spark's own
connector promises no such thing: with it, the demo succeeds if it ran to the end.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import pandas as pd
from compare import Comparison, committed, compare, computed, create_table, stored
from flights import flights
from nemesis import Kill, Nemesis
from report import airlines, as_table, chart, sample
from run import Job, Run, producer

from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.broker.postgres import Postgres

STALLED_SECONDS = 120.0
# Kafka and each of Spark's JVMs live too short for the optimizing compiler to pay for itself
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def main() -> int:
    arguments = _arguments()
    begin = time.monotonic()
    table = flights(arguments.limit)
    with kafka(arguments.bootstrap_servers) as servers, database(arguments) as url:
        run = new_run(arguments, servers, url)
        print(f"{len(table):,} flights go through format('{run.format}'); logs in {run.folder}")
        run.create_topics()
        if url:
            create_table(url, run.table)
        with producer(run) as playing:
            job = Job(run, table["scheduled"].iloc[-1].floor("h") + timedelta(hours=1))
            nemesis = Nemesis(run, job, len(table), arguments.seed, arguments.kills)
            with watched(run, wanted=arguments.watch):
                late = survive(run, table, playing, job, nemesis, quiet=arguments.watch)
        found = committed(servers, run.output)
        result = compare(computed(table), found)
        tell(run, table, nemesis.kills, found, result, late)
        equal = result.equal
        if url:
            equal &= tell_table(compare(computed(table), stored(url, run.table)))
        if run.format != "kafka":
            show_ledger(run)
    print(f"\nIt took {time.monotonic() - begin:.0f} s.")
    return 0 if run.format == "kafka" or (equal and not late) else 1


class SupervisedJob(Protocol):
    """A job that is started again when it dies: `Job` of run.py, or one in containers."""

    @property
    def starts(self) -> int: ...
    @property
    def exit_code(self) -> int | None: ...
    def start(self) -> None: ...
    def progress(self) -> list[dict[str, Any]]: ...
    def close(self) -> None: ...


class Striker(Protocol):
    """What kills it: `Nemesis` of nemesis.py, or one of containers."""

    kills: list[Kill]

    def strike_if_due(self) -> None: ...


def survive(
    run: Run,
    table: pd.DataFrame,
    playing: subprocess.Popen[bytes],
    job: SupervisedJob,
    nemesis: Striker,
    stalled_seconds: float = STALLED_SECONDS,
    *,
    quiet: bool = False,
) -> int:
    """Run the job to its end while the nemesis kills it. Returns how many rows the watermark
    dropped."""
    line = ProgressLine(len(table), stalled_seconds, quiet=quiet)
    try:
        job.start()
        while job.exit_code != 0:
            nemesis.strike_if_due()
            if playing.poll():
                raise SystemExit(f"The producer failed: see {run.folder / 'producer.log'}")
            if job.exit_code is not None and job.exit_code != 0:
                if job.starts > len(nemesis.kills):  # each kill explains one death
                    raise SystemExit(f"The job ended by itself: see {run.folder / 'job.log'}")
                job.start()
            line.show(job, len(nemesis.kills))
            time.sleep(0.2)
    finally:
        job.close()
    line.end()
    return sum(facts["late"] for facts in job.progress())


def tell(
    run: Run,
    table: pd.DataFrame,
    kills: list[Kill],
    found: list[tuple[tuple[str, str], dict[str, object]]],
    result: Comparison,
    late: int,
) -> None:
    """Print what came out, and draw it."""
    windows = as_table(list(dict(found).items()))
    print("\nDeparture delays by airline, from the output topic (late: more than 15 minutes):\n")
    print(airlines(windows))
    print("\nThe hours with the most late flights:\n")
    print(sample(windows))
    print(f"\nflights     {len(table):,}")
    print(f"records     {result.records:,} committed, {result.windows:,} windows expected")
    print(f"kills       {len(kills)}: {', '.join(kill.target for kill in kills)}")
    print(f"lost        {result.lost:,}")
    print(f"duplicates  {result.duplicates:,}")
    print(f"wrong       {result.wrong:,}")
    print(f"too late    {late:,} (rows that the watermark dropped)")
    if run.format == "kafka":
        print(
            "\nDuplicates are expected here: Spark's own connector is at-least-once. Whatever a\n"
            "micro-batch wrote before it died is written again. `--format eo-kafka` runs the\n"
            "same job exactly once."
        )
    path = run.folder / "delays.png"
    title = (
        f"Departures from New York, 2013: {len(kills)} kills, {result.lost:,} lost, "
        f"{result.duplicates:,} duplicates  (format {run.format})"
    )
    chart(windows, kills, title, path)
    print(f"\nThe chart: {path}")


def tell_table(result: Comparison) -> bool:
    """Print what is in the table beside the topic; whether it is what should be."""
    print(f"\nin the table of PostgreSQL: {result.records:,} rows, {result.windows:,} expected")
    print(f"    {result.lost:,} lost, {result.duplicates:,} duplicates, {result.wrong:,} wrong")
    return result.equal


def show_ledger(run: Run) -> None:
    """How an operator looks at what the job decided, micro-batch by micro-batch."""
    words = ["job", "show", run.job_name, "--bootstrap-servers", run.bootstrap_servers]
    print(f"\nThe job's ledger, by eo-kafka {' '.join(words)}:\n", flush=True)
    subprocess.run([sys.executable, "-m", "eo_kafka.tools.cli", *words], check=True)


class ProgressLine:
    """How far the job is: one line that is written over, or now and then one in a log file."""

    def __init__(self, total: int, stalled_seconds: float, *, quiet: bool) -> None:
        self._total = total
        self._quiet = quiet
        self._stalled_seconds = stalled_seconds
        self._begin = self._moved = time.monotonic()
        self._told = -10.0
        self._last = (0, 0)

    def show(self, job: SupervisedJob, kills: int) -> None:
        """Tell it. Ends the demo if nothing has moved for long."""
        now = time.monotonic()
        progress = job.progress()
        state = (progress[-1]["read"] if progress else 0, kills)
        if state != self._last:
            self._last, self._moved = state, now
        if now - self._moved > self._stalled_seconds:
            raise SystemExit(f"Nothing has moved for {self._stalled_seconds:.0f} s: see job.log.")
        if self._quiet:
            return
        seconds = f"{now - self._begin:.0f} s"
        text = f"  Spark starts, and works on its first batch, {seconds}"
        if progress:
            read = f"{min(state[0], self._total):>9,} of {self._total:,} flights read"
            text = f"  {read}, {kills} kills, {seconds}"
        if sys.stdout.isatty():
            print(f"\r{text}   ", end="", flush=True)
        elif now - self._told >= 10:
            self._told = now
            print(text, flush=True)

    def end(self) -> None:
        """Leave the line."""
        if sys.stdout.isatty() and not self._quiet:
            print()


@contextlib.contextmanager
def watched(run: Run, *, wanted: bool) -> Iterator[None]:
    """The job as `eo-kafka watch` shows it meanwhile."""
    if not wanted:
        yield
        return
    words = ["watch", run.job_name, "--every", "1s", "--bootstrap-servers", run.bootstrap_servers]
    watch = subprocess.Popen([sys.executable, "-m", "eo_kafka.tools.cli", *words])
    try:
        yield
    finally:
        watch.send_signal(signal.SIGINT)
        watch.wait()


def new_run(arguments: argparse.Namespace, servers: str, url: str = "") -> Run:
    """Names and a folder that no earlier run has."""
    name = f"{arguments.format}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    folder = (arguments.output / name).absolute()
    folder.mkdir(parents=True)
    return Run(name, arguments.format, servers, folder, arguments.limit, arguments.seconds, url)


@contextlib.contextmanager
def kafka(given: str | None) -> Iterator[str]:
    """The Kafka that was named, else one of our own."""
    if given:
        yield given
        return
    with KafkaBroker() as broker:
        yield broker.bootstrap_servers


@contextlib.contextmanager
def database(arguments: argparse.Namespace) -> Iterator[str]:
    """The PostgreSQL that was named, else one of our own; "" where the job writes no table."""
    if arguments.format != "eo-postgres" or arguments.url:
        yield arguments.url or ""
        return
    with Postgres() as server:
        yield server.url


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--format", choices=("eo-kafka", "eo-postgres", "kafka"), default="eo-kafka"
    )
    parser.add_argument("--output", type=Path, default=Path("demo-output"), metavar="FOLDER")
    parser.add_argument("--bootstrap-servers", help="a Kafka to use (default: starts its own)")
    parser.add_argument("--url", help="a PostgreSQL to use for eo-postgres (default: its own)")
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    parser.add_argument("--kills", type=int, help="only the last so many kills")
    parser.add_argument("--seconds", type=float, default=60, help="how long the producer plays")
    parser.add_argument("--seed", type=int, default=2013, help="of the random moments")
    parser.add_argument("--watch", action="store_true", help="show the job by 'eo-kafka watch'")
    arguments = parser.parse_args()
    if arguments.watch and arguments.format == "kafka":
        parser.error("--watch: a job of Spark's own connector has no ledger to look at")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
