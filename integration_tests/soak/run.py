"""The soak: jobs that are never left alone, and a verdict. See docs/soak.md.

    python integration_tests/soak/run.py --minutes 5 --seed 7 --report soak.html

Exits with 0 if there is no anomaly, with 1 if there is one, with 2 if the soak itself failed.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# The folder above, in which this one is the package `soak`, and what it shares with the tests.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eo_kafka.broker.embedded import KafkaCluster, cluster
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.testing.history import History
from harness import committed_messages, open_transactions, partitions_of
from soak.broker_faults import BROKER_FAULTS, Brokers
from soak.checker import Anomaly, Observed, check, hung, story, stuck
from soak.faults import FAULTS
from soak.history import RowLog
from soak.nemesis import BrokerNemesis, JobNemesis, Nemesis
from soak.producers import InputWriter
from soak.query_faults import OPENING, QUERY_FAULTS
from soak.report import Result, write_report
from soak.supervisor import Job
from soak.watcher import Follower, LedgerWatcher, row_of, watch_output
from soak.workload import COPIES, PARTITIONS, WORKLOADS

START_S = 180.0
FINISH_S = 600.0
SETTLE_S = 30.0
TOLD_EVERY_S = 5.0
BROKER = {"log.segment.bytes": 16 * 1024 * 1024}  # or three brokers fill the disk in an hour


@dataclass(frozen=True)
class Attended:
    """A job with its producer and its watchers."""

    job: Job
    writer: InputWriter
    ledger: LedgerWatcher
    reader: Follower
    watched: RowLog


class SoakFailed(Exception):
    """The soak itself did not work: nothing is known about the product."""


def main() -> int:
    arguments = _arguments()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    history = History(folder / "events.jsonl")
    print(f"Soak of {arguments.minutes:g} minutes, seed {arguments.seed}; histories in {folder}")
    with cluster(arguments.nodes, properties=BROKER) as kafka:
        _make_topics(kafka, arguments.jobs)
        attended = [_attend(name, kafka, folder, history, arguments) for name in arguments.jobs]
        try:
            with _watch(kafka, wanted=arguments.watch):
                _trouble(attended, kafka, arguments, history)
            anomalies = _finish(attended, kafka, history)
            observed = [_observe(one, folder) for one in attended]
        finally:
            for one in attended:
                # For good: after an interrupt no fault may start another driver.
                one.job.in_hand.acquire(timeout=60)
                one.job.kill()
    for seen in observed:
        anomalies += check(seen, history.events())
    result = Result(
        arguments.seed, arguments.minutes, arguments.nodes, observed, history.events(), anomalies
    )
    report = arguments.report or folder / "report.html"
    write_report(result, report)
    _tell(result, report)
    return 1 if anomalies else 0


def _make_topics(kafka: KafkaCluster, names: Sequence[str]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    topics = [NewTopic(f"{name}-{end}", PARTITIONS) for name in names for end in ("in", "out")]
    for created in admin.create_topics(topics).values():
        created.result(timeout=30)


def _attend(
    name: str, kafka: KafkaCluster, folder: Path, history: History, arguments: argparse.Namespace
) -> Attended:
    servers = kafka.bootstrap_servers
    job = Job(WORKLOADS[name], servers, arguments.transaction_timeout, folder, history)
    watched = RowLog(job.folder / "watched.jsonl")
    writer = InputWriter(
        servers, job.kafka.source_topic, job.workload, arguments.rate, arguments.seed
    )
    one = Attended(job, writer, LedgerWatcher(job, history), watch_output(job, watched), watched)
    for thread in (one.writer, one.ledger, one.reader):
        thread.start()
    return one


def _trouble(
    attended: Sequence[Attended],
    kafka: KafkaCluster,
    arguments: argparse.Namespace,
    history: History,
) -> None:
    """Run the jobs under all faults for as long as was asked for."""
    jobs = [one.job for one in attended]
    only, seed = arguments.faults, arguments.seed
    of_jobs = [JobNemesis(job, only, seed, history) for job in jobs]
    nemeses: list[Nemesis] = [*of_jobs]
    brokers = Brokers(kafka, jobs)
    nemeses.append(BrokerNemesis(brokers, only, seed, history))
    # The first batch compiles the connector's loops, and the brokers make their own topics.
    with ThreadPoolExecutor(len(jobs)) as pool:
        opened = [pool.submit(nemesis.open) for nemesis in of_jobs]
        _run_while(
            lambda: (
                not all(job.batches_done() for job in jobs) or not all(one.done() for one in opened)
            ),
            START_S,
            attended,
            history,
            quiet=arguments.watch,
        )
    for nemesis in nemeses:
        nemesis.start()
    _run_while(
        lambda: not any(nemesis.failure for nemesis in nemeses),
        arguments.minutes * 60,
        attended,
        history,
        quiet=arguments.watch,
    )
    for nemesis in nemeses:
        nemesis.stopped.set()
    for nemesis in nemeses:
        while nemesis.is_alive():  # a fault that waits for a crash point needs the job to run
            for job in jobs:
                job.tick()
            nemesis.join(0.2)
    for nemesis in nemeses:
        if nemesis.failure:
            raise SoakFailed(f"{nemesis.name}:\n{nemesis.failure}")
    brokers.heal()
    history.add("nemesis", "settled")


@contextmanager
def _watch(kafka: KafkaCluster, *, wanted: bool) -> Iterator[None]:
    """All jobs as `eo-kafka watch` shows them meanwhile. No fault may end it."""
    if not wanted:
        yield
        return
    words = ["watch", "--every", "1s", "--bootstrap-servers", kafka.bootstrap_servers]
    watch = subprocess.Popen([sys.executable, "-m", "eo_kafka.tools.cli", *words])
    try:
        yield
    finally:
        if watch.poll() is not None:
            raise SoakFailed(f"'eo-kafka watch' ended by itself, with code {watch.returncode}")
        watch.send_signal(signal.SIGINT)
        watch.wait()


def _run_while(
    condition: Callable[[], bool],
    seconds: float,
    attended: Sequence[Attended],
    history: History,
    *,
    quiet: bool,
) -> None:
    """Keep the jobs running, and tell how far they are."""
    until, told = history.seconds + seconds, 0.0
    while condition() and history.seconds < until:
        for one in attended:
            one.job.tick()
        if history.seconds - told >= TOLD_EVERY_S and not quiet:
            told = history.seconds
            print(_progress(attended, history), flush=True)
        time.sleep(0.2)


def _progress(attended: Sequence[Attended], history: History) -> str:
    faults = history.count("brokers", "fault")
    faults += sum(history.count(one.job.name, "fault") for one in attended)
    told = [
        f"{one.job.name} {len(one.watched.rows):,} rows, {one.job.batches_done()} batches"
        for one in attended
    ]
    return f"{history.seconds:5.0f} s  {faults:3} faults  {'; '.join(told)}"


def _finish(attended: Sequence[Attended], kafka: KafkaCluster, history: History) -> list[Anomaly]:
    """End the inputs, let every job read its own to the end, and look whether all is settled."""
    print("All faults have ended; the jobs run to the end of their inputs.", flush=True)
    for one in attended:
        one.job.kill()
        one.writer.stop()
    with ThreadPoolExecutor(len(attended)) as pool:
        ended = list(pool.map(lambda one: one.job.run_to_the_end(FINISH_S), attended))
    anomalies = [
        stuck(one.job.name, FINISH_S) for one, ok in zip(attended, ended, strict=True) if not ok
    ]
    for one in attended:
        anomalies += _hung(one.job, kafka.bootstrap_servers)
    history.add("nemesis", "looked")
    for one in attended:
        one.reader.stop()
        one.ledger.stop()
        one.watched.close()
    return anomalies


def _hung(job: Job, servers: str) -> list[Anomaly]:
    """What is still open SETTLE_S seconds later."""
    control = ControlPlane({"bootstrap.servers": servers})
    deadline = time.monotonic() + SETTLE_S
    try:
        while True:
            ends = {
                (topic, number): (
                    control.end_offset(topic, number, committed=True),
                    control.end_offset(topic, number, committed=False),
                )
                for topic in (job.kafka.sink_topic, job.kafka.ledger)
                for number in partitions_of(servers, topic)
            }
            unstable = {at: found for at, found in ends.items() if found[0] < found[1]}
            found = hung(job.name, unstable, open_transactions(job.kafka))
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.5)
    finally:
        control.close()


def _observe(one: Attended, folder: Path) -> Observed:
    job, servers = one.job, one.job.kafka.servers
    rows = {}
    for what, topic in (("input", job.kafka.source_topic), ("output", job.kafka.sink_topic)):
        log = RowLog(folder / job.name / f"{what}.jsonl")
        for message in committed_messages(servers, topic):
            log.add(row_of(message))
        log.close()
        rows[what] = log.rows
    return Observed(
        job=job.name,
        acknowledged=one.writer.acknowledged,
        source=rows["input"],
        output=rows["output"],
        watched=one.watched.rows,
        done=one.ledger.done,
        expected=job.workload.expected(rows["input"]),
        outputs=job.workload.outputs,
        ordered=job.workload.ordered,
        balanced=job.workload.name == "bank",
    )


def _tell(result: Result, report: Path) -> None:
    for anomaly in result.anomalies:
        print(f"\nANOMALY {anomaly.kind} ({anomaly.job}): {anomaly.text}")
        print("\n".join(map(str, story(anomaly, result.events)[-80:])))
    faults = sum(1 for event in result.events if event.what == "fault")
    done = sum(1 for event in result.events if event.what == "done")
    records = sum(len(seen.output) for seen in result.observed)
    print(
        f"\nSeed {result.seed}: {faults} faults, {done} batches, {records:,} records, "
        f"{len(result.anomalies)} anomalies. The report: {report}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=5, help="how long there are faults")
    parser.add_argument(
        "--seed", type=int, default=random.randrange(10**6), help="of what the nemesis picks"
    )
    parser.add_argument("--nodes", type=int, default=3, help="brokers (default: 3)")
    parser.add_argument("--rate", type=float, default=30, help="input records a second and job")
    parser.add_argument(
        "--transaction-timeout", type=int, default=20, help="of the jobs, in seconds (default: 20)"
    )
    parser.add_argument("--report", type=Path, help="the HTML page (default: in the folder)")
    parser.add_argument("--folder", type=Path, help="for histories and logs (default: temporary)")
    parser.add_argument(
        "--jobs",
        nargs="+",
        choices=list(WORKLOADS),
        help=f"default: count, bank, and by the seed one of {', '.join(COPIES)}",
    )
    parser.add_argument("--watch", action="store_true", help="show the jobs by 'eo-kafka watch'")
    names = [fault.name for fault in (*FAULTS, *QUERY_FAULTS, OPENING, *BROKER_FAULTS)]
    parser.add_argument("--faults", nargs="+", choices=names, default=[], help="only these")
    arguments = parser.parse_args()
    if not arguments.jobs:
        arguments.jobs = ["count", "bank", COPIES[arguments.seed % len(COPIES)]]
    return arguments


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception:
        traceback.print_exc()
        sys.exit(2)
