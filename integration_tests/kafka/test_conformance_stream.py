"""Streams as the JVM connector's KafkaMicroBatchSourceSuite has them: each strategy from each kind
of start, stopped and started again, with a partition added, through Spark's connector and ours."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    NewPartitions,
    NewTopic,
)

WAIT_S = 60
PARTITIONS = 3


class Topic:
    """One that remembers what was written when."""

    def __init__(self, servers: str, name: str) -> None:
        self.servers, self.name = servers, name

    def add(self, *values: int, partition: int | None = None) -> None:
        """Each value to its partition, or all to one."""
        producer = Producer({"bootstrap.servers": self.servers})
        for number, value in enumerate(values):
            at = number % PARTITIONS if partition is None else partition
            producer.produce(self.name, str(value).encode(), partition=at)
        assert producer.flush(WAIT_S) == 0

    def add_partition(self) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        admin.create_partitions([NewPartitions(self.name, PARTITIONS + 1)])[self.name].result(30)


class Stream:
    """A query into files."""

    def __init__(self, spark: Any, folder: Path, load: Callable[[], Any]) -> None:
        self._spark, self._folder, self._load = spark, folder, load

    @contextmanager
    def running(self) -> Iterator[Any]:
        writer = self._load().selectExpr("cast(value as string) as value").writeStream
        query = (
            writer.format("parquet")
            .trigger(processingTime="100 milliseconds")
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start(str(self._folder / "out"))
        )
        try:
            yield query
        finally:
            query.stop()

    def values(self) -> list[int]:
        if not (self._folder / "out" / "_spark_metadata").exists():
            return []
        rows = self._spark.read.schema("value STRING").parquet(str(self._folder / "out"))
        return sorted(int(row.value) for row in rows.collect())

    def await_values(self, query: Any, *wanted: int) -> None:
        deadline = time.monotonic() + WAIT_S
        while self.values() != sorted(wanted):
            assert query.exception() is None, query.exception()
            assert time.monotonic() < deadline, f"{self.values()}, not {sorted(wanted)}"
            time.sleep(0.2)


@pytest.fixture(params=["kafka", "eo-kafka"])
def stream(request, spark, broker, tmp_path) -> Callable[..., Stream]:
    def stream(**options: str) -> Stream:
        def load() -> Any:
            reader = spark.readStream.format(request.param).options(**options)
            return reader.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()

        return Stream(spark, tmp_path, load)

    return stream


@pytest.fixture
def topic(broker, make_topic) -> Topic:
    return Topic(broker.bootstrap_servers, make_topic("in", partitions=PARTITIONS))


STRATEGIES = {
    "assign": lambda name: json.dumps({name: list(range(PARTITIONS))}),
    "subscribe": lambda name: name,
    "subscribePattern": lambda name: name.replace("-", ".") + "$",
}


def by_partition(name: str, value: int) -> str:
    return json.dumps({name: {str(number): value for number in range(PARTITIONS)}})


IN_CI = {("latest", "subscribe"), ("offsets", "assign"), ("time", "subscribePattern")}
STARTS = [
    pytest.param(start, strategy, marks=() if (start, strategy) in IN_CI else pytest.mark.full)
    for start in ("latest", "earliest", "offsets", "times", "time")
    for strategy in STRATEGIES
]


@pytest.mark.parametrize(("start", "strategy"), STARTS)
def test_each_strategy_from_each_start(stream, topic, strategy, start):
    topic.add(-1, -2, -3)
    time.sleep(0.05)
    now = int(time.time() * 1000)
    time.sleep(0.05)
    if start != "latest":
        topic.add(1, 2, 3)
    options = {
        "latest": {"startingOffsets": "latest"},
        "earliest": {"startingOffsets": "earliest"},
        "offsets": {"startingOffsets": by_partition(topic.name, 1)},
        "times": {"startingOffsetsByTimestamp": by_partition(topic.name, now)},
        "time": {"startingTimestamp": str(now)},
    }[start]
    found = stream(**{strategy: STRATEGIES[strategy](topic.name)}, **options)
    expected = {"latest": [], "earliest": [-3, -2, -1, 1, 2, 3]}.get(start, [1, 2, 3])
    with found.running() as query:
        if start == "latest":
            await_a_batch(query)
        topic.add(4, 5, 6)
        found.await_values(query, *expected, 4, 5, 6)
    topic.add(7, 8, 9)
    with found.running() as query:
        found.await_values(query, *expected, 4, 5, 6, 7, 8, 9)
        if strategy != "assign":  # those stay what they are
            topic.add_partition()
            topic.add(10, 11, partition=PARTITIONS)
            found.await_values(query, *expected, 4, 5, 6, 7, 8, 9, 10, 11)


def await_a_batch(query: Any) -> None:
    """Where `latest` is, is settled with the first look."""
    deadline = time.monotonic() + WAIT_S
    while query.lastProgress is None:
        assert query.exception() is None, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_pattern_finds_topics_that_come_later(stream, topic, broker):
    later = f"{topic.name}-later"
    topic.add(1, 2, 3)
    options = {"kafka.metadata.max.age.ms": "1000", "startingOffsets": "earliest"}
    found = stream(subscribePattern=f"{topic.name}(-later)?$", **options)
    with found.running() as query:
        found.await_values(query, 1, 2, 3)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic(later, PARTITIONS, 1)])[later].result(30)
        Topic(broker.bootstrap_servers, later).add(4, 5, 6)
        found.await_values(query, 1, 2, 3, 4, 5, 6)


def test_a_topic_that_comes_after_a_query_from_latest_found_none_is_read_from_its_beginning(
    stream, broker
):
    name = f"comes-later-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    options = {"kafka.metadata.max.age.ms": "1000", "startingOffsets": "latest"}
    found = stream(subscribePattern=name, **options)
    with found.running() as query:
        await_a_batch(query)
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(30)
    Topic(broker.bootstrap_servers, name).add(1, 2, 3)
    with found.running() as query:
        found.await_values(query, 1, 2, 3)


def test_without_a_record_so_new_the_query_fails_or_starts_at_latest(stream, topic):
    topic.add(1, 2, 3)
    after = {"subscribe": topic.name, "startingTimestamp": str(int(time.time() * 1000) + 3_600_000)}
    with (
        pytest.raises(Exception, match="No offset matched from request of topic-partition"),
        stream(**after).running() as query,
    ):
        query.awaitTermination(WAIT_S)
    found = stream(**after, startingOffsetsByTimestampStrategy="latest")
    with found.running() as query:
        await_a_batch(query)
        topic.add(4, 5, 6)
        found.await_values(query, 4, 5, 6)


def test_a_self_join_reads_the_same_records_on_both_sides(spark, stream, topic, tmp_path):
    """One source, used twice, has one offset in the log."""
    topic.add(*range(30))
    frame = stream(subscribe=topic.name, startingOffsets="earliest")._load()
    left = frame.selectExpr("cast(value as string) as a")
    right = frame.selectExpr("cast(value as string) as b")
    query = (
        left.join(right, left.a == right.b)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "join"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "joined"))
    )
    assert query.awaitTermination(WAIT_S)
    assert spark.read.parquet(str(tmp_path / "joined")).count() == 30
