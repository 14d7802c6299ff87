"""Snapshots on three brokers: a node lost in the middle of one, all of them killed, the job's disk
lost with them; and two drivers on the two sides of a cut, of which only one can decide."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

import eo_kafka
from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaCluster, cluster
from eo_kafka.testing.proxy import proxied_broker
from harness import (
    JOB_TIMEOUT_S,
    Copy,
    assert_exactly_once,
    kill_driver_at,
    make_copy,
    produce,
    read_ledger,
    started,
    wait_until,
)
from test_broker_failures import await_in_sync, leader
from test_network import ProxiedCopy, await_reached, decisions

VALUES = [b"%d" % number for number in range(600)]


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    with cluster(3) as nodes:
        yield nodes


@pytest.fixture
def job(three, tmp_path) -> Copy:
    three.start()
    await_in_sync(three)
    servers = three.bootstrap_servers
    return make_copy(
        servers,
        topic_maker(servers),
        tmp_path,
        VALUES,
        per_batch=200,
        sink_extra={"snapshots": "true"},
    )


def state_topic(job: Copy) -> str:
    return f"__eo_kafka.{job.job_name}.state"


def lose_the_disk(job: Copy) -> None:
    shutil.rmtree(job.checkpoint)
    go_on_at(job, job.checkpoint.with_name("elsewhere"))


def go_on_at(job: Copy, place: Path) -> None:
    """A person's word: the query starts there next."""
    job.checkpoint = place
    assert eo_kafka.restore(str(place), job.job_name, job.sink_options, progress=False)


def test_the_state_topic_may_lose_a_node(job, three, spark):
    job.run(spark)
    admin = AdminClient({"bootstrap.servers": job.servers})
    found = admin.list_topics(state_topic(job), timeout=30).topics[state_topic(job)].partitions
    assert {len(partition.replicas) for partition in found.values()} == {3}
    resource = ConfigResource(ResourceType.TOPIC, state_topic(job))
    config = admin.describe_configs([resource])[resource].result(30)
    assert config["min.insync.replicas"].value == "2"
    assert config["cleanup.policy"].value == "compact"
    assert config["retention.ms"].value == "-1"


@pytest.mark.full
def test_a_node_that_dies_in_the_middle_of_a_snapshot(job, three, spark, crash_points):
    """The one that leads the state topic, after the files were found and before they are sent."""
    job.run(spark)  # so that there is a state topic
    more = [b"more %d" % number for number in range(300)]
    produce(job.servers, job.source_topic, more)
    crash_points.arm("S6.snapshot_taken", "wait")
    with job.running(spark) as query:
        wait_until(
            lambda: crash_points.reached("S6.snapshot_taken"), "a snapshot is taken", JOB_TIMEOUT_S
        )
        broker = three.brokers[leader(job, state_topic(job)) - 1]
        broker.kill()
        crash_points.release("S6.snapshot_taken")
        assert query.awaitTermination(JOB_TIMEOUT_S), "the query hangs"
        broker.start()
    lose_the_disk(job)
    produce(job.servers, job.source_topic, VALUES)
    job.run(spark)
    assert_exactly_once(job, [*VALUES, *more, *VALUES])


def test_everything_stops_at_once_and_starts_again_from_the_brokers_disks(
    job, three, spark, crash_points, tmp_path
):
    """Lossless restart: all brokers and the driver are killed, and the job's own disk is lost."""
    kill_driver_at(job, crash_points, "S6.after_decision", tmp_path / "log")
    for broker in three.brokers:
        broker.kill()
    three.start()
    await_in_sync(three)
    lose_the_disk(job)
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize(
    "point", ["S6.before_decision", pytest.param("S6.after_decision", marks=pytest.mark.full)]
)
def test_of_two_drivers_on_the_two_sides_of_a_cut_only_one_decides(
    spark, crash_points, tmp_path, point
):
    """The first driver is cut off from Kafka in the middle of its commit. A second one is started
    elsewhere, from the snapshot, because the first one's machine cannot be reached. Then the cut
    heals, and the first goes on."""
    with proxied_broker() as (broker, network):
        servers = broker.bootstrap_servers
        plain = make_copy(
            servers,
            topic_maker(servers),
            tmp_path,
            VALUES,
            per_batch=200,
            sink_extra={"snapshots": "true"},
        )
        cut_off = ProxiedCopy(**{**vars(plain), "proxy": network.port})
        plain.run(spark)  # both have a snapshot to start from
        more = [b"more %d" % number for number in range(400)]
        produce(servers, plain.source_topic, more)
        crash_points.arm(point, "wait")
        with started(cut_off, tmp_path / "log") as first:
            await_reached(crash_points, point)
            network.cut()
            crash_points.release(point)
            elsewhere = Copy(**vars(plain))
            go_on_at(elsewhere, tmp_path / "elsewhere")
            elsewhere.run(spark)
            assert_exactly_once(elsewhere, [*VALUES, *more])
            ends = read_ledger(elsewhere)
            network.heal()
            assert first.wait(JOB_TIMEOUT_S) != 0, "the first driver goes on as if nothing were"
        assert_exactly_once(elsewhere, [*VALUES, *more])
        assert read_ledger(elsewhere).decisions == ends.decisions
        batches = [batch for batch, state, _ in decisions(elsewhere) if state == "DECIDED"]
        assert len(batches) == len(set(batches)), "a batch was decided twice"
