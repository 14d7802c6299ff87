"""What the tests of the guarantee share: a job to kill, crash points to arm, and what must hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import psutil
from confluent_kafka import KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient

import warm_drivers
from eo_kafka.clients.kafka.topics import settings_of
from eo_kafka.clients.kafka.transactional_id import TransactionalIds
from eo_kafka.core.transaction import Described, TransactionState
from eo_kafka.state.ledger.ledger import DECISION_PARTITION, Ledger, fold
from eo_kafka.state.ledger.log_reader import read_records
from eo_kafka.testing.processes import CrashPoints, task_workers, wait_until  # noqa: F401 - tests find them here
from eo_kafka.testing.records import (
    committed_messages,
    control_plane,
    partitions_of,
    write,
)

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

JOBS = Path(__file__).parent / "jobs"
JOB_TIMEOUT_S = 180


@dataclass
class Copy:
    """A copy of `source_topic` to `sink_topic` on one checkpoint; `source="direct"` is the direct
    lane."""

    servers: str
    source_topic: str
    sink_topic: str
    checkpoint: Path
    job_name: str
    per_batch: int | None = 400
    tasks: int = 0
    timeout_ms: int = 60_000
    source: str = "eo-kafka"
    sink: str = "eo-kafka"
    master: str = "local[2,4]"
    source_extra: dict[str, str] = field(default_factory=dict)
    sink_extra: dict[str, str] = field(default_factory=dict)
    python: Path = Path(sys.executable)
    variables: dict[str, str] | None = None  # None: those of the tests
    script: ClassVar[str] = "copy_job.py"
    # What a value's key must be, as `produce` writes it; None: not by the value alone.
    key_of: ClassVar[Callable[[bytes], bytes] | None] = staticmethod(lambda value: value)

    @property
    def ledger(self) -> str:
        return self.sink_extra.get("ledgerTopic", f"__eo_kafka.{self.job_name}.ledger")

    @property
    def sink_options(self) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.servers,
            "topic": self.sink_topic,
            "jobName": self.job_name,
            "checkpointLocation": str(self.checkpoint),
            "kafka.transaction.timeout.ms": str(self.timeout_ms),
            **self.sink_extra,
        }

    def as_job(self) -> dict[str, object]:
        limit = {} if self.per_batch is None else {"maxOffsetsPerTrigger": str(self.per_batch)}
        return {
            "master": self.master,
            "source": self.source,
            "sink": self.sink,
            "tasks": self.tasks,
            "source_options": {
                "kafka.bootstrap.servers": self.servers,
                "subscribe": self.source_topic,
                "startingOffsets": "earliest",
                **limit,
                **self.source_extra,
            },
            "sink_options": self.sink_options,
        }

    def run_in_own_driver(self, log: Path) -> int:
        """Run to the end, or to its death. Returns the driver's exit code."""
        with started(self, log) as driver:
            return driver.wait(JOB_TIMEOUT_S)

    def run(self, spark) -> None:
        """Run to the end with the tests' own session: another driver, as far as the job knows."""
        with self.running(spark) as query:
            assert query.awaitTermination(JOB_TIMEOUT_S)

    @contextmanager
    def running(self, spark) -> Iterator[StreamingQuery]:
        """The query while it runs in the tests' own session."""
        query = self.start(spark)
        try:
            yield query
        finally:
            query.stop()

    def start(self, spark) -> StreamingQuery:
        """Start the query in the tests' own session."""
        from jobs.copy_job import start_copy

        return start_copy(spark, self.as_job())

    @property
    def ids(self) -> TransactionalIds:
        prefix = self.sink_extra.get("transactionalIdPrefix", "eo-kafka")
        return TransactionalIds(prefix, self.job_name)


