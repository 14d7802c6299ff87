"""Reads that must be the same through Spark's own connector and through ours: what the JVM
connector's suites test of its options, run against both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Producer

from harness import delete_records

FORMATS = ["kafka", "eo-kafka"]
WAIT_S = 60
OR_LATEST = {"startingOffsetsByTimestampStrategy": "latest"}


@pytest.fixture(params=FORMATS)
def load(request, spark, broker) -> Callable[..., Any]:
    def load(streaming: bool = False, **options: str) -> Any:
        reader = spark.readStream if streaming else spark.read
        reader = reader.format(request.param)
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap_servers)
        return reader.options(**options).load()

    return load


@pytest.fixture
def topic(broker, make_topic) -> str:
    """Three partitions; in each ten records, of ten seconds: partition p's record n is of second
    1000 p + n after BASE, and its value is `p-n`."""
    name = make_topic("in", partitions=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition in range(3):
        for number in range(10):
            producer.produce(
                name,
                b"%d-%d" % (partition, number),
                partition=partition,
                timestamp=second(partition, number),
            )
    assert producer.flush(WAIT_S) == 0
    return name


BASE = int(time.time()) - 10_000  # the broker deletes what is older than its retention


def second(partition: int, number: int) -> int:
    return (BASE + 1000 * partition + number) * 1000


def client(broker: Any) -> dict[str, str]:
    return {"bootstrap.servers": broker.bootstrap_servers}


def put(broker: Any, topic: str, value: bytes, timestamp: int) -> None:
    producer = Producer(client(broker))
    producer.produce(topic, value, timestamp=timestamp)
    assert producer.flush(WAIT_S) == 0


def values(frame: Any) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def of(*ranges: tuple[int, int, int]) -> list[str]:
    return sorted(f"{p}-{n}" for p, start, end in ranges for n in range(start, end))


ALL = of((0, 0, 10), (1, 0, 10), (2, 0, 10))


def test_assigned_partitions_only(load, topic):
    found = load(assign=json.dumps({topic: [0, 2]}))
    assert values(found) == of((0, 0, 10), (2, 0, 10))


def test_a_pattern_is_found_anywhere_in_the_name(load, topic):
    end = f"{topic[1:]}$"
    assert values(load(subscribePattern=end)) == ALL
    assert values(load(subscribePattern=f"^{end}")) == []


def test_nothing_is_read_of_nothing(load, broker, make_topic):
    empty = make_topic("empty", partitions=2)
    for options in ({}, {"minPartitions": "6"}):
        assert values(load(subscribe=empty, **options)) == []


def test_offsets_by_partition(load, topic):
    starts = json.dumps({topic: {"0": 3, "1": -2, "2": 9}})
    ends = json.dumps({topic: {"0": 5, "1": 1, "2": -1}})
    found = load(subscribe=topic, startingOffsets=starts, endingOffsets=ends)
    assert values(found) == of((0, 3, 5), (1, 0, 1), (2, 9, 10))


def test_offsets_must_be_given_for_all_partitions(load, topic):
    starts = json.dumps({topic: {"0": 3}})
    with pytest.raises(Exception, match="(?i)offset"):
        values(load(subscribe=topic, startingOffsets=starts))


def test_one_time_for_all_partitions(load, topic):
    found = load(
        subscribe=topic,
        startingTimestamp=str(second(1, 5)),
        startingOffsetsByTimestampStrategy="latest",
    )
    assert values(found) == of((1, 5, 10), (2, 0, 10))


def test_times_by_partition_between_two_records_and_past_the_end(load, topic):
    starts = {"0": second(0, 4) - 1, "1": second(1, 4) + 1, "2": second(2, 0)}
    ends = {"0": second(0, 6), "1": second(1, 99), "2": second(2, 1)}
    found = load(
        subscribe=topic,
        startingOffsetsByTimestamp=json.dumps({topic: starts}),
        endingOffsetsByTimestamp=json.dumps({topic: ends}),
    )
    assert values(found) == of((0, 4, 6), (1, 5, 10), (2, 0, 1))


def test_a_time_goes_before_offsets_and_a_single_time_before_all(load, topic):
    found = load(
        subscribe=topic,
        startingOffsets="earliest",
        startingOffsetsByTimestamp=json.dumps({topic: dict.fromkeys("012", second(0, 0))}),
        startingTimestamp=str(second(2, 8)),
        startingOffsetsByTimestampStrategy="latest",
    )
    assert values(found) == of((2, 8, 10))


def test_of_a_partition_without_so_new_a_record_nothing_is_read_in_many_tasks_either(load, topic):
    found = load(
        subscribe=topic,
        startingTimestamp=str(second(2, 5)),
        startingOffsetsByTimestampStrategy="latest",
        minPartitions="5",
    )
    assert values(found) == of((2, 5, 10))


def test_without_so_new_a_record_the_read_fails(load, topic):
    with pytest.raises(Exception, match="No offset matched from request of topic-partition"):
        values(load(subscribe=topic, startingTimestamp=str(second(2, 99))))


def offset(topic: str, number: int) -> str:
    return json.dumps({topic: {"0": number}})


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_start_behind_the_end_is_refused(load, topic, fail):
    """Whatever gives them; Spark's connector does not ask what failOnDataLoss is, either."""
    for options in (
        {"startingOffsets": offset(topic, 8), "endingTimestamp": str(second(0, 3))},
        {"startingTimestamp": str(second(0, 8)), "endingOffsets": offset(topic, 3)},
        {"startingTimestamp": str(second(0, 8)), "endingTimestamp": str(second(0, 3))},
        {"startingTimestamp": str(second(0, 99)), "endingOffsets": offset(topic, 3), **OR_LATEST},
    ):
        with pytest.raises(Exception, match=r"(?s)offset (8|10)\b.* offset 3\b"):
            values(load(assign=json.dumps({topic: [0]}), failOnDataLoss=fail, **options))


