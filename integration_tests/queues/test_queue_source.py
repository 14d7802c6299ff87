"""`eo-queue` by Spark: messages come once, in their order, with what AMQP says of them."""

from __future__ import annotations

import json
import shutil

import pika
import pytest

import eo_kafka
from harness import committed, committed_messages, fail_at
from newcomer import blocks
from queue_job import channel, new_queue, numbered, once, publish, waiting


def test_each_message_comes_once_and_the_queue_is_empty(queue_copy, spark) -> None:
    ids = numbered(2500)
    publish(queue_copy.url, queue_copy.queue, ids[:1500])
    queue_copy.run(spark)
    assert committed(queue_copy.servers, queue_copy.sink_topic) == once(ids[:1500])
    publish(queue_copy.url, queue_copy.queue, ids[1400:])  # a publisher that lost its confirms
    queue_copy.run(spark)
    assert committed(queue_copy.servers, queue_copy.sink_topic) == once(ids)
    assert waiting(queue_copy.url, queue_copy.queue) == 0
    inbox = committed_messages(queue_copy.servers, queue_copy.source_topic)
    assert [one.value().decode() for one in inbox] == ids, "in the queue's order"


def test_messages_that_come_while_the_query_runs_are_read(queue_copy, spark) -> None:
    job = queue_copy
    read = spark.readStream.format("eo-queue").options(**job.as_job()["source_options"]).load()
    writer = read.select("key", "value").writeStream.format("eo-kafka").options(**job.sink_options)
    said = " ".join(str(eo_kafka.explain(writer)).split())
    assert "EXACTLY ONCE" in said
    assert f"eo-queue {job.queue} ok acknowledging" in said
    query = writer.start()
    try:
        for first in (0, 10, 20):
            publish(job.url, job.queue, numbered(10, first))
            query.processAllAvailable()
    finally:
        query.stop()
    assert committed(job.servers, job.sink_topic) == once(numbered(30))


def test_a_query_whose_checkpoint_is_lost_goes_on_from_its_snapshot(
    queue_copy, spark, crash_points
) -> None:
    job = queue_copy
    job.sink_extra = {"snapshots": "true"}
    job.given = {"jobName": job.job_name}
    publish(job.url, job.queue, numbered(1500))
    job.run(spark)
    publish(job.url, job.queue, numbered(500, 1400))
    fail_at(job, spark, crash_points, "S6.after_decision")
    shutil.rmtree(job.checkpoint)
    job.run(spark)
    assert committed(job.servers, job.sink_topic) == once(numbered(1900))


def test_columns_are_what_amqp_says_and_bodies_may_be_typed(queue_copy, spark) -> None:
    job = queue_copy
    job.queue = new_queue(job.url, "quorum")
    with channel(job.url) as opened:
        given = pika.BasicProperties(
            message_id="a",
            timestamp=1_700_000_000,
            content_type="application/json",
            headers={"region": "eu", "n": 7},
            delivery_mode=2,
        )
        opened.basic_publish("", job.queue, b'{"id": 5}', given)
    job.given = {"value.format": "json", "value.schema": "id BIGINT"}
    options = job.as_job()["source_options"]
    read = spark.readStream.format("eo-queue").options(**options).load()
    name = f"rows_{job.queue.replace('-', '_')}"
    writer = read.writeStream.format("memory").queryName(name)
    query = writer.option("checkpointLocation", str(job.checkpoint)).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    (row,) = spark.table(name).collect()
    assert (row.value.id, row.messageId, row.key) == (5, "a", b"a")
    assert (row.exchange, row.routingKey, row.redelivered) == ("", job.queue, False)
    assert row.sent.timestamp() == 1_700_000_000
    assert {one.key: one.value for one in row.headers} == {"region": b"eu", "n": b"7"}
    assert row.properties["content_type"] == "application/json"
    after_trial = 2  # a record that was taken back, and its marker
    assert (row.topic, row.partition, row.offset) == (job.source_topic, 0, after_trial)


def test_a_batch_and_wrong_options_are_refused_at_the_start(queue_copy, spark) -> None:
    options = {**queue_copy.as_job()["source_options"], "messageId": "x", "prefetch": "0"}
    with pytest.raises(Exception, match=r"'messageId' must.*'prefetch' must") as told:
        spark.readStream.format("eo-queue").options(**options).load()
    assert "guest" not in str(told.value)
    with pytest.raises(Exception, match="is a stream"):
        good = queue_copy.as_job()["source_options"]
        spark.read.format("eo-queue").options(**good).load().collect()


def test_the_page_of_queues_works_as_it_is_written(queue_copy, spark) -> None:
    job = queue_copy
    publish(job.url, job.queue, numbered(10))
    block, *_ = blocks("docs/queues.md")
    code = block.content
    for written, here in {
        "amqp://reader:secret@rabbit.example.org:5672/shop": job.url,
        '"queue", "orders"': f'"queue", "{job.queue}"',
        "orders-inbox": job.source_topic,
        "localhost:9092": job.servers,
        '"topic", "orders"': f'"topic", "{job.sink_topic}"',
        '"jobName", "orders"': f'"jobName", "{job.job_name}"',
        "/data/checkpoints/orders": str(job.checkpoint),
    }.items():
        assert written in code, written
        code = code.replace(written, here)
    names = {"spark": spark}
    exec(code, names)
    try:
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    found = committed_messages(job.servers, job.sink_topic)
    assert sorted(one.key().decode() for one in found) == numbered(10)
    inbox = committed_messages(job.servers, job.source_topic)
    (meta,) = {json.loads(dict(one.headers())["eo-queue"])["routingKey"] for one in inbox}
    assert meta == job.queue
