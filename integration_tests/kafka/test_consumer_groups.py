"""A query's progress as a consumer group's, and a query that starts where a group is."""

from __future__ import annotations

import json
from collections import Counter
from threading import Timer
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.errors import StreamingQueryException

import eo_kafka
from eo_kafka.connectors.monitoring.group_commits import GroupCommits
from eo_kafka.core.offsets import TopicPartition as Place
from eo_kafka.core.options import OptionReader
from eo_kafka.errors import ReadTimeout
from eo_kafka.sources.lookup import OffsetLookup
from eo_kafka.sources.settings.options import SourceOptions
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
    every = {"isolation.level": "read_uncommitted"}
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "looks", **every})
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


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_group_may_be_ahead_of_an_open_transaction(job, spark, fails):
    """Consumers read uncommitted records, too, unless told otherwise. What the group has read of
    the transaction is not read again when it ends, and the rest of it is, once."""
    servers, topic, group = job.servers, job.source_topic, f"ahead-{job.source_topic}"
    writer = Producer({"bootstrap.servers": servers, "transactional.id": uuid4().hex})
    writer.init_transactions(30)
    writer.begin_transaction()

    def send(*values: bytes) -> None:
        for value in values:
            writer.produce(topic, value, partition=0)
        assert writer.flush(30) == 0

    send(*(b"read %d" % number for number in range(10)))
    commit(servers, group, topic, *ends(servers, topic))
    send(b"after 1", b"after 2")
    job.source_extra = {"startingOffsets": f"group:{group}", "failOnDataLoss": fails}
    job.run(spark)
    assert not committed(servers, job.sink_topic)
    writer.commit_transaction(30)
    produce(servers, topic, [b"new"])
    job.run(spark)
    assert committed(servers, job.sink_topic) == Counter([b"after 1", b"after 2", b"new"])


def test_a_group_that_has_committed_nothing_is_refused(job, spark):
    commit(job.servers, f"app-{job.source_topic}", job.source_topic, 1, 1)
    job.source_extra = {"startingOffsets": f"group:ap-{job.source_topic}"}
    with pytest.raises(StreamingQueryException, match=f"group 'ap-{job.source_topic}' has commit"):
        job.run(spark)
    assert not committed(job.servers, job.sink_topic)


def test_only_topics_of_this_cluster_are_committed(broker, make_topic, caplog):
    servers, topic, group = broker.bootstrap_servers, make_topic("ours"), uuid4().hex
    kafka = {"kafka.bootstrap.servers": servers}
    lookup = OffsetLookup(SourceOptions.parse({**kafka, "subscribe": topic}, True))
    topic_id = lookup.ids([topic])[topic]
    settings = OptionReader(kafka).kafka({}).merged(group_id=group, enable_auto_commit="false")
    commits = GroupCommits(settings, group)

    def committed_of(end: int, mark: str) -> int:
        position = {topic: {"0": end}, mark: {}, "theirs": {"0": 3}, f"@id theirs {topic_id}": {}}
        commits.commit([json.dumps(position)])
        return positions(servers, group, topic, 1)[0]

    try:
        assert committed_of(5, f"@id {topic} {topic_id}") == 5
        assert committed_of(9, f"@id {topic} {uuid4()}") == 5, "a topic of that name elsewhere"
        assert committed_of(6, f"@anew {topic} {topic_id}") == 6
        assert "does not have" not in caplog.text
        commits.commit([json.dumps({topic: {"0": 7}, "gone": {"0": 1, "1": 1}})])  # without ids
        commits.commit(['{"gone":{"0":1,"1":1}}'])
        assert positions(servers, group, topic, 1) == [7]
        assert caplog.text.count("no progress of gone-0, gone-1, which") == 1
    finally:
        commits.close()


def test_a_start_at_a_group_waits_for_the_transaction_that_moves_it(broker, make_topic):
    """An application that reads and writes in transactions is stopped in one: at the offsets of
    before, records would be read again that it writes with these."""
    servers, topic, group = broker.bootstrap_servers, make_topic("moving"), uuid4().hex
    produce(servers, topic, [b"%d" % n for n in range(9)])
    commit(servers, group, topic, 3)
    at = TopicPartition(topic, 0, 7)
    application = Producer({"bootstrap.servers": servers, "transactional.id": uuid4().hex})
    application.init_transactions(30)
    application.begin_transaction()
    reader = Consumer({"bootstrap.servers": servers, "group.id": group})
    application.send_offsets_to_transaction([at], reader.consumer_group_metadata(), 30)
    reader.close()

    def found(timeout_ms: int) -> dict[Place, int]:
        given = {"kafka.bootstrap.servers": servers, "subscribe": topic}
        given["fetchOffset.timeoutMs"] = str(timeout_ms)
        return OffsetLookup(SourceOptions.parse(given, True)).committed(group, [Place(topic, 0)])

    with pytest.raises(ReadTimeout, match=f"group '{group}' has committed offsets in a transact"):
        found(1500)
    Timer(1, application.commit_transaction).start()
    assert found(30_000) == {Place(topic, 0): 7}
