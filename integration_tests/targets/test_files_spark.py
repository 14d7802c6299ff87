"""`eo-files` by Spark: written by a driver that dies again and again, read meanwhile by its own
format and by Spark's; and what is refused."""

from __future__ import annotations

import datetime
import math
import random
import threading
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import functions as f

import eo_kafka
from eo_kafka.testing.processes import wait_until
from harness import JOB_TIMEOUT_S, Copy, kill_driver_at, kill_group, produce, started
from lane_copies import LaneCopy, assert_done, die_twice, lane_copy
from newcomer import blocks

VALUES = [b"%d" % number for number in range(1200)]


class IntoFiles(Copy):
    """A copy of a topic into files."""

    def as_job(self) -> dict[str, object]:
        options = {**self.sink_options, "path": self.path}
        del options["topic"]
        return {**super().as_job(), "sink": "eo-files", "sink_options": options}


@pytest.fixture
def copy(broker, make_topic, tmp_path) -> IntoFiles:
    found = IntoFiles(
        servers=broker.bootstrap_servers,
        source_topic=make_topic("in", partitions=2),
        sink_topic="none",
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{tmp_path.name}",
    )
    found.path = str(tmp_path / "table")
    produce(found.servers, found.source_topic, VALUES)
    return found


def honest(spark, path: str) -> Counter:
    return Counter(bytes(one.value) for one in spark.read.format("eo-files").load(path).collect())


def plain(spark, path: str) -> Counter:
    return Counter(bytes(one.value) for one in spark.read.parquet(path).collect())


class Looking:
    """Both kinds of readers, all the time."""

    def __init__(self, spark, path: str) -> None:
        self._spark, self._path = spark, path
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.seen: list[Counter] = []
        self.failed: list[Exception] = []

    def __enter__(self) -> Looking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(120)
        batches = [
            set(plain(self._spark, str(batch))) for batch in Path(self._path).glob("batch=*")
        ]
        for found in self.seen:
            whole = [batch for batch in batches if batch & set(found)]
            assert found == Counter(set().union(*whole)), "a part of a batch was seen, or twice"
        assert not self.failed

    def _look(self) -> None:
        while not self._ended.wait(0.2):  # the driver needs the machine, too
            if not list(Path(self._path).glob("batch=*/*")):
                continue
            for read in (honest, plain):
                try:
                    self.seen.append(read(self._spark, self._path))
                except Exception as error:  # told by the test
                    self.failed.append(error)


@pytest.mark.full  # CI: each point by itself, before both kinds of readers, in test_files_sink.py
@pytest.mark.timeout(400)
def test_a_driver_that_dies_again_and_again_leaves_each_row_once(spark, copy, tmp_path):
    chance = random.Random(7)
    with Looking(spark, copy.path) as looking:
        for _ in range(2):
            with started(copy, tmp_path / "log") as driver:
                before = len(list(Path(copy.path).glob("batch=*")))
                wait_until(
                    lambda before=before, driver=driver: (
                        driver.poll() is not None
                        or len(list(Path(copy.path).glob("batch=*"))) > before
                    ),
                    "a batch more, or the end",
                    JOB_TIMEOUT_S,
                )
                threading.Event().wait(chance.uniform(0, 1))
                kill_group(driver)
        assert copy.run_in_own_driver(tmp_path / "log") == 0
        wait_until(lambda: len(looking.seen) > 2, "readers have looked")
    assert honest(spark, copy.path) == plain(spark, copy.path) == Counter(VALUES)


@pytest.mark.parametrize(
    "point", ["files.before_rename", pytest.param("files.while_publishing", marks=pytest.mark.full)]
)
def test_a_batch_is_read_as_a_whole_before_it_is_published(
    spark, copy, crash_points, tmp_path, point
):
    kill_driver_at(copy, crash_points, point, tmp_path / "log")
    assert not list(Path(copy.path).glob("batch=*"))
    seen = honest(spark, copy.path)
    assert copy.run_in_own_driver(tmp_path / "log") == 0
    assert seen == plain(spark, str(min(Path(copy.path).glob("batch=*"))))
    assert honest(spark, copy.path) == plain(spark, copy.path) == Counter(VALUES)


