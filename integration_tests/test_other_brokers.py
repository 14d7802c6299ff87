"""Kafka as others run it: without KIP-890's epoch bump (transaction.version 1), and three nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker, KafkaCluster, cluster
from eo_kafka.sinks.control_plane import ControlPlane
from harness import Copy, assert_exactly_once, open_transactions, produce, wait_until

VALUES = [b"%d" % number for number in range(600)]


def copy_job(servers: str, tmp_path, **settings) -> Copy:
    make_topic = topic_maker(servers)
    source = make_topic("in", partitions=2)
    produce(servers, source, VALUES)
    return Copy(
        servers=servers,
        source_topic=source,
        sink_topic=make_topic("out", partitions=2),
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{source}",
        **settings,
    )


@pytest.fixture(scope="module")
def old_style() -> Iterator[KafkaBroker]:
    with KafkaBroker(features={"transaction.version": 1}) as broker:
        yield broker


@pytest.mark.parametrize(
    ("point", "outage"),
    [
        ("S6.after_decision", False),
        ("S7.after_first_end_txn", False),
        ("S7.after_first_end_txn", True),
        ("S7.after_last_end_txn", False),
    ],
)
def test_transaction_version_1_is_ended_with_endtxn_3(
    old_style, spark, crash_points, tmp_path, point, outage
):
    control = ControlPlane({"bootstrap.servers": old_style.bootstrap_servers})
    assert control.end_txn_version() == 3
    control.close()
    job = copy_job(old_style.bootstrap_servers, tmp_path, timeout_ms=10_000)
    crash_points.arm(point, "kill-driver")
    assert job.run_in_own_driver(tmp_path / "log") != 0
    assert crash_points.reached(point)
    if outage:
        wait_until(lambda: not open_transactions(job), "Kafka aborts what timed out")
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.fixture(scope="module")
def three() -> Iterator[KafkaCluster]:
    with cluster(3) as nodes:
        yield nodes


def test_three_nodes_get_a_ledger_that_one_of_them_may_lose(three, spark, tmp_path):
    job = copy_job(three.bootstrap_servers, tmp_path)
    job.run(spark)
    assert_exactly_once(job, VALUES)
    admin = AdminClient({"bootstrap.servers": job.servers})
    found = admin.list_topics(job.ledger, timeout=30).topics[job.ledger].partitions
    assert {len(partition.replicas) for partition in found.values()} == {3}
    resource = ConfigResource(ResourceType.TOPIC, job.ledger)
    config = admin.describe_configs([resource])[resource].result(30)
    assert config["min.insync.replicas"].value == "2"


def test_a_ledger_without_replicas_is_refused_unless_told_otherwise(three, spark, tmp_path):
    job = copy_job(three.bootstrap_servers, tmp_path)
    admin = AdminClient({"bootstrap.servers": job.servers})
    ledger = NewTopic("weak", 2, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([ledger])["weak"].result(30)
    job.sink_extra = {"ledgerTopic": "weak"}
    with pytest.raises(Exception, match="Ledger 'weak' has one replica") as stop:
        job.run(spark)
    assert "allowWeakReplication" in str(stop.value)
    job.sink_extra["allowWeakReplication"] = "true"
    job.run(spark)
    assert_exactly_once(job, VALUES)
