"""The direct lane: what it writes, and what it refuses, against a real broker and a real Spark."""

from __future__ import annotations

import io
import json
import shutil
import time
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql.functions import udf

import eo_kafka
from eo_kafka.core.crash_points import STREAM_POINTS
from eo_kafka.errors import OptionsError
from harness import (
    Copy,
    assert_exactly_once,
    committed,
    committed_messages,
    kill_driver_at,
    make_copy,
    produce,
    written,
)

VALUES = [b"%d" % number for number in range(300)]
WITH_HEADERS = "value STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


@pytest.fixture
def kafka(broker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture
def source(broker, make_topic) -> str:
    topic = make_topic("in", partitions=3)
    produce(broker.bootstrap_servers, topic, VALUES)
    return topic


@pytest.fixture
def run(spark, kafka, tmp_path):
    """Runs a lane to the end of its source; the query."""

    def to_the_end(source: dict, sink: dict, transform=None, schema=None):
        query = (
            eo_kafka.direct(
                spark,
                {**kafka, "startingOffsets": "earliest", **source},
                {**kafka, **sink},
                transform,
                schema,
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()
        return query

    return to_the_end


def fails(run, *given, **named) -> str:
    with pytest.raises(Exception) as stop:  # Spark's, with our sentence in it
        run(*given, **named)
    return str(stop.value)


def test_a_transform_filters_changes_and_routes(run, broker, source, make_topic):
    low, high = make_topic("low", partitions=2), make_topic("high", partitions=2)

    def route(batches):
        for batch in batches:
            number = batch["value"].cast(pa.string()).cast(pa.int32())
            even = number.filter(pc.equal(pc.bit_wise_and(number, 1), 0))
            topic = pc.if_else(pc.less(even, 100), low, high)
            value = pc.multiply(even, 10).cast(pa.large_string())  # as polars has it
            yield pa.record_batch({"value": value, "topic": topic, "other": value})

    query = run(
        {"subscribe": source}, {"jobName": f"route-{source}"}, route, "value STRING, topic STRING"
    )
    servers = broker.bootstrap_servers
    assert committed(servers, low) == Counter(b"%d" % (10 * n) for n in range(0, 100, 2))
    assert committed(servers, high) == Counter(b"%d" % (10 * n) for n in range(100, 300, 2))
    told = eo_kafka.progress(query)
    assert (told.sinks[0].numInputRecords, told.sinks[0].numOutputRows) == (300, 150)
    assert told.sources[0].numInputRows == 3, "Spark counts ranges"


@pytest.mark.parametrize(
    "given, sink, tasks",
    [
        ({}, {}, 4),  # the session runs two at once
        ({"maxPartitions": 5}, {}, 5),
        ({"minPartitions": 8}, {}, 8),
        ({}, {"commit": "idempotent"}, 4),
    ],
)
def test_a_batch_has_no_more_tasks_than_are_worth_their_price(
    run, broker, make_topic, given, sink, tasks
):
    topic, output = make_topic("in", partitions=8), make_topic("out")
    produce(broker.bootstrap_servers, topic, VALUES)

    def in_task(batches):
        from pyspark import TaskContext

        task = b"%d" % TaskContext.get().partitionId()
        for batch in batches:
            yield pa.record_batch({"value": pa.array([task] * batch.num_rows)})

    job = {"topic": output, "jobName": f"tasks-{output}"}
    run({"subscribe": topic, **given}, {**job, **sink}, in_task, "value BINARY")
    found = committed(broker.bootstrap_servers, output)
    assert (len(found), found.total()) == (tasks, len(VALUES))


def test_a_checkpoint_goes_to_and_fro_between_rows_and_the_lane(
    spark, broker, make_topic, tmp_path
):
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=None)
    job.sink_extra = {"snapshots": "true"}
    for source in ("direct", "eo-kafka", "direct"):
        job.source = source
        job.run(spark)
        produce(job.servers, job.source_topic, VALUES)
    shutil.rmtree(job.checkpoint)
    job.run(spark)  # restored from the job's topics
    assert_exactly_once(job, VALUES * 4)


def test_typed_columns_come_out_as_they_do_of_rows(spark, run, kafka, broker, make_topic, tmp_path):
    topics = [make_topic(name) for name in ("typed", "direct", "rows")]
    now = int(time.time())
    values = [
        json.dumps({"id": n, "at": f"2026-11-24T10:00:{n:02}.123Z", "sent": now, "p": {"a": [n]}})
        for n in range(50)
    ]
    produce(broker.bootstrap_servers, topics[0], [value.encode() for value in values])
    columns = "id BIGINT, at TIMESTAMP, sent BIGINT, p STRUCT<a: ARRAY<INT>>"
    given = {"subscribe": topics[0], "value.format": "json", "value.schema": columns}
    sink = {"topic": topics[1], "jobName": topics[1], "value.format": "json"}

    def masked(batches):
        for batch in batches:
            ids = pc.struct_field(batch["value"], "id")
            yield batch.filter(pc.greater(ids, 9))

    run(given, sink, masked)
    rows = spark.readStream.format("eo-kafka").options(**kafka, **given)
    query = (
        rows.option("startingOffsets", "earliest")
        .load()
        .where("value.id > 9")
        .select("key", "value")
        .writeStream.format("eo-kafka")
        .options(**{**kafka, **sink, "topic": topics[2], "jobName": topics[2]})
        .option("checkpointLocation", str(tmp_path / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    out = [committed(broker.bootstrap_servers, topic) for topic in topics[1:]]
    assert out[0] == out[1]
    assert len(out[0]) == 40


def test_bad_records_go_to_the_dead_letter_topic(run, broker, make_topic):
    topics = [make_topic(name) for name in ("mixed", "good", "dead")]
    produce(broker.bootstrap_servers, topics[0], [b'{"a": 1}', b"nothing", b'{"a": 2}'])
    given = {"value.format": "json", "value.schema": "a INT", "mode": "DEADLETTER"}
    given |= {"subscribe": topics[0], "deadLetterTopic": topics[2]}
    sink = {"topic": topics[1], "jobName": topics[1], "value.format": "json"}
    told = fails(run, given, sink, wrong("another column"), "key BINARY, value STRUCT<a: INT>")
    assert "no column ['value', '_bad_record']" in told
    run(given, sink, None, "key BINARY, value STRUCT<a: INT>, _bad_record STRUCT<topic: STRING>")
    good, dead = (committed_messages(broker.bootstrap_servers, topic) for topic in topics[1:])
    assert Counter(one.value() for one in good) == Counter([b'{"a":1}', b'{"a":2}'])
    assert [one.value() for one in dead] == [b"nothing"]
    assert dict(dead[0].headers())["eo_kafka.bad_record.topic"] == topics[0].encode()


def wrong(how):
    """A transform that does `how`. Spark pickles what a function here makes, and would not find a
    function of this module."""

    def transform(batches):
        for batch in batches:
            yield batch.select(["key"]) if how == "another column" else batch
            if how == "gives up":
                return

    return transform


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("gives up", "The transform ended after "),
        ("another column", "The transform gave no column ['value']; it gave ['key']"),
    ],
)
def test_a_transform_that_would_lose_or_cannot_be_written_is_refused(
    run, broker, make_topic, source, how, sentence
):
    sink = make_topic("out")
    produce(broker.bootstrap_servers, source, [b"x" * 1000] * 15_000)  # several batches a task
    assert sentence in fails(
        run, {"subscribe": source}, {"topic": sink, "jobName": sink}, wrong(how)
    )
    assert not committed(broker.bootstrap_servers, sink)


@pytest.mark.parametrize("text", [str(2**256 - 1), "1E-99999999"])
def test_no_text_becomes_another_number_or_ends_the_worker(run, broker, make_topic, text):
    """By Arrow's own conversion the first is -1, and the second a crash."""
    topics = [make_topic(name) for name in ("in", "out")]
    values = [b'{"wei": "1E2"}', json.dumps({"wei": text}).encode()]
    given = {"subscribe": topics[0], "value.format": "json", "value.schema": "wei STRING"}
    sink = {"topic": topics[1], "jobName": topics[1], "value.format": "json"}
    wanted = "value STRUCT<wei: DECIMAL(38,0)>"
    produce(broker.bootstrap_servers, topics[0], values[:1])
    run(given, sink, lambda batches: batches, wanted)
    produce(broker.bootstrap_servers, topics[0], values)
    told = fails(run, given, sink, lambda batches: batches, wanted)
    assert f"(row 1 of a batch, counted from 0: '{text}' is none, or would be rounded)" in told
    assert committed(broker.bootstrap_servers, topics[1]) == Counter([b'{"wei":100}'])


@pytest.mark.parametrize("frames", ["pandas_frames", "polars_frames"])
def test_frames_take_records_without_what_others_must_have(run, broker, make_topic, frames):
    """A null value, and a null within one, of which no field may be null."""
    import fastavro

    street = {"type": "record", "name": "Address", "fields": [{"name": "street", "type": "string"}]}
    fields = [{"name": "id", "type": "long"}, {"name": "address", "type": ["null", street]}]
    schema = {"type": "record", "name": "Order", "fields": fields}
    written = []
    for number, address in enumerate([{"street": "x"}, None]):
        to = io.BytesIO()
        fastavro.schemaless_writer(to, schema, {"id": number, "address": address})
        written.append(to.getvalue())
    topics = [make_topic(name) for name in ("in", "out")]
    rows = [*written, None]
    produce(broker.bootstrap_servers, topics[0], rows)
    avro = {"value.format": "avro", "value.schema": json.dumps(schema)}
    sink = {"topic": topics[1], "jobName": topics[1], **avro}
    run({"subscribe": topics[0], **avro}, sink, getattr(eo_kafka, frames)(lambda frames: frames))
    assert committed(broker.bootstrap_servers, topics[1]) == Counter(rows)


@pytest.mark.full  # of the page and of the docstrings in CI
def test_frames_of_polars_travel_to_the_tasks(run, broker, source, make_topic):
    sink = make_topic("out")

    def even(frames):
        import polars

        for frame in frames:
            number = frame["value"].cast(polars.String).cast(polars.Int32)
            yield frame.with_columns(value=(number * 10).cast(polars.String)).filter(
                number % 2 == 0
            )

    given = eo_kafka.polars_frames(even)
    run({"subscribe": source}, {"topic": sink, "jobName": sink}, given, "value STRING")
    expected = Counter(b"%d" % (10 * number) for number in range(0, 300, 2))
    assert committed(broker.bootstrap_servers, sink) == expected


def test_what_is_wrong_is_told_before_the_query_is_made(spark, kafka):
    with pytest.raises(OptionsError, match="subscribe"):
        eo_kafka.direct(spark, {**kafka}, {**kafka, "topic": "t"})
    with pytest.raises(OptionsError, match="'schema' of eo_kafka.direct is 'a !'"):
        eo_kafka.direct(spark, {**kafka, "subscribe": "t"}, {"topic": "t"}, schema="a !")
    with pytest.raises(OptionsError, match="a type that Arrow cannot hold"):
        eo_kafka.direct(spark, {**kafka, "subscribe": "t"}, {}, schema="value INTERVAL YEAR")
    with pytest.raises(OptionsError) as all_at_once:
        eo_kafka.direct(spark, kafka, {"topic": "t"}, spark.range(1), "a !")
    for told in ("subscribe", "'schema' of eo_kafka.direct", "is no function (DataFrame)"):
        assert told in str(all_at_once.value)
    with pytest.raises(OptionsError, match="a function of Spark's columns"):
        eo_kafka.direct(spark, {**kafka, "subscribe": "t"}, {"topic": "t"}, udf(str))


def test_a_batch_with_a_number_is_written_once_though_a_task_dies(
    spark, kafka, broker, make_topic, source, crash_points
):
    sink = make_topic("out")
    crash_points.arm("S3.while_writing", "kill")
    for _ in range(2):  # as a scheduler that did not get the answer
        eo_kafka.direct_batch(
            spark,
            {**kafka, "subscribe": source},
            {**kafka, "topic": sink, "jobName": sink, "batchId": 7},
        ).save()
    assert crash_points.reached("S3.while_writing")
    assert committed(broker.bootstrap_servers, sink) == Counter(VALUES)


def test_each_writer_keeps_its_own_function(spark, kafka, broker, make_topic, source, tmp_path):
    """Two are made, as a notebook's cell that is run twice makes them, and then started."""
    made = {}
    for number in (1, 2):

        def tagged(batches, number=number):
            for batch in batches:
                yield pa.record_batch({"value": pa.array([b"%d" % number] * batch.num_rows)})

        topic = make_topic("out")
        lane = {**kafka, "subscribe": source, "startingOffsets": "earliest"}
        sink = {**kafka, "topic": topic, "jobName": "tagged", "transactionalIdPrefix": topic}
        sink |= {"ledgerTopic": f"__eo_kafka.{topic}.ledger"}
        made[topic] = eo_kafka.direct(spark, lane, sink, tagged, "value BINARY")
    for number, (topic, writer) in enumerate(made.items(), 1):
        query = writer.option("checkpointLocation", str(tmp_path / topic)).trigger(
            availableNow=True
        )
        assert query.start().awaitTermination(120)
        assert committed(broker.bootstrap_servers, topic) == Counter({b"%d" % number: 300})


def test_a_start_beyond_the_end_is_waited_for(spark, run, kafka, broker, make_topic):
    topic, out = make_topic("in"), make_topic("out")
    produce(broker.bootstrap_servers, topic, [b"before"] * 3)
    given = {"subscribe": topic, "startingOffsets": json.dumps({topic: {"0": 4}})}
    sink = {"topic": out, "jobName": out}
    assert f"offset 4 of partition {topic}-0, which ends at 3" in fails(run, given, sink)
    at_once = eo_kafka.direct_batch(spark, {**kafka, **given}, {**kafka, "topic": out})
    assert f"begin at offset 4 of partition {topic}-0" in fails(at_once.save)
    produce(broker.bootstrap_servers, topic, [b"before", b"first"])
    run(given, sink)
    produce(broker.bootstrap_servers, topic, [b"second"])
    run(given, sink)
    assert committed(broker.bootstrap_servers, out) == Counter([b"first", b"second"])


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_batch_is_written_once(spark, kafka, broker, make_topic, source, guarantee):
    sink = make_topic("out")
    rows = spark.createDataFrame([("with", [("name", b"content")])], WITH_HEADERS)
    given = {**kafka, "topic": source, "includeHeaders": True}
    rows.write.format("eo-kafka").mode("append").options(**given).save()
    eo_kafka.direct_batch(
        spark,
        {**kafka, "subscribe": source, "includeHeaders": True},
        {**kafka, "topic": sink, "guarantee": guarantee},
    ).save()
    assert committed(broker.bootstrap_servers, sink) == Counter([*VALUES, b"with"])
    headers = [one.headers() for one in committed_messages(broker.bootstrap_servers, sink)]
    assert Counter(map(str, headers)) == {"None": 300, "[('name', b'content')]": 1}


@pytest.mark.parametrize("way", ["two-phase", pytest.param("idempotent", marks=pytest.mark.full)])
def test_a_task_that_dies_and_a_driver_that_dies_repeat_nothing(
    spark, broker, make_topic, tmp_path, crash_points, way
):
    job: Copy = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=200)
    job.source, job.sink_extra = "direct", {"commit": way}
    crash_points.arm("S3.while_writing", "kill-task")
    point = "S7.after_first_end_txn" if way == "two-phase" else "S5.prepared"
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    assert written(job.servers, job.sink_topic)
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.full
@pytest.mark.parametrize("point", STREAM_POINTS)
def test_a_driver_that_dies_at_any_point_of_the_matrix_repeats_nothing(
    spark, broker, make_topic, tmp_path, crash_points, point
):
    job: Copy = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=200)
    job.source = "direct"
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.full
def test_at_least_once_loses_nothing(spark, broker, make_topic, tmp_path, crash_points):
    job: Copy = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=200)
    job.source, job.sink_extra = "direct", {"guarantee": "at-least-once"}
    kill_driver_at(job, crash_points, "S3.while_writing", tmp_path / "log")
    job.run(spark)
    assert committed(job.servers, job.sink_topic) >= Counter(VALUES)