def test_that_all_was_deleted_that_is_asked_for_is_told(load, topic, broker):
    delete_records(broker.bootstrap_servers, topic, 6)
    one = {"assign": json.dumps({topic: [0]})}
    with pytest.raises(Exception, match=r"(?s)DataLossError.*before offset 4.*begins at 6|6.*4"):
        values(load(**one, endingOffsets=offset(topic, 4)))
    assert values(load(**one, endingOffsets=offset(topic, 6))) == []


@pytest.mark.parametrize("side", ["endingTimestamp", "startingTimestamp"])
def test_a_stream_keeps_to_the_time_of_what_it_is_joined_with(
    load, broker, make_topic, tmp_path, side
):
    """Of which no record was so new yet when the join was planned."""
    soon = int(time.time() * 1000) + 60_000
    events, dim = make_topic("events"), make_topic("dim")
    put(broker, dim, b"old", soon - 1)
    put(broker, events, b"first", 0)
    found: list[str] = []
    of_dim = load(subscribe=dim, **{side: str(soon)}, **OR_LATEST)
    joined = load(streaming=True, subscribe=events, startingOffsets="earliest").selectExpr(
        "string(value) AS event"
    )
    joined = joined.crossJoin(of_dim.selectExpr("string(value) AS entry"))
    query = (
        joined.writeStream.foreachBatch(
            lambda rows, _batch: found.extend(f"{row.event} {row.entry}" for row in rows.collect())
        )
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        for value, timestamp in ((b"new", soon), (b"late", soon - 2)):
            put(broker, dim, value, timestamp)
        put(broker, events, b"second", 0)
        query.processAllAvailable()
    finally:
        query.stop()
    if side == "endingTimestamp":
        assert found == ["first old", "second old"]
    else:
        assert sorted(found) == ["second late", "second new"]


@pytest.mark.parametrize("load", ["eo-kafka"], indirect=True)  # kafka says nothing of it
def test_a_time_whose_record_an_open_transaction_holds_back_is_told_as_that(load, topic, broker):
    producer = Producer({**client(broker), "transactional.id": topic})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, b"new", partition=0, timestamp=second(0, 99))
    producer.flush(WAIT_S)
    options = {"assign": json.dumps({topic: [0]}), "startingTimestamp": str(second(0, 99))}
    with pytest.raises(
        Exception, match=f"In {topic}-0 an open .*eo-kafka txn list --topic {topic}"
    ):
        values(load(**options))
    producer.commit_transaction(WAIT_S)
    assert values(load(**options)) == ["new"]


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, 3),
        ({"minPartitions": "2"}, 3),
        ({"minPartitions": "6"}, 6),
        ({"minPartitions": "100"}, 30),
    ],
)
def test_as_many_tasks_as_are_asked_for(load, topic, options, tasks):
    found = load(subscribe=topic, **options)
    assert found.rdd.getNumPartitions() == tasks
    assert values(found) == ALL


