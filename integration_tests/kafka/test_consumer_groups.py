"""A query's progress as a consumer group's, and a query that starts where a group is."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition

import eo_kafka
from harness import (
    assert_exactly_once,
    committed,
    fail_at,
    make_copy,
    produce,
    wait_until,
)
from jobs.copy_job import start_copy

VALUES = [b"%d" % number for number in range(300)]


def positions(servers: str, group: str, topic: str, partitions: int = 2) -> list[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        wanted = [TopicPartition(topic, number) for number in range(partitions)]
        return [one.offset for one in consumer.committed(wanted, 30)]
    finally:
        consumer.close()


def commit(servers: str, group: str, topic: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    wanted = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def ends(servers: str, topic: str, partitions: int = 2) -> list[int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "looks"})
    try:
        return [
            consumer.get_watermark_offsets(TopicPartition(topic, number), 30)[1]
            for number in range(partitions)
        ]
    finally:
        consumer.close()


@pytest.fixture
def job(broker, make_topic, tmp_path):
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=100)


def test_the_group_is_where_the_last_batch_ended(job, spark):
    group = f"monitored-{job.source_topic}"
    words = job.as_job()
    words["sink_options"]["queryName"] = name = f"query-{job.source_topic}"
    listener = eo_kafka.ConsumerGroup(group, words["source_options"], query=name)
    other = eo_kafka.ConsumerGroup(f"{group}-other", words["source_options"], query="another")
    for one in (listener, other):
        spark.streams.addListener(one)
    try:
        query = start_copy(spark, words)
        assert query.awaitTermination(180)
        wait_until(
            lambda: (
                positions(job.servers, group, job.source_topic)
                == ends(job.servers, job.source_topic)
            ),
            "the last batch's ends are committed",
        )
    finally:
        for one in (listener, other):
            spark.streams.removeListener(one)
    assert positions(job.servers, f"{group}-other", job.source_topic) == [-1001, -1001]


def test_a_query_takes_over_from_a_consumer_and_loses_and_repeats_nothing(job, spark, crash_points):
    """The old application goes on while the new query starts, and dies in its first batches."""
    group = f"old-{job.source_topic}"
    first, second = ends(job.servers, job.source_topic)
    commit(job.servers, group, job.source_topic, first // 2, second)
    job.source_extra = {"startingOffsets": f"group:{group}"}
    fail_at(job, spark, crash_points, "S6.before_decision")
    commit(job.servers, group, job.source_topic, first, second)
    produce(job.servers, job.source_topic, [b"new 1", b"new 2"])
    job.run(spark)
    found = committed(job.servers, job.sink_topic)
    assert set(found.values()) == {1}
    assert sum(found.values()) == first - first // 2 + 2
    assert_exactly_once(job, list(found))