@dataclass
class Stateful(Copy):
    """A query that keeps state, and restores it when its checkpoint is missing."""

    operator: str = "window"
    mode: str = "append"  # the others by eo_kafka.foreach_batch
    conf: dict[str, str] = field(default_factory=dict)
    script: ClassVar[str] = "stateful_job.py"

    def as_job(self) -> dict[str, object]:
        found = super().as_job()
        found["sink_options"] = {"snapshots": "true", **self.sink_options}
        return {**found, "operator": self.operator, "mode": self.mode, "conf": self.conf}

    def start(self, spark) -> StreamingQuery:
        from jobs.stateful_job import start_stateful

        return start_stateful(spark, self.as_job())


C = TypeVar("C", bound=Copy)


def make_copy(
    servers: str,
    make_topic,
    tmp_path: Path,
    values: list[bytes],
    partitions: int = 2,
    kind: type[C] = Copy,
    **settings,
) -> C:
    """A copy of `values`, which are in a new topic of `partitions` partitions already."""
    source = make_topic("in", partitions=partitions)
    produce(servers, source, values)
    return kind(
        servers=servers,
        source_topic=source,
        sink_topic=make_topic("out", partitions=2),
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{source}",
        **settings,
    )


@contextmanager
def started(job: Copy, log: Path) -> Iterator[subprocess.Popen]:
    """A driver in a process group of its own; whatever is left of it at the end is killed."""
    driver = start_driver(job, log)
    try:
        yield driver
    finally:
        kill_group(driver)


