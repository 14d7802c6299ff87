"""Update and complete mode by `eo_kafka.foreach_batch`: interrupted at the steps of a commit, each
change of each batch is written once."""

from __future__ import annotations

import functools
import json
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from pyspark import inheritable_thread_target
from pyspark.errors import StreamingQueryException

import eo_kafka
from eo_kafka.errors import OptionsError
from eo_kafka.sinks.transactions.stragglers import end_all
from eo_kafka.testing.processes import CrashPoints
from harness import (
    JOB_TIMEOUT_S,
    Copy,
    assert_exactly_once,
    assert_settled,
    committed,
    control_plane,
    fail_at,
    make_copy,
    read_ledger,
)

VALUES = [b"%d" % number for number in range(300)]


@dataclass
class Counting(Copy):
    """Counts the last digits of the input's numbers."""

    mode: str = "update"

    def start(self, spark):
        from pyspark.sql import functions as f

        words = self.as_job()
        rows = spark.readStream.format("eo-kafka").options(**words["source_options"]).load()
        digit = f.substring(f.col("value").cast("string"), -1, 1).alias("key")
        value = f.to_json(f.struct("count")).alias("value")
        counts = rows.select(digit).groupBy("key").count().select("key", value)
        writer = counts.writeStream.outputMode(self.mode).trigger(availableNow=True)
        if self.checkpoint is not None:
            writer = writer.option("checkpointLocation", str(self.checkpoint))
        return writer.foreachBatch(eo_kafka.foreach_batch(words["sink_options"])).start()


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Counting:
    given = {"partitions": 1, "kind": Counting, "per_batch": 100}
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, **given)


def expected(batches: int) -> Counter[bytes]:
    """Each batch of a hundred adds ten to each digit."""
    rows = [json.dumps({"count": 10 * (n + 1)}, separators=(",", ":")) for n in range(batches)]
    return Counter({row.encode(): 10 for row in rows})


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_each_change_is_written_once(job, spark, mode):
    job.mode = mode
    job.run(spark)
    assert committed(job.servers, job.sink_topic) == expected(3)
    assert_settled(job)


@pytest.mark.parametrize(
    "point",
    ["S1.after_generation", "S6.before_decision", "S6.after_decision", "S8.after_done"],
)
def test_a_batch_that_was_interrupted_is_written_once(
    job, spark, crash_points: CrashPoints, point: str
):
    fail_at(job, spark, crash_points, point)
    job.run(spark)
    assert committed(job.servers, job.sink_topic) == expected(3)
    assert_settled(job)


def test_a_function_that_writes_twice_fails_in_between_and_is_restored(job, make_topic, spark):
    """It must say by which of the two: the first one's snapshots are never behind the second."""
    also = make_topic("also")
    other = {**job.sink_options, "topic": also, "jobName": f"{job.job_name}-also"}
    first = eo_kafka.foreach_batch({**job.sink_options, "snapshots": "true"})
    second, failed = eo_kafka.foreach_batch(other), []

    def both(rows, batch):
        first(rows, batch)
        if batch == 1 and not failed:
            failed.append(batch)
            raise RuntimeError("between the two")
        second(rows, batch)

    def run(function):
        rows = spark.readStream.format("eo-kafka").options(**job.as_job()["source_options"]).load()
        rows = rows.groupBy("value").count().selectExpr("value")  # each comes once
        writer = rows.writeStream.outputMode("update").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(job.checkpoint)).foreachBatch(function)
        assert eo_kafka.start(writer).awaitTermination(JOB_TIMEOUT_S)

    with pytest.raises(OptionsError, match="which job it writes.*functools.wraps"):
        run(both)
    assert not job.checkpoint.exists()
    with pytest.raises(StreamingQueryException, match="between the two"):
        run(functools.wraps(first)(both))
    for _ in range(2):
        shutil.rmtree(job.checkpoint)
        run(functools.wraps(first)(both))
    assert committed(job.servers, job.sink_topic) == Counter(VALUES)
    assert committed(job.servers, also) == Counter(VALUES)


def write_all(write, rows, batch):
    write(rows, batch)


@dataclass
class Branching(Copy):
    """A function of a user's own calls `write`, as `way` has it."""

    way: Callable[..., None] = write_all

    def start(self, spark):
        rows = spark.readStream.format("eo-kafka").options(**self.as_job()["source_options"]).load()
        write = eo_kafka.foreach_batch(self.sink_options)
        writer = rows.writeStream.option("checkpointLocation", str(self.checkpoint))
        function = functools.partial(self.way, write)
        return writer.trigger(availableNow=True).foreachBatch(function).start()


@pytest.fixture
def branching(broker, make_topic, tmp_path) -> Branching:
    given = {"kind": Branching, "per_batch": 100}
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, **given)


def without_1(write, rows, batch):
    if batch != 1:
        write(rows, batch)