@pytest.mark.parametrize("load", ["eo-kafka"], indirect=True)  # kafka cuts streams only by it
def test_no_task_has_more_records_than_asked_for(load, topic):
    from pyspark.sql import functions as f

    found = load(subscribe=topic, maxRecordsPerPartition="4")
    assert found.rdd.getNumPartitions() == 9
    sizes = found.groupBy(f.spark_partition_id()).count().collect()
    assert max(row["count"] for row in sizes) <= 4
    assert values(found) == ALL


@pytest.mark.parametrize("load", ["eo-kafka"], indirect=True)  # kafka has no such option
@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({"maxPartitions": "1"}, 1),
        ({"maxPartitions": "2"}, 2),
        ({"maxPartitions": "9"}, 3),
        ({"minPartitions": "6", "maxPartitions": "6"}, 6),
    ],
)
def test_no_more_tasks_than_asked_for(load, topic, options, tasks):
    found = load(subscribe=topic, **options)
    assert found.rdd.getNumPartitions() == tasks
    assert values(found) == ALL
    one = {"startingTimestamp": str(second(2, 9)), "startingOffsetsByTimestampStrategy": "latest"}
    assert values(load(subscribe=topic, **one, **options)) == ["2-9"]


def test_a_stream_by_pattern_from_a_time_in_cut_batches(load, topic, tmp_path, spark):
    frame = load(
        streaming=True,
        subscribePattern=topic,
        startingTimestamp=str(second(0, 5)),
        maxOffsetsPerTrigger="9",
        minPartitions="5",
    )
    query = (
        frame.select("value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    assert query.awaitTermination(WAIT_S)
    assert values(spark.read.parquet(str(tmp_path / "out"))) == of(
        (0, 5, 10), (1, 0, 10), (2, 0, 10)
    )


def test_a_stream_waits_for_enough_offsets(load, broker, topic, tmp_path):
    frame = load(
        streaming=True,
        subscribe=topic,
        startingOffsets="earliest",
        minOffsetsPerTrigger="5",
        maxTriggerDelay="10m",
    )
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        await_rows(query, 30)
        add(broker, topic, 4)
        time.sleep(3)  # thirty triggers, none of which may read
        assert rows(query) == 30
        add(broker, topic, 1)
        await_rows(query, 35)
        assert {one["numInputRows"] for one in query.recentProgress} <= {0, 30, 5}
    finally:
        query.stop()


def add(broker: Any, topic: str, number: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(number):
        producer.produce(topic, b"more", partition=0)
    assert producer.flush(WAIT_S) == 0


def rows(query: Any) -> int:
    return sum(one["numInputRows"] for one in query.recentProgress)


def await_rows(query: Any, number: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while rows(query) < number:
        assert query.exception() is None
        assert time.monotonic() < deadline, f"{rows(query)} rows of {number}"
        time.sleep(0.1)


def test_what_is_wrong_is_refused_by_both(load, topic):
    for options in (
        {},
        {"subscribe": topic, "assign": "{}"},
        {"subscribe": topic, "startingOffsets": "latest"},
        {"subscribe": topic, "endingOffsets": "earliest"},
        {"subscribe": topic, "minPartitions": "0"},
        {"assign": "[0]"},
        {"subscribe": ", "},
        {"subscribePattern": ""},
        {"subscribe": topic, "startingTimestamp": "soon"},
    ):
        with pytest.raises(Exception, match=r"\w"):
            values(load(**options))
