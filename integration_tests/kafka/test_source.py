"""`format("eo-kafka")` as a source under Spark, against a real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions  # type: ignore[attr-defined]

WAIT_S = 60


def produce(broker: Any, topic: str, *values: bytes | None, **record: Any) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in values:
        producer.produce(topic, value=value, **record)
    assert producer.flush(WAIT_S) == 0


def eventually(check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not check():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s"
        time.sleep(0.2)


def loaded(reader: Any, broker: Any, topic: str, **extra: str) -> Any:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic}
    return reader.format("eo-kafka").options(**{**given, **extra}).load()


class Job:
    """A stream from a topic into files, which Spark writes exactly once."""

    def __init__(self, spark: Any, broker: Any, topic: str, folder: Path, **extra: str) -> None:
        self.spark, self.folder = spark, folder
        self.stream = loaded(spark.readStream, broker, topic, **extra)

    def start(self, **trigger: Any) -> Any:
        writer = self.stream.writeStream.format("parquet").trigger(**trigger)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint")).start(
            str(self.folder / "out")
        )

    def run(self) -> list[int]:
        """All that is available now; the rows of each batch."""
        query = self.start(availableNow=True)
        assert query.awaitTermination(WAIT_S)
        return [progress.numInputRows for progress in query.recentProgress]

    def values(self) -> list[str]:
        if not (self.folder / "out" / "_spark_metadata").exists():
            return []
        out = self.spark.read.schema("value binary").parquet(str(self.folder / "out"))
        return sorted(bytes(row.value).decode() for row in out.collect())


def test_batch_read(spark: Any, broker: Any, make_topic: Any) -> None:
    topic = make_topic("batch", partitions=2)
    produce(broker, topic, b"a", None, partition=0, headers=[("h", b"1")])
    produce(broker, topic, b"b", key=b"k", partition=1)
    frame = loaded(spark.read, broker, topic, includeHeaders="true")
    found = {(row.partition, row.value and bytes(row.value)): row for row in frame.collect()}

    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
        "timestamp:timestamp,timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    assert all(field.nullable for field in frame.schema)
    assert found.keys() == {(0, b"a"), (0, None), (1, b"b")}
    assert bytes(found[0, b"a"].headers[0].value) == b"1"
    assert found[1, b"b"].headers is None

    produce(broker, topic, b"late", partition=0)
    assert frame.count() == 3, "each attempt of a task, and each action, reads the same"
    assert loaded(spark.read, broker, topic).count() == 4


def test_batch_read_of_explicit_ranges(spark: Any, broker: Any, make_topic: Any) -> None:
    topic = make_topic("ranges")
    produce(broker, topic, *[b"%d" % number for number in range(10)])
    frame = loaded(
        spark.read,
        broker,
        topic,
        startingOffsets=f'{{"{topic}":{{"0":3}}}}',
        endingOffsets=f'{{"{topic}":{{"0":6}}}}',
    )

    assert sorted(row.offset for row in frame.collect()) == [3, 4, 5]


def test_a_stream_reads_the_batch_that_it_is_joined_with_anew_for_each_batch(
    spark: Any, broker: Any, make_topic: Any, tmp_path: Path
) -> None:
    """As Spark's own connector does, though Spark plans its tasks only once."""
    topic, side = make_topic("stream"), make_topic("side")
    produce(broker, topic, b"a")
    produce(broker, side, b"a")
    joined = loaded(spark.readStream, broker, topic, startingOffsets="earliest").join(
        loaded(spark.read, broker, side).selectExpr("value AS value", "offset AS of_side"), "value"
    )
    found: list[list[int]] = []
    writer = joined.writeStream.foreachBatch(
        lambda rows, _batch: found.append(sorted(row.of_side for row in rows.collect()))
    )
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        produce(broker, side, b"a")
        produce(broker, topic, b"a")
        query.processAllAvailable()
    finally:
        query.stop()
    assert found[0] == [0] and found[-1] == [0, 1]