@pytest.mark.parametrize(
    ("lost", "said"),
    [
        (slice(1), r"some of its \d+ rows are not in the output"),
        (slice(2), r"none of its \d+ rows is in the output"),
    ],
)
def test_a_batch_that_was_decided_and_lost_is_not_passed_over(
    branching: Branching, spark, crash_points: CrashPoints, lost: slice, said: str
):
    """The function wrote batch 1, and does not when Spark runs it again."""
    job = branching

    def interrupted(write, rows, batch):
        if batch == 1:
            crash_points.arm("S6.after_decision", "raise")
        write(rows, batch)

    job.way = interrupted
    with pytest.raises(StreamingQueryException, match="CrashPointReached"):
        job.run(spark)
    decided = read_ledger(job).decisions["main", 1]
    with control_plane(job.servers) as control:
        parts = [part.identity for part in decided.participants]
        assert len(parts) == 2
        end_all(control, parts[lost], decided.end_txn_version)
    job.way = without_1
    for _ in range(2):  # again and again, until somebody does what it says
        with pytest.raises(StreamingQueryException, match=f"Batch 1 of job .*{said}.*'commits/1'"):
            job.run(spark)
    assert len(committed(job.servers, job.sink_topic)) < 200
    for path in ("offsets/2", "offsets/.2.crc", "commits/1", "commits/.1.crc"):
        (job.checkpoint / path).unlink()
    job.way = write_all
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_batches_that_never_were_decided_may_be_passed_over(branching: Branching, spark):
    branching.way = without_1
    branching.run(spark)
    assert 1 not in (written := read_ledger(branching).of_sink("main"))
    assert {0, 2} <= {*written}


def fails_once(again: bool) -> Callable[..., None]:
    """Batch 1's first write fails in a task."""
    failed = []

    def way(write, rows, batch):
        if batch != 1 or failed:
            return write(rows, batch)
        try:
            write(rows.selectExpr("RAISE_ERROR('boom') AS value"), batch)
        except Exception:
            failed.append(batch)
        return write(rows, batch) if again else None

    return way


def test_an_error_that_the_function_swallows_stops_the_query(branching: Branching, spark):
    job = branching
    job.way = fails_once(again=False)
    said = "function of foreachBatch swallowed the error of a write of batch 1 .*boom"
    with pytest.raises(StreamingQueryException, match=f"(?s){said}"):
        job.run(spark)
    assert not (job.checkpoint / "commits/1").exists()
    job.run(spark)  # the error does not come again
    assert_exactly_once(job, VALUES)


def test_a_function_may_catch_the_error_and_write_the_batch_again(branching: Branching, spark):
    branching.way = fails_once(again=True)
    branching.run(spark)
    assert_exactly_once(branching, VALUES)


def test_a_query_needs_a_checkpoint_that_its_next_start_has_too(job, spark):
    job.checkpoint = None
    with pytest.raises(StreamingQueryException, match="has no 'checkpointLocation': Spark has ma"):
        job.start(spark).awaitTermination(JOB_TIMEOUT_S)
    assert committed(job.servers, job.sink_topic) == Counter()


def test_a_job_needs_a_name():
    with pytest.raises(OptionsError, match="needs option 'jobName'"):
        eo_kafka.foreach_batch({"topic": "t"})


@dataclass
class Saving(Copy):
    """Writes each batch by a `save()` in the user's own function, or in a thread of that."""

    numbered: bool = False
    in_thread: str = ""

    def start(self, spark):
        words = self.as_job()
        rows = spark.readStream.format("eo-kafka").options(**words["source_options"]).load()

        def save(batch, number):
            numbered = {"batchId": str(number)} if self.numbered else {}
            options = {**words["sink_options"], **numbered}
            writer = (
                batch.select("value").write.format("eo-kafka").mode("append").options(**options)
            )

            def in_thread():
                sessions = spark._jvm.org.apache.spark.sql.SparkSession
                sessions.setActiveSession(spark._jsparkSession)
                writer.save()

            if self.in_thread == "that inherits":
                in_thread = inheritable_thread_target(spark)(in_thread)
            if self.in_thread:
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(in_thread).result()
            else:
                writer.save()

        writer = rows.writeStream.option("checkpointLocation", str(self.checkpoint))
        return writer.trigger(availableNow=True).foreachBatch(save).start()


def test_a_plain_save_needs_a_number(broker, make_topic, tmp_path, spark):
    given = {"partitions": 1, "kind": Saving, "per_batch": 150}
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, **given)
    with pytest.raises(StreamingQueryException, match="inside foreachBatch would write a batch"):
        job.run(spark)
    assert not committed(job.servers, job.sink_topic)
    job.numbered = True
    job.run(spark)
    assert committed(job.servers, job.sink_topic) == Counter(VALUES)


def test_a_plain_save_in_a_thread_is_seen_where_the_thread_inherits(
    broker, make_topic, tmp_path, spark
):
    """Spark tells the tasks of any other thread nothing of the query."""
    given = {"partitions": 1, "kind": Saving, "per_batch": None}
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, **given)
    job.in_thread = "that inherits"
    with pytest.raises(StreamingQueryException, match="inside foreachBatch would write a batch"):
        job.run(spark)
    assert not committed(job.servers, job.sink_topic)
    job.in_thread = "of its own"
    job.run(spark)
    assert committed(job.servers, job.sink_topic) == Counter(VALUES)
    for path in (job.checkpoint / "commits").iterdir():  # as if the driver had died before
        path.unlink()
    job.run(spark)
    assert set(committed(job.servers, job.sink_topic).values()) == {2}