@pytest.mark.full
def test_the_direct_lane_writes_files_by_the_same_decision(
    spark, broker, make_topic, tmp_path, crash_points
):
    path = str(tmp_path / "table")
    lane: LaneCopy = lane_copy(broker, make_topic, tmp_path, {"path": path})
    die_twice(lane, crash_points, "target.while_staging", "files.before_rename", tmp_path / "log")
    assert lane.run_in_own_driver(tmp_path / "log") == 0
    assert_done(lane, honest(spark, path))
    assert plain(spark, path) == honest(spark, path)


def writer(rows, broker, batch: int, job: str = "files-batches", **options: str):
    given = {"jobName": job, "batchId": str(batch), "kafka.bootstrap.servers": broker}
    return rows.write.format("eo-files").mode("append").options(**given, **options)


def all_kinds(spark):
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
    day = datetime.date(1500, 1, 1)
    row = (True, 1, 2, 3, 4, 0.5, 0.25, Decimal("1.20"), "é", b"\xff", day, at, at)
    nested = ([1, None], {"a": 1}, ([{"x": "y"}],))
    schema = (
        "flag boolean, a tinyint, b smallint, c int, d bigint, f float, g double, "
        "price decimal(10,2), word string, bytes binary, day date, at timestamp, "
        "local timestamp_ntz, list array<int>, map map<string,int>, "
        "deep struct<a:array<struct<x:string>>>"
    )
    return spark.createDataFrame([row + nested, (None,) * 16], schema)


def test_all_kinds_of_columns_come_back_and_one_may_be_added(spark, broker, tmp_path):
    path, servers = str(tmp_path / "t"), broker.bootstrap_servers
    rows = all_kinds(spark)
    job = f"job-{tmp_path.name}"
    writer(rows, servers, 1, job).save(path)
    writer(rows, servers, 1, job).save(path)  # again: it is there
    read = spark.read.format("eo-files").load(path)
    assert read.schema == rows.schema
    assert sorted(map(str, read.collect())) == sorted(map(str, rows.collect()))
    assert sorted(map(str, spark.read.parquet(path).drop("batch").collect())) == sorted(
        map(str, rows.collect())
    )
    writer(rows.select("c", f.lit("x").alias("new")), servers, 2, job).save(path)
    read = spark.read.format("eo-files").load(path)
    assert read.columns == [*rows.columns, "new"]
    assert Counter(one.new for one in read.collect()) == {None: 2, "x": 2}
    some = spark.read.format("eo-files").schema("new string, c int").load(path).collect()
    assert {(one.c, one.new) for one in some} == {(c, x) for c in (3, None) for x in ("x", None)}


@pytest.mark.parametrize("file_format", ["json", "csv"])
def test_json_and_csv_come_back_by_both_readers(spark, broker, tmp_path, file_format):
    path = str(tmp_path / "t")
    odd = "a\"b'\\c,\n\r\n é;\\"
    more = [("", math.nan), (odd, math.inf), (" x ", -math.inf), ("null", 0.1), (None, None)]
    rows = spark.createDataFrame(more, "text string, number double").join(
        all_kinds(spark), how="cross"
    )
    if file_format == "csv":
        rows = rows.drop("bytes", "list", "map", "deep")
    options = {"fileFormat": file_format, "job": f"job-{tmp_path.name}"}
    writer(rows, broker.bootstrap_servers, 1, **options).save(path)
    wanted = Counter(map(str, rows.collect()))
    read = spark.read.format("eo-files").load(path)
    assert read.schema == rows.schema
    assert Counter(map(str, read.collect())) == wanted
    plain = spark.read.schema(rows.schema)
    if file_format == "csv":
        plain = plain.options(header=True, multiLine=True, escape='"')
    found = plain.format(file_format).load(path).drop("batch")
    if file_format == "csv":  # Spark's reader knows no empty text
        wanted = Counter(str(one) for one in rows.replace("", None, "text").collect())
    assert Counter(map(str, found.collect())) == wanted


