"""The input on one Kafka, the output on another: ledger, state topic and transactions belong to the
output's, consumer groups to the input's, and nothing of ours appears on the wrong one."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator

import pytest

import eo_kafka
from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.tools.cli import main
from harness import (
    Copy,
    Stateful,
    assert_exactly_once,
    assert_settled,
    committed,
    fail_at,
    produce,
    wait_until,
)
from jobs.copy_job import start_copy
from jobs.save_job import save
from test_consumer_groups import ends, positions
from test_foreach_batch import Counting, expected
from test_upgrade import closed, window

VALUES = [b"%d" % number for number in range(300)]
EVENTS = [
    json.dumps({"k": f"k{n % 3}", "n": n, "t": 1_000_000 + n // 2}).encode() for n in range(180)
]


@pytest.fixture(scope="module")
def elsewhere(broker) -> Iterator[KafkaBroker]:
    """The input's Kafka; the output is on `broker`. Nothing of ours may be made there."""
    from confluent_kafka.admin import AdminClient

    with KafkaBroker() as other:
        yield other
        found = AdminClient({"bootstrap.servers": other.bootstrap_servers}).list_topics(timeout=30)
        assert not [name for name in found.topics if name.startswith("__eo_kafka")]
        assert "__transaction_state" not in found.topics, "somebody took a transactional id there"


@pytest.fixture
def new_job(broker, elsewhere, make_topic, tmp_path):
    """Jobs from `elsewhere` to here."""
    inputs = topic_maker(elsewhere.bootstrap_servers)

    def new(kind: type[Copy] = Copy, values=VALUES, partitions=2, **settings) -> Copy:
        source = inputs("far", partitions)
        produce(elsewhere.bootstrap_servers, source, values)
        return kind(
            servers=broker.bootstrap_servers,
            source_topic=source,
            sink_topic=make_topic("near", partitions=2),
            checkpoint=tmp_path / source,
            job_name=f"job-{source}",
            source_extra={"kafka.bootstrap.servers": elsewhere.bootstrap_servers},
            **{"per_batch": 100, **settings},
        )

    return new


@pytest.mark.parametrize(
    ("options", "point"),
    [
        ({}, "S6.after_decision"),
        ({"commit": "idempotent"}, "S6.before_decision"),
    ],
    ids=["two-phase", "idempotent"],
)
def test_a_copy_that_is_interrupted_goes_on(new_job, spark, crash_points, options, point):
    job = new_job(sink_extra=options)
    fail_at(job, spark, crash_points, point)
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_at_least_once_a_consumer_group_and_verify(new_job, elsewhere, spark, capsys):
    job = new_job(sink_extra={"guarantee": "at-least-once"})
    words = job.as_job()
    words["sink_options"]["queryName"] = name = f"query-{job.job_name}"
    words["sink_options"].pop("jobName")
    listener = eo_kafka.ConsumerGroup(f"group-{name}", words["source_options"], query=name)
    spark.streams.addListener(listener)
    there = elsewhere.bootstrap_servers
    try:
        assert start_copy(spark, words).awaitTermination(180)
        wait_until(
            lambda: (
                positions(there, f"group-{name}", job.source_topic) == ends(there, job.source_topic)
            ),
            "the group is at the end of the input",
        )
    finally:
        spark.streams.removeListener(listener)
    assert committed(job.servers, job.sink_topic) == Counter(VALUES)
    where = ["--bootstrap-servers", there, "--output-bootstrap-servers", job.servers, "--json"]
    topics = ["--input", job.source_topic, "--output", job.sink_topic]
    capsys.readouterr()
    assert main(["verify", *topics, *where]) == 0
    assert json.loads(capsys.readouterr().out)["outputRecords"] == len(VALUES)


def test_a_batch_is_read_there_and_written_here_once(new_job, spark):
    job = new_job(sink_extra={"batchId": "1"})
    for _ in range(2):
        save(spark, job.as_job())
    assert_exactly_once(job, VALUES)


def test_foreach_batch_in_update_mode(new_job, spark, crash_points):
    job = new_job(Counting, partitions=1)
    fail_at(job, spark, crash_points, "S6.after_decision")
    job.run(spark)
    assert committed(job.servers, job.sink_topic) == expected(3)
    assert_settled(job)


def test_a_lost_checkpoint_comes_back_from_the_outputs_cluster(new_job, spark, crash_points):
    job = new_job(Stateful, EVENTS, per_batch=60)
    fail_at(job, spark, crash_points, "S6.after_decision")
    shutil.rmtree(job.checkpoint)
    job.run(spark)
    found = Counter(map(window, committed(job.servers, job.sink_topic).elements()))
    assert found == closed([json.loads(value) for value in EVENTS])
    assert_settled(job)