def test_available_now_is_limited_and_goes_on(
    spark: Any, broker: Any, make_topic: Any, tmp_path: Path
) -> None:
    topic = make_topic("limited", partitions=2)
    for number in range(20):
        produce(broker, topic, b"%02d" % number, partition=number % 2)
    extra = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "8"}
    job = Job(spark, broker, topic, tmp_path, **extra)

    assert [size for size in job.run() if size] == [8, 8, 4]
    produce(broker, topic, b"20", b"21", partition=0)
    jvm_writes_no_spaces(tmp_path / "checkpoint")
    assert [size for size in job.run() if size] == [2]
    assert job.values() == [f"{number:02d}" for number in range(22)]


def jvm_writes_no_spaces(checkpoint: Path) -> None:
    """Make the last offset entry what the JVM connector would have left."""
    last = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda path: int(path.name))
    *head, offset = last.read_text().splitlines()
    assert '": ' in offset
    written = json.dumps(json.loads(offset), separators=(",", ":"))
    last.write_text("\n".join([*head, written]))
    (last.parent / f".{last.name}.crc").unlink()


def test_a_topic_that_is_added_at_a_restart_needs_no_start(
    spark: Any, broker: Any, make_topic: Any, tmp_path: Path
) -> None:
    """The checkpoint says where the others are, and it is read from its beginning."""
    topic, added = make_topic("at-first"), make_topic("added")
    produce(broker, topic, b"a", b"b")
    given = {"startingOffsets": f'{{"{topic}":{{"0":1}}}}'}
    assert sum(Job(spark, broker, topic, tmp_path, **given).run()) == 1
    produce(broker, added, b"c", b"d")
    job = Job(spark, broker, f"{topic},{added}", tmp_path, **given)
    job.run()
    assert job.values() == ["b", "c", "d"]


def test_a_partition_added_while_it_runs(
    spark: Any, broker: Any, make_topic: Any, tmp_path: Path
) -> None:
    topic = make_topic("growing")
    produce(broker, topic, b"a")
    job = Job(spark, broker, topic, tmp_path, startingOffsets="earliest")
    query = job.start(processingTime="100 milliseconds")
    try:
        eventually(lambda: job.values() == ["a"])
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_partitions([NewPartitions(topic, 2)])[topic].result(WAIT_S)
        produce(broker, topic, b"b", partition=1)
        produce(broker, topic, b"c", partition=0)
        eventually(lambda: job.values() == ["a", "b", "c"])
        assert query.isActive
    finally:
        query.stop()


KILLED_JOB = """
import sys
from pyspark.sql import SparkSession
servers, topic, folder = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
stream = spark.readStream.format("eo-kafka").option("kafka.bootstrap.servers", servers)
writer = stream.option("subscribe", topic).load().writeStream.format("parquet")
writer = writer.option("checkpointLocation", folder + "/checkpoint").trigger(availableNow=True)
writer.start(folder + "/out").awaitTermination()
"""


def test_latest_survives_a_driver_killed_before_batch_0_commits(
    spark: Any, broker: Any, make_topic: Any, tmp_path: Path
) -> None:
    topic = make_topic("latest", partitions=2)
    produce(broker, topic, b"old", b"old", partition=1)
    points = tmp_path / "points"
    points.mkdir()
    (points / "source.before_partitions").write_text("kill-driver")
    subprocess.run(
        [sys.executable, "-c", KILLED_JOB, broker.bootstrap_servers, topic, str(tmp_path)],
        env={**os.environ, "EO_KAFKA_CRASH_POINTS": str(points), "PYSPARK_PYTHON": sys.executable},
        timeout=2 * WAIT_S,
        check=False,
        capture_output=True,
    )
    assert (points / "source.before_partitions.reached").exists()
    assert (tmp_path / "checkpoint/offsets/0").exists()
    assert not (tmp_path / "checkpoint/commits/0").exists()

    for number in range(10):
        produce(broker, topic, b"%d" % number, partition=number % 2)
    Job(spark, broker, topic, tmp_path).run()
    produce(broker, topic, b"last", partition=0)
    job = Job(spark, broker, topic, tmp_path)
    job.run()
    assert job.values() == [*map(str, range(10)), "last"]