def test_a_column_that_a_format_cannot_keep_is_told(spark, broker, tmp_path):
    with pytest.raises(Exception, match="Column 'bytes' has type binary, which csv") as told:
        rows = all_kinds(spark).withColumn("odd", f.create_map(f.lit(1), f.lit(2)))
        writer(rows, broker.bootstrap_servers, 1, fileFormat="csv").save(str(tmp_path / "t"))
    for column in ("list", "map", "deep", "odd"):
        assert f"Column '{column}' has type {{" in str(told.value)
    with pytest.raises(Exception, match="Column 'odd' has type .*which json files do not keep"):
        writer(rows, broker.bootstrap_servers, 1, fileFormat="json").save(str(tmp_path / "t"))


def test_what_cannot_be_is_told_at_once(spark, broker, tmp_path):
    path, servers = str(tmp_path / "t"), broker.bootstrap_servers
    rows = spark.sql("SELECT 1 AS batch, 2 AS x, INTERVAL '1' DAY AS span, 3 AS X")
    with pytest.raises(Exception, match="called the number of a batch|Column 'batch'") as told:
        writer(rows, servers, 1).option("fileFormat", "xml").save(path)
    for said in ("interval", "are one to readers", "'fileFormat' must be one of"):
        assert said in str(told.value)
    with pytest.raises(Exception, match="'path' must be specified"):
        writer(spark.range(1), servers, 1).save()
    with pytest.raises(Exception, match="must be a whole path"):
        writer(spark.range(1), servers, 1).save("some/where")
    with pytest.raises(Exception, match="of scheme 'hdfs', which is not supported"):
        writer(spark.range(1), servers, 1).save("hdfs://host/x")
    with pytest.raises(Exception, match="has no batch of eo-kafka"):
        spark.read.format("eo-files").load(path)
    with pytest.raises(Exception, match="is read as a batch"):
        stream = spark.readStream.format("eo-files").schema("id long").load(path)
        query = stream.writeStream.format("noop").option("checkpointLocation", f"{path}-c")
        query.start().awaitTermination(60)
    assert not Path(path).exists()


def test_the_page_of_files_works(spark, copy, tmp_path):
    source = {"kafka.bootstrap.servers": copy.servers, "subscribe": copy.source_topic}
    orders = spark.readStream.format("eo-kafka").options(**source, startingOffsets="earliest")
    names = {"spark": spark, "orders": orders.load()}
    changed = {"localhost:9092": copy.servers, "/data/orders-to-files": str(copy.checkpoint)}
    write, read = (block.content for block in blocks("docs/files.md"))
    for old, new in {**changed, "/data/orders": copy.path}.items():
        write, read = write.replace(old, new), read.replace(old, new)
    exec(compile(write, "docs/files.md", "exec"), names)
    query = names["query"]
    query.processAllAvailable()
    query.stop()
    found = eval(compile(read.strip(), "docs/files.md", "eval"), names)
    seen = tmp_path / "seen"  # as the page says of streams
    stream = spark.readStream.schema(found.schema).parquet(copy.path).writeStream
    stream = stream.format("parquet").option("checkpointLocation", str(tmp_path / "read"))
    stream.trigger(availableNow=True).start(str(seen)).awaitTermination(JOB_TIMEOUT_S)
    assert plain(spark, str(seen)) == Counter(VALUES)
    assert Counter(bytes(one.value) for one in found.collect()) == Counter(VALUES)


def test_foreach_batch_writes_files(spark, copy, tmp_path):
    write = eo_kafka.foreach_batch(
        {"path": copy.path, "jobName": copy.job_name, "kafka.bootstrap.servers": copy.servers}
    )
    source = spark.readStream.format("eo-kafka").option("subscribe", copy.source_topic)
    source = source.option("startingOffsets", "earliest")
    counted = (
        source.option("kafka.bootstrap.servers", copy.servers)
        .load()
        .groupBy(f.length("value").alias("digits"))
        .count()
    )
    query = counted.writeStream.outputMode("update").foreachBatch(write)
    query = query.option("checkpointLocation", str(copy.checkpoint)).trigger(availableNow=True)
    query.start().awaitTermination(JOB_TIMEOUT_S)
    found = spark.read.format("eo-files").load(copy.path).collect()
    assert {(one.digits, one["count"]) for one in found} == {(1, 10), (2, 90), (3, 900), (4, 200)}
