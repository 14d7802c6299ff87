"""Three brokers, of which one at a time is killed or bounced while a job runs: the one that leads
the output or the ledger, or coordinates the job's or a participant's transactions."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker, KafkaCluster, cluster
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.errors import ReadTimeout
from eo_kafka.sources.lookup import OffsetLookup
from eo_kafka.sources.settings.options import SourceOptions
from harness import (
    JOB_TIMEOUT_S,
    Copy,
    assert_exactly_once,
    committed_messages,
    make_copy,
    open_transactions,
    partitions_of,
    produce,
    wait_until,
)

VALUES = [b"%d" % number for number in range(600)]


@pytest.fixture(scope="module")
def running_cluster() -> Iterator[KafkaCluster]:
    with cluster(3) as nodes:
        yield nodes


@pytest.fixture
def three(running_cluster) -> KafkaCluster:
    """All three up, and every replica in sync."""
    for broker in running_cluster.brokers:
        broker.start()
    await_in_sync(running_cluster)
    return running_cluster


def await_in_sync(three: KafkaCluster) -> None:
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers, "log_level": 0})

    def behind() -> list[tuple[str, int]]:
        return [
            (topic.topic, partition.id)
            for topic in admin.list_topics(timeout=30).topics.values()
            for partition in topic.partitions.values()
            if len(partition.isrs) < len(partition.replicas)
        ]

    wait_until(lambda: not behind(), f"all replicas are in sync: {behind()}")


@pytest.fixture
def job(three, tmp_path) -> Copy:
    servers = three.bootstrap_servers
    return make_copy(servers, topic_maker(servers), tmp_path, VALUES)


def leader(job: Copy, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": job.servers})
    return admin.list_topics(topic, timeout=30).topics[topic].partitions[0].leader


def coordinator(job: Copy, transactional_id: str) -> int:
    with closing(ControlPlane({"bootstrap.servers": job.servers})) as control:
        (node,) = control.ask(control._requests.coordinators, [transactional_id])
    return int(node)


def participant(job: Copy) -> str:
    """A prepared transaction's id, or, before one is, the id that the next test step will see."""
    ids = job.ids
    return next((name for name in open_transactions(job) if ids.is_task(name)), ids.coordinator)


VICTIMS: dict[str, Callable[[Copy], int]] = {
    "output-leader": lambda job: leader(job, job.sink_topic),
    "ledger-leader": lambda job: leader(job, job.ledger),
    "jobs-coordinator": lambda job: coordinator(job, job.ids.coordinator),
    "participants-coordinator": lambda job: coordinator(job, participant(job)),
}
MOMENTS = ("S3.while_writing", "S6.before_decision", "S6.after_decision", "S7.after_first_end_txn")
SHORT = [
    ("S3.while_writing", "output-leader", "kill"),
    ("S6.before_decision", "jobs-coordinator", "kill"),
    ("S6.after_decision", "ledger-leader", "stop"),
    ("S7.after_first_end_txn", "participants-coordinator", "kill"),  # C11
]
LONG = [one for one in itertools.product(MOMENTS, VICTIMS, ("kill", "stop")) if one not in SHORT]


@pytest.mark.parametrize(
    ("moment", "victim", "how"),
    [*SHORT, *(pytest.param(*one, marks=pytest.mark.full) for one in LONG)],
)
def test_a_broker_that_goes_and_comes_back_loses_and_repeats_nothing(
    three, job, spark, crash_points, moment, victim, how
):
    crash_points.arm(moment, "wait")
    with job.running(spark) as query:
        wait_until(lambda: crash_points.reached(moment), f"the job is at {moment}", JOB_TIMEOUT_S)
        broker = three.brokers[VICTIMS[victim](job) - 1]
        end(broker, how)
        crash_points.release(moment)
        broker.start()
        assert query.awaitTermination(JOB_TIMEOUT_S), "the query hangs"
    assert_exactly_once(job, VALUES)


def end(broker: KafkaBroker, how: str) -> None:
    broker.kill() if how == "kill" else broker.stop()