def start_driver(job: Copy, log: Path) -> subprocess.Popen:
    """One that is up already, if there is one that will do."""
    if job.variables is None and job.python == Path(sys.executable):
        warm = warm_drivers.take(JOBS / job.script, job.as_job(), log)
        if warm is not None:
            return warm
    with log.open("ab") as output:
        return subprocess.Popen(
            [job.python, str(JOBS / job.script), json.dumps(job.as_job())],
            env=job.variables,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def kill_driver_at(job: Copy, points: CrashPoints, point: str, log: Path) -> None:
    """Run in a driver of its own and make it die at `point`."""
    points.arm(point, "kill-driver")
    code = job.run_in_own_driver(log)
    assert points.reached(point), f"{point} was not reached:\n{log.read_text()[-4000:]}"
    assert code != 0, "the driver survived"


def fail_at(job: Copy, spark, points: CrashPoints, point: str) -> None:
    """Run in the tests' own session and make `commit` raise at `point`, for which Spark then calls
    `abort`: after a decision this leaves what a death leaves, and costs no driver."""
    points.arm(point, "raise")
    try:
        job.run(spark)
    except Exception as error:
        assert "CrashPointReached" in str(error), error
        return
    raise AssertionError(f"{point} was not reached, or survived")


def kill_group(driver: subprocess.Popen, but: int | None = None) -> None:
    """Kill a driver and all that belongs to it, `but` one process. Spark's Python daemons have
    process groups of their own, and live on for a while; the session is the driver's."""
    for pid in (driver.pid, *psutil.pids()):
        with suppress(ProcessLookupError):
            if os.getsid(pid) == driver.pid and pid != but:
                os.kill(pid, signal.SIGKILL)
    driver.wait()


def produce(servers: str, topic: str, values: list[bytes]) -> None:
    """Write values, each also as its own key, and wait for all acknowledgements."""
    write(servers, topic, [(value, value) for value in values])


def copy_topic(servers: str, topic: str) -> str:
    """What a tool that copies topics to another cluster leaves there; the copy's name."""
    records, partitions = committed_messages(servers, topic), len(partitions_of(servers, topic))
    admin, copy = AdminClient({"bootstrap.servers": servers}), f"{topic}.copy"
    policy = {"cleanup.policy": settings_of(admin, topic)["cleanup.policy"]}
    admin.create_topics([NewTopic(copy, partitions, config=policy)])[copy].result(30)
    producer = Producer({"bootstrap.servers": servers})
    for one in records:
        producer.produce(copy, one.value(), one.key(), one.partition())
    assert producer.flush(30) == 0
    return copy


def committed(servers: str, topic: str) -> Counter[bytes]:
    """The multiset of the values of `committed_messages`."""
    return Counter(message.value() for message in committed_messages(servers, topic))


def written(servers: str, topic: str) -> Counter[bytes]:
    """All that was ever written, committed or not: more than `committed` where something was
    aborted and written again."""
    found = committed_messages(servers, topic, "read_uncommitted")
    return Counter(message.value() for message in found)


def open_transactions(job: Copy) -> list[str]:
    """The transactional ids of the job that are ongoing."""
    name = job.ids.coordinator
    with control_plane(job.servers) as control:
        coordinator = control.describe_one(name)
    found = [described.transactional_id for described in open_tasks(job)]
    return [*found, name] if coordinator.state is TransactionState.ONGOING else found


def open_tasks(job: Copy) -> list[Described]:
    """The transactions of the job's tasks that are ongoing."""
    with control_plane(job.servers) as control:
        return control.open_transactions(job.ids.task_pattern(), job.ids.is_task)


def read_ledger(job: Copy) -> Ledger:
    """What the job's ledger says now, read as a stranger would: without a fence."""
    with control_plane(job.servers) as control:
        end = control.end_offset(job.ledger, DECISION_PARTITION, committed=True)
    settings = {"bootstrap.servers": job.servers}
    found = read_records(settings, job.ledger, DECISION_PARTITION, 0, end)
    return fold((key, value) for _, key, value in found)


def wait_until_timed_out(job: Copy) -> None:
    """The broker has aborted what tasks of the job had left open for longer than its timeout."""
    wait_until(lambda: not open_transactions(job), "Kafka aborts what timed out", 60)
    with closing(KafkaAdminClient(bootstrap_servers=job.servers)) as admin:
        listed = admin.list_transactions(state_filters=["CompleteAbort"])
    aborted = [one.transactional_id for of_broker in listed.values() for one in of_broker]
    assert any(map(job.ids.is_task, aborted)), "nothing was left to time out"


def assert_settled(job: Copy) -> None:
    """Nothing is left open: LSO equals the high watermark on output and ledger, and no
    transaction of the job is ongoing."""
    with control_plane(job.servers) as control:

        def unstable() -> list[tuple[str, int]]:
            return [
                (topic, number)
                for topic in (job.sink_topic, job.ledger)
                for number in partitions_of(job.servers, topic)
                if control.end_offset(topic, number, True)
                < control.end_offset(topic, number, False)
            ]

        wait_until(lambda: not unstable(), f"LSO equals the high watermark: {unstable()}", 20)
    assert open_transactions(job) == []


def delete_records(servers: str, topic: str, before: int, partition: int = 0) -> None:
    """As retention does: the log begins at offset `before` (-1: at its end) from then on."""
    admin, at = AdminClient({"bootstrap.servers": servers}), TopicPartition(topic, partition)
    admin.delete_records([TopicPartition(topic, partition, before)])[at].result(30)


def delete_topic(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=30).topics, f"{topic} is gone", 60)


def recreate_topic(servers: str, topic: str, values: list[bytes], partitions: int = 1) -> None:
    """Delete it and make another of its name, which holds `values`."""
    delete_topic(servers, topic)
    admin = AdminClient({"bootstrap.servers": servers})

    def is_made() -> bool:
        try:
            admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
        except KafkaException:  # its deletion is not over
            return False
        return True

    wait_until(is_made, f"{topic} is made again")
    produce(servers, topic, values)


def assert_exactly_once(job: Copy, values: list[bytes]) -> None:
    """Every input value is in the output with its key, once, and nothing else; nothing is left
    open."""
    messages, key_of = committed_messages(job.servers, job.sink_topic), job.key_of
    found = Counter((key_of and one.key(), one.value()) for one in messages)
    wanted = Counter((key_of and key_of(value), value) for value in values)
    lost, strange = wanted - found, found - wanted
    assert found == wanted, (
        f"lost {lost.total()}, repeated or strange {strange.total()} of {len(values)}: "
        f"{list(lost)[:3]}, {list(strange)[:3]}"
    )
    assert_settled(job)
