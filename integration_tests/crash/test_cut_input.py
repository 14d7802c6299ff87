"""An input topic whose log is cut and written again: the query is told, and skips nothing silently.

A broker's disk loses what the broker had not made it write (Kafka leaves that to replicas), or a
broker leads that did not have the newest records. Offsets look as before in both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker, cluster
from harness import (
    Copy,
    assert_exactly_once,
    committed,
    kill_driver_at,
    make_copy,
    produce,
    wait_until,
)

OLD = [b"old-%03d" % n for n in range(100)]
NEW = [b"new-%03d" % n for n in range(60)]
LENIENT = {"failOnDataLoss": "false"}


@pytest.fixture
def one() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def job(one, tmp_path) -> Copy:
    """One partition, and each record is a batch in the log."""
    servers = one.bootstrap_servers
    job = make_copy(servers, topic_maker(servers), tmp_path, [], partitions=1)
    one_by_one(job, OLD)
    return job


def one_by_one(job: Copy, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": job.servers, "linger.ms": 0})
    for value in values:
        producer.produce(job.source_topic, value, value)
        assert producer.flush(30) == 0


def cut(one: KafkaBroker, job: Copy, kept: int, of: int = len(OLD)) -> None:
    """The machine loses its power: of the log's file, `kept` records were on the disk."""
    one.kill()
    (log,) = one.directory.glob(f"**/{job.source_topic}-0/*.log")
    os.truncate(log, log.stat().st_size * kept // of)
    one.start()


def stops(job: Copy, spark, kept: int) -> None:
    """At each start, and nothing is written."""
    before = committed(job.servers, job.sink_topic)
    for _ in range(2):
        with pytest.raises(Exception, match=rf"{job.source_topic}-0 was cut at offset {kept}, and"):
            job.run(spark)
    assert committed(job.servers, job.sink_topic) == before


def test_a_log_that_is_cut_and_as_long_again_stops_the_query(one, job, spark):
    job.run(spark)
    cut(one, job, kept=60)
    produce(job.servers, job.source_topic, NEW)  # from offset 60 to 120
    stops(job, spark, kept=60)
    job.source_extra |= LENIENT
    job.run(spark)
    produce(job.servers, job.source_topic, later := [b"later"])
    job.source_extra |= {"failOnDataLoss": "true"}  # told once
    job.run(spark)
    assert_exactly_once(job, [*OLD, *NEW[40:], *later])


@pytest.mark.full  # docs/guarantees.md says so of it
def test_sparks_own_connector_passes_over_what_is_in_the_place_of_lost_records(one, job, spark):
    job.source = "kafka"
    job.run(spark)
    cut(one, job, kept=60)
    produce(job.servers, job.source_topic, NEW)
    job.run(spark)
    assert_exactly_once(job, [*OLD, *NEW[40:]])


def test_one_that_is_cut_behind_the_query_does_not(one, job, spark):
    """What the query has not read was lost to everybody."""
    job.run(spark)
    more = [b"old-%03d" % n for n in range(100, 200)]
    one_by_one(job, more)
    cut(one, job, kept=110, of=200)
    produce(job.servers, job.source_topic, NEW)
    job.run(spark)
    assert_exactly_once(job, [*OLD, *more[:10], *NEW])


@pytest.mark.parametrize("lenient", [False, True], ids=["stops", "goes-on"])
def test_so_does_a_restart_in_the_middle_of_a_batch(
    one, job, spark, crash_points, tmp_path, lenient
):
    """It was planned on what is gone. One that goes on reads what is there, once."""
    kill_driver_at(job, crash_points, "S6.before_decision", tmp_path / "log")
    cut(one, job, kept=60)
    produce(job.servers, job.source_topic, NEW)
    if not lenient:
        stops(job, spark, kept=60)
        return
    job.source_extra |= LENIENT
    job.run(spark)
    assert_exactly_once(job, [*OLD[:60], *NEW])


@pytest.mark.full  # CI: where one broker's log is cut, the query finds it by the same answers
def test_a_leader_that_did_not_have_the_newest_records(spark, tmp_path):
    """An unclean election, among three brokers with Kafka's defaults."""
    with cluster(3) as three:
        servers = three.bootstrap_servers
        first, second, _ = three.brokers
        admin = AdminClient({"bootstrap.servers": servers})
        topic = f"in-{uuid4().hex[:8]}"
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        replicas = [[first.node_id, second.node_id]]
        wanted = NewTopic(topic, 1, replica_assignment=replicas, config=config)
        admin.create_topics([wanted])[topic].result(30)

        def leads(broker: KafkaBroker, in_sync: int) -> bool:
            found = admin.list_topics(topic, timeout=30).topics[topic].partitions[0]
            return found.leader == broker.node_id and len(found.isrs) == in_sync

        wait_until(lambda: leads(first, 2), "the first leads, and the second follows")
        produce(servers, topic, OLD[:60])
        second.kill()
        wait_until(lambda: leads(first, 1), "the second is out of sync")
        produce(servers, topic, OLD[60:])
        job = Copy(
            servers=servers,
            source_topic=topic,
            sink_topic=topic_maker(servers)("out"),
            checkpoint=tmp_path / "checkpoint",
            job_name=f"job-{topic}",
        )
        job.run(spark)
        assert_exactly_once(job, OLD)
        first.kill()
        second.start()
        wait_until(lambda: leads(second, 1), "the second leads")
        produce(servers, topic, NEW)
        stops(job, spark, kept=60)