@pytest.mark.parametrize("lenient", [False, True])
def test_a_start_beyond_the_end_is_waited_for_by_the_next_start(
    spark: Any, broker: Any, make_topic: Any, tmp_path: Path, lenient: bool
) -> None:
    """Spark's own connector stores an end below the start: no restart helps, and what a
    `failOnDataLoss=false` reads then is what was not to be read."""
    topic = make_topic("beyond", partitions=2)
    produce(broker, topic, *[b"before"] * 3, partition=0)
    extra = {"failOnDataLoss": "false"} if lenient else {}
    extra["startingOffsets"] = json.dumps({topic: {"0": 5, "1": 0}})
    for written in (1, 1):  # 4 there, then 5: all that is before the start
        with pytest.raises(Exception, match=f"offset 5 of partition {topic}-0, which ends at"):
            Job(spark, broker, topic, tmp_path, **extra).run()
        assert not list((tmp_path / "checkpoint/offsets").glob("[0-9]*")), "nothing is stored"
        produce(broker, topic, *[b"before"] * written, partition=0)
    produce(broker, topic, b"first", b"second", partition=0)
    produce(broker, topic, b"other", partition=1)
    Job(spark, broker, topic, tmp_path, **extra).run()
    produce(broker, topic, b"third", partition=0)
    job = Job(spark, broker, topic, tmp_path, **extra)
    job.run()
    assert job.values() == ["first", "other", "second", "third"]


def test_a_checkpoint_that_was_planned_below_its_start_is_refused_for_good(
    spark: Any, broker: Any, make_topic: Any, tmp_path: Path
) -> None:
    """Spark's own connector has stored its end, and fails, too."""
    topic = make_topic("below")
    produce(broker, topic, *[b"before"] * 3)
    start = {"startingOffsets": json.dumps({topic: {"0": 5}})}
    spoilt = Job(spark, broker, topic, tmp_path)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": topic, **start}
    spoilt.stream = spark.readStream.format("kafka").options(**given).load()
    with pytest.raises(Exception, match="lost"):
        spoilt.run()
    assert json.loads((tmp_path / "checkpoint/offsets/0").read_text().split("\n")[-1])[topic] == {
        "0": 3
    }
    produce(broker, topic, *[b"more"] * 4)
    for lenient in ({}, {"failOnDataLoss": "false"}):
        job = Job(spark, broker, topic, tmp_path, **start, **lenient)
        with pytest.raises(Exception, match=f"offset 5 of partition {topic}-0, which ends at 3"):
            job.run()
    assert job.values() == []
    again = Job(spark, broker, topic, tmp_path / "new", **start)
    again.run()
    assert again.values() == ["more", "more"]


def test_an_unknown_topic_stops_the_query_with_its_sentence(
    spark: Any, broker: Any, tmp_path: Path
) -> None:
    job = Job(spark, broker, "no-such-topic", tmp_path)

    with pytest.raises(Exception, match="The topic 'no-such-topic' does not exist"):
        job.run()


def test_wrong_options_fail_at_load(spark: Any, broker: Any) -> None:
    with pytest.raises(Exception, match="must be earliest, latest or JSON") as refused:
        loaded(spark.readStream, broker, "t", startingOffsets="soon", failOnDataLoss="maybe")
    assert "'failOnDataLoss' must be true or false" in str(refused.value)
    with pytest.raises(Exception, match="starting offset can't be latest for batch queries"):
        loaded(spark.read, broker, "t", startingOffsets="latest").collect()


def test_load_contacts_no_broker(spark: Any) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "nothing"}
    for reader in (spark.read, spark.readStream):
        assert "offset" in reader.format("eo-kafka").options(**options).load().columns
