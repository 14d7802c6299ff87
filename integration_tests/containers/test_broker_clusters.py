"""Three brokers in containers, with Kafka's defaults, of which one hangs, is cut off, has a wrong
clock, or all are upgraded one after the other while the copy job runs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from docker_engine import engine, kafka_image  # noqa: F401 - a fixture
from eo_kafka.broker.jars import DEFAULT_VERSION
from eo_kafka.clients.kafka import control_plane
from eo_kafka.errors import OutcomeUnknown, ReadTimeout
from eo_kafka.sinks.batches.committable import WritePlan
from eo_kafka.sinks.protocol.finisher import Finisher
from eo_kafka.state.ledger.ledger import DECISION_PARTITION
from eo_kafka.state.ledger.topics import TOKEN_PARTITION
from hand_made_tasks import HandMadeTasks, batch_of
from harness import assert_exactly_once, committed, produce, wait_until
from kafka_containers import Broker, KafkaContainers
from supervised_copies import VALUES, copy_while, finish, job_on, stopped_at

OLDEST, NEWEST = "4.0.0", "4.4.0"
# Only calls that ask for the time of day are told a wrong one: Java waits by the monotonic clock.
WRONG_CLOCK = (
    *("-e", "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1"),
    *("-e", "FAKETIME_DONT_FAKE_MONOTONIC=1"),
)
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def running_three(engine) -> Iterator[KafkaContainers]:  # noqa: F811
    with KafkaContainers(kafka_image(DEFAULT_VERSION), nodes=3) as kafka:
        yield kafka


@pytest.fixture
def three(running_three) -> KafkaContainers:
    running_three.await_all()
    return running_three


@pytest.mark.parametrize("moment", ["S3.while_writing", "S6.before_decision"])
@pytest.mark.parametrize("fault", ["pause", "cut off"])
def test_a_broker_that_answers_nothing_for_a_while(
    three, spark, crash_points, tmp_path, fault, moment
):
    job = job_on(three, tmp_path)
    broker = three.brokers[0]
    with stopped_at(moment, job, spark, crash_points):
        broker.pause() if fault == "pause" else three.cut_off(broker)
        # Kafka gives it up after 9 s, and elects others. Only then is it what a job must survive.
        wait_until(lambda: given_up(three, broker.node_id), "the others lead", 120)
    broker.unpause() if fault == "pause" else three.reconnect(broker)
    finish(job, spark)
    three.await_all()  # a leader of before shows a consumer the end that it knew
    assert_exactly_once(job, VALUES)


def given_up(three: KafkaContainers, node_id: int) -> bool:
    """Whether the two others say that it leads nothing."""
    others = ",".join(f"127.0.0.1:{one.port}" for one in three.brokers if one.node_id != node_id)
    metadata = AdminClient({"bootstrap.servers": others, "log_level": 0}).list_topics(timeout=10)
    leaders = {
        one.leader for topic in metadata.topics.values() for one in topic.partitions.values()
    }
    return node_id not in leaders


@pytest.mark.parametrize("partition", [DECISION_PARTITION, TOKEN_PARTITION])
def test_a_leader_that_only_clients_reach_hides_no_decision_and_no_token(
    engine,  # noqa: F811
    monkeypatch,
    partition,
):
    """The others elect another leader and take a decision, whose driver dies. The next one asks a
    broker that tells the end of before. It may stop, but not abort or repeat what was decided."""
    with KafkaContainers(kafka_image(DEFAULT_VERSION), nodes=3) as three:
        job, old = led_apart(three, partition)
        _, ledger = job.options.job_and_ledger
        before = ends(job, ledger, partition)
        three.part_from_others(old)
        wait_until(lambda: given_up(three, old.node_id), "the others lead", 120)
        others = ",".join(f"127.0.0.1:{one.port}" for one in three.brokers if one is not old)
        decided = HandMadeTasks(others, job.topic, query=job.query, name=job.name)
        report = decided.write(decided.plan(), iter([batch_of(b"1")]), batch=1)
        with monkeypatch.context() as patched, pytest.raises(ZeroDivisionError):
            patched.setattr(Finisher, "finish", lambda *_: 1 / 0)
            decided.commit(report)

        def asks_the_old_one() -> bool:
            control_plane.forget(job.options.kafka)
            return ends(job, ledger, partition) == before

        wait_until(asks_the_old_one, "a client begins with the old leader", 300)
        assert not plan_at_last(job).must_write(1, 0)
        assert committed(others, job.topic) == Counter([b"0", b"1"])


def led_apart(three: KafkaContainers, partition: int) -> tuple[HandMadeTasks, Broker]:
    """A job that has written a batch, and the leader of that partition of its ledger, which does
    not coordinate the job's transactions."""
    admin = AdminClient({"bootstrap.servers": three.bootstrap_servers})
    for number in itertools.count():
        topic = f"out-{number}"
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(30)
        job = HandMadeTasks(three.bootstrap_servers, topic)
        job.commit(job.write(job.plan(), iter([batch_of(b"0")])))
        ids, control = job.options.ids, control_plane.shared(job.options.kafka)
        names = [ids.coordinator, *(ids.attempt_slots("main", 0, at, 0)[0] for at in (2, 3))]
        coordinators = {int(node) for node in control.ask(control._requests.coordinators, names)}
        _, ledger = job.options.job_and_ledger
        leader = admin.list_topics(ledger).topics[ledger].partitions[partition].leader
        if leader not in coordinators:
            return job, next(one for one in three.brokers if one.node_id == leader)
    raise AssertionError


def ends(job: HandMadeTasks, ledger: str, partition: int) -> list[int]:
    asked = [(ledger, partition, False), (ledger, partition, True)]
    return control_plane.shared(job.options.kafka).look(ends=asked).ends


def plan_at_last(job: HandMadeTasks) -> WritePlan:
    """S1, by the client that was found first. Where that stops it, as it may, it starts again."""
    for _ in range(5):
        try:
            return job.plan()
        except (OutcomeUnknown, ReadTimeout) as error:
            print(error)
    raise AssertionError("it stops each time")


@pytest.mark.parametrize("skew", ["+120s", "-120s"])
def test_a_broker_whose_clock_is_wrong(engine, spark, tmp_path, skew):  # noqa: F811
    options = {1: (*WRONG_CLOCK, "-e", f"FAKETIME={skew}")}
    with KafkaContainers(kafka_image(DEFAULT_VERSION), nodes=3, options=options) as three:
        wrong, right = (int(broker.sh("date +%s")) for broker in three.brokers[:2])
        assert abs(wrong - right) > 100
        job = job_on(three, tmp_path)
        finish(job, spark)
        assert_exactly_once(job, VALUES)


def test_brokers_upgraded_one_by_one_while_the_job_runs(engine, spark, tmp_path):  # noqa: F811
    with KafkaContainers(kafka_image(OLDEST), nodes=3) as three:
        newest = kafka_image(NEWEST)
        job = job_on(three, tmp_path)
        values = [*VALUES]

        def upgrade() -> None:
            for broker in three.brokers:
                more = [b"%d-%d" % (broker.node_id, number) for number in range(600)]
                values.extend(more)
                produce(job.servers, job.source_topic, more)
                broker.stop()
                three.replace(broker, newest)
                three.await_all()

        copy_while(job, spark, upgrade)
        finish(job, spark)
        assert_exactly_once(job, values)