class Watcher(threading.Thread):
    """A `read_committed` reader of a topic, from its start and for as long as the block lasts."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "watcher",
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, n, 0) for n in partitions_of(servers, topic)])
        self._ended = threading.Event()
        self.seen: list[tuple[int, int, bytes]] = []  # partition, offset, value

    def __enter__(self) -> Watcher:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join(30)

    def run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(0.2)
            if message is not None and message.error() is None:
                self.seen.append((message.partition(), message.offset(), message.value()))
        self._consumer.close()


@pytest.mark.full
@pytest.mark.parametrize("rounds", [1, 3])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_rolling_bounce_shows_a_reader_nothing_twice(three, spark, tmp_path, how, rounds):
    values = [b"%d" % number for number in range(6000 * rounds)]
    servers = three.bootstrap_servers
    job = make_copy(servers, topic_maker(servers), tmp_path, values, per_batch=30)
    with Watcher(job.servers, job.sink_topic) as watcher:
        with job.running(spark) as query:

            def await_commit() -> None:
                before = len(watcher.seen)

                def goes_on() -> bool:
                    assert query.exception() is None, query.exception()
                    return len(watcher.seen) > before

                wait_until(goes_on, "the job commits", JOB_TIMEOUT_S)

            for broker in three.brokers * rounds:
                await_commit()
                end(broker, how)
                broker.start()
                await_in_sync(three)
            await_commit()
            assert query.isActive, "the job was over before the bounces were"
        job.per_batch = len(values)  # what is left
        job.run(spark)
        wait_until(
            lambda: len(watcher.seen) >= len(values), "the reader is at the end", JOB_TIMEOUT_S
        )
    assert_exactly_once(job, values)
    assert set(Counter(value for _, _, value in watcher.seen).values()) == {1}
    final = {
        (message.partition(), message.offset(), message.value())
        for message in committed_messages(job.servers, job.sink_topic)
    }
    assert set(watcher.seen) == final


def test_a_leader_that_does_not_answer_gives_no_offset(three):
    """The client then says -1001 for its partitions, without an error (the soak found that)."""
    servers = three.bootstrap_servers
    topic = topic_maker(servers)("in", partitions=6)
    produce(servers, topic, VALUES)
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "fetchOffset.timeoutMs": "4000",
    }
    lookup = OffsetLookup(SourceOptions.parse(options, streaming=True))
    known = lookup.latest(lookup.partitions())
    assert sum(known.values()) == len(VALUES)
    admin = AdminClient({"bootstrap.servers": servers})
    stopped = three.brokers[admin.list_topics(topic).topics[topic].partitions[0].leader - 1]
    os.kill(stopped.pid, signal.SIGSTOP)
    try:
        with suppress(ReadTimeout):  # or another broker leads it in time, on a slow machine
            assert lookup.latest(known.keys()) == known
    finally:
        os.kill(stopped.pid, signal.SIGCONT)
    wait_until(lambda: latest_of(lookup, known) == known, "the broker answers again")


def test_a_partition_whose_only_broker_is_away_is_waited_for(three):
    """By a client that never knew its leader: it is told that there is none."""
    servers = three.bootstrap_servers
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topic = "without-replicas"
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    produce(servers, topic, VALUES)
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    options = SourceOptions.parse({**given, "fetchOffset.timeoutMs": "120000"}, streaming=True)
    wanted = OffsetLookup(options).partitions()

    def leader() -> int:
        return admin.list_topics(topic).topics[topic].partitions[0].leader

    only = three.brokers[leader() - 1]
    only.stop()
    wait_until(lambda: leader() < 0, "nobody leads it")
    back = threading.Timer(8, only.start)
    back.start()
    assert list(OffsetLookup(options).latest(wanted).values()) == [len(VALUES)]
    back.join()


def latest_of(lookup: OffsetLookup, partitions: Iterable[TopicPartition]) -> object:
    with suppress(ReadTimeout):
        return lookup.latest(list(partitions))


def test_three_nodes_get_a_ledger_that_one_of_them_may_lose(three, job, spark):
    job.run(spark)
    assert_exactly_once(job, VALUES)
    admin = AdminClient({"bootstrap.servers": job.servers})
    found = admin.list_topics(job.ledger, timeout=30).topics[job.ledger].partitions
    assert {len(partition.replicas) for partition in found.values()} == {3}
    resource = ConfigResource(ResourceType.TOPIC, job.ledger)
    config = admin.describe_configs([resource])[resource].result(30)
    assert config["min.insync.replicas"].value == "2"


def test_a_ledger_without_replicas_is_refused_unless_told_otherwise(three, job, spark):
    admin = AdminClient({"bootstrap.servers": job.servers})
    ledger = NewTopic("weak", 2, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([ledger])["weak"].result(30)
    job.sink_extra = {"ledgerTopic": "weak"}
    with pytest.raises(Exception, match="Topic 'weak' has one replica") as stop:
        job.run(spark)
    assert "allowWeakReplication" in str(stop.value)
    job.sink_extra["allowWeakReplication"] = "true"
    job.run(spark)
    assert_exactly_once(job, VALUES)
