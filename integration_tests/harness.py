"""What the tests of the guarantee share: a job to kill, crash points to arm, and what must hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from eo_kafka.sinks.control_plane import ControlPlane
from eo_kafka.sinks.transactional_id import TransactionalIds
from eo_kafka.transaction import TransactionState

JOBS = Path(__file__).parent / "jobs"
JOB_TIMEOUT_S = 180


def wait_until(condition: Callable[[], object], what: str, timeout: float = 60) -> None:
    """Poll until `condition()` is true."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.05)


class CrashPoints:
    """Arms crash points in the folder that `EO_KAFKA_CRASH_POINTS` names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def arm(self, name: str, action: str) -> None:
        staged = self.folder / f"{name}.staged"
        staged.write_text(action)
        staged.rename(self.folder / name)

    def reached(self, name: str) -> int | None:
        """The process id that reached the point, once one did."""
        path = self.folder / f"{name}.reached"
        return int(path.read_text()) if path.exists() and path.read_text() else None

    def release(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def clear(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()


@dataclass
class Copy:
    """A copy of `source_topic` to `sink_topic` on one checkpoint."""

    servers: str
    source_topic: str
    sink_topic: str
    checkpoint: Path
    job_name: str
    per_batch: int = 400
    tasks: int = 0
    timeout_ms: int = 60_000
    source: str = "eo-kafka"
    sink: str = "eo-kafka"
    master: str = "local[2,4]"
    sink_extra: dict[str, str] = field(default_factory=dict)

    @property
    def ledger(self) -> str:
        return self.sink_extra.get("ledgerTopic", f"__eo_kafka.{self.job_name}.ledger")

    def as_job(self) -> dict[str, object]:
        return {
            "master": self.master,
            "source": self.source,
            "sink": self.sink,
            "tasks": self.tasks,
            "source_options": {
                "kafka.bootstrap.servers": self.servers,
                "subscribe": self.source_topic,
                "startingOffsets": "earliest",
                "maxOffsetsPerTrigger": str(self.per_batch),
            },
            "sink_options": {
                "kafka.bootstrap.servers": self.servers,
                "topic": self.sink_topic,
                "jobName": self.job_name,
                "checkpointLocation": str(self.checkpoint),
                "kafka.transaction.timeout.ms": str(self.timeout_ms),
                **self.sink_extra,
            },
        }

    def run_in_own_driver(self, log: Path) -> int:
        """Run to the end, or to its death. Returns the driver's exit code."""
        with started(self, log) as driver:
            return driver.wait(JOB_TIMEOUT_S)

    def run(self, spark) -> None:
        """Run to the end with the tests' own session: another driver, as far as the job knows."""
        from jobs.copy_job import start_copy

        query = start_copy(spark, self.as_job())
        try:
            assert query.awaitTermination(JOB_TIMEOUT_S)
        finally:
            query.stop()


@contextmanager
def started(job: Copy, log: Path) -> Iterator[subprocess.Popen]:
    """A driver in a process group of its own; whatever is left of it at the end is killed."""
    with log.open("ab") as output:
        driver = subprocess.Popen(
            [sys.executable, str(JOBS / "copy_job.py"), json.dumps(job.as_job())],
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield driver
    finally:
        kill_group(driver)


def kill_group(driver: subprocess.Popen) -> None:
    with suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()


def produce(servers: str, topic: str, values: list[bytes]) -> None:
    """Write values, each also as its own key, and wait for all acknowledgements."""
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, value)
        producer.poll(0)
    assert producer.flush(60) == 0


def committed_messages(servers: str, topic: str) -> list[Message]:
    """What a `read_committed` consumer sees, up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "checker",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Message] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(30)
            assert message is not None, "the broker sent nothing"
            if message.error() is None:
                found.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise AssertionError(message.error())
        return found
    finally:
        consumer.close()


def committed(servers: str, topic: str) -> Counter[bytes]:
    """The multiset of the values of `committed_messages`."""
    return Counter(message.value() for message in committed_messages(servers, topic))


def partitions_of(servers: str, topic: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "checker"})
    try:
        return sorted(consumer.list_topics(topic, timeout=30).topics[topic].partitions)
    finally:
        consumer.close()


def open_transactions(job: Copy) -> list[str]:
    """The transactional ids of the job that are ongoing."""
    ids = TransactionalIds(job.sink_extra.get("transactionalIdPrefix", "eo-kafka"), job.job_name)
    control = ControlPlane({"bootstrap.servers": job.servers})
    try:
        tasks = control.open_transactions(ids.task_pattern(), ids.is_task)
        coordinator = control.describe([ids.coordinator])[ids.coordinator]
    finally:
        control.close()
    found = [described.transactional_id for described in tasks]
    ongoing = coordinator.state is TransactionState.ONGOING
    return [*found, ids.coordinator] if ongoing else found


def task_workers(driver: int) -> list[psutil.Process]:
    """The Python workers below a driver: what Spark's daemons have forked."""

    def is_daemon(process: psutil.Process | None) -> bool:
        return process is not None and "pyspark.daemon" in " ".join(process.cmdline())

    found = []
    for process in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            if is_daemon(process) and is_daemon(process.parent()):
                found.append(process)
    return found


def assert_settled(job: Copy) -> None:
    """Nothing is left open: LSO equals the high watermark on output and ledger, and no
    transaction of the job is ongoing."""
    control = ControlPlane({"bootstrap.servers": job.servers})
    try:

        def unstable() -> list[tuple[str, int]]:
            return [
                (topic, number)
                for topic in (job.sink_topic, job.ledger)
                for number in partitions_of(job.servers, topic)
                if control.end_offset(topic, number, True)
                < control.end_offset(topic, number, False)
            ]

        wait_until(lambda: not unstable(), f"LSO equals the high watermark: {unstable()}", 20)
    finally:
        control.close()
    assert open_transactions(job) == []


def assert_exactly_once(job: Copy, values: list[bytes]) -> None:
    """Every input value is in the output, once, and nothing else; nothing is left open."""
    found = committed(job.servers, job.sink_topic)
    wanted = Counter(values)
    assert found == wanted, (
        f"lost {sum((wanted - found).values())}, repeated or strange "
        f"{sum((found - wanted).values())} of {len(values)}"
    )
    assert_settled(job)
