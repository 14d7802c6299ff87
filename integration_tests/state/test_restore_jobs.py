"""A job that lost its disk: the checkpoint is gone, and `eo_kafka.start` goes on from Kafka, with
nothing lost or repeated and with the state that an uninterrupted run has."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

import eo_kafka
from eo_kafka.state.snapshots.closure import tables
from harness import (
    Stateful,
    assert_exactly_once,
    assert_settled,
    committed,
    fail_at,
    kill_driver_at,
    make_copy,
    produce,
    read_ledger,
)
from jobs.stateful_job import settings

ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming."
    "state.RocksDBStateStoreProvider"
}
CHANGELOG = {
    **ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}
FORMAT_2 = {**CHANGELOG, "spark.sql.streaming.stateStore.checkpointFormatVersion": "2"}
TABLES_CHANGE = {
    **ROCKSDB,
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "2",
    "spark.sql.streaming.stateStore.rocksdb.compactOnCommit": "true",
}
PROVIDERS = {"hdfs": {}, "rocksdb": ROCKSDB, "changelog": CHANGELOG, "format-2": FORMAT_2}


def events(start: int, end: int) -> list[bytes]:
    """Half a second of event time an event; each tenth comes twice."""
    numbers = [n for n in range(start, end) for _ in range(2 if n % 10 == 0 else 1)]
    return [
        json.dumps({"k": f"k{n % 3}", "n": n, "t": 1_000_000 + n // 2}).encode() for n in numbers
    ]


FIRST, SECOND = events(0, 150), events(150, 300)


@pytest.fixture
def new_job(broker, make_topic, tmp_path):
    """Jobs on one input, each with an output and a checkpoint of its own."""
    source = make_topic("in")
    produce(broker.bootstrap_servers, source, FIRST)

    def new(name: str, **settings) -> Stateful:
        return Stateful(
            servers=broker.bootstrap_servers,
            source_topic=source,
            sink_topic=make_topic(f"out-{name}", partitions=2),
            checkpoint=tmp_path / name / "0",
            job_name=f"{name}-{source}",
            per_batch=60,
            **settings,
        )

    return new


def lose_the_disk(job: Stateful) -> None:
    """The checkpoint is gone; somebody has the job go on on another machine, under another path."""
    shutil.rmtree(job.checkpoint)
    job.checkpoint = job.checkpoint.with_name(str(int(job.checkpoint.name) + 1))
    eo_kafka.restore(str(job.checkpoint), job.job_name, job.sink_options, progress=False)


def uninterrupted(job: Stateful, spark) -> Counter[bytes]:
    job.run(spark)
    produce(job.servers, job.source_topic, SECOND)
    job.run(spark)
    return committed(job.servers, job.sink_topic)


def state_of(job: Stateful, spark) -> Counter[tuple[str, ...]]:
    """Key and value of all that the first operator keeps."""
    reader = spark.read.format("statestore").option("path", str(job.checkpoint))
    if job.operator == "join":
        reader = reader.option("joinSide", "left")
    if job.operator in ("rows", "timers", "pandas"):
        reader = reader.option("stateVarName", "total")
    with settings(spark, job.conf):
        return Counter(tuple(map(str, row)) for row in reader.load().collect())


@pytest.mark.parametrize(
    ("operator", "provider"),
    [
        pytest.param("window", "hdfs", marks=pytest.mark.full),
        pytest.param("window", "format-2", marks=pytest.mark.full),
        pytest.param("session", "rocksdb", marks=pytest.mark.full),
        ("timers", "changelog"),
        pytest.param("deduplication", "changelog", marks=pytest.mark.full),
        pytest.param("join", "hdfs", marks=pytest.mark.full),
        pytest.param("window", "rocksdb", marks=pytest.mark.full),
        pytest.param("window", "changelog", marks=pytest.mark.full),
        pytest.param("session", "hdfs", marks=pytest.mark.full),
        pytest.param("deduplication", "hdfs", marks=pytest.mark.full),
        pytest.param("join", "rocksdb", marks=pytest.mark.full),
        pytest.param("join", "format-2", marks=pytest.mark.full),
        pytest.param("rows", "rocksdb", marks=pytest.mark.full),
        pytest.param("pandas", "rocksdb", marks=pytest.mark.full),
        pytest.param("pandas", "changelog", marks=pytest.mark.full),
    ],
)
def test_each_operator_goes_on_from_kafka_with_its_state(
    new_job, spark, crash_points, operator, provider
):
    job = new_job("lost", operator=operator, conf=PROVIDERS[provider])
    same = new_job("same", operator=operator, conf=PROVIDERS[provider])
    job.run(spark)
    lose_the_disk(job)  # between two runs: nothing is in flight
    expected = uninterrupted(same, spark)  # and the second half of the input is there
    fail_at(job, spark, crash_points, "S6.after_decision")
    lose_the_disk(job)  # in the middle of a commit
    job.run(spark)
    assert expected
    assert operator != "timers" or any(b"sums" in row for row in expected), "no timer expired"
    assert committed(job.servers, job.sink_topic) == expected
    assert state_of(job, spark) == state_of(same, spark)
    assert_settled(job)


@pytest.mark.parametrize(
    ("point", "mode"),
    [
        pytest.param("S6.snapshot_taken", "append", marks=pytest.mark.full),
        pytest.param("S6.after_decision", "append", marks=pytest.mark.smoke),
        pytest.param("S3.while_writing", "append", marks=pytest.mark.full),
        pytest.param("S1.after_generation", "append", marks=pytest.mark.full),
        pytest.param("S6.before_decision", "append", marks=pytest.mark.full),
        pytest.param("S7.after_first_end_txn", "append", marks=pytest.mark.full),
        pytest.param("S8.after_done", "append", marks=pytest.mark.full),
        pytest.param("S6.after_decision", "update", marks=pytest.mark.full),  # by foreach_batch
        pytest.param("S6.snapshot_taken", "update", marks=pytest.mark.full),
        pytest.param("S3.while_writing", "update", marks=pytest.mark.full),
        pytest.param("S8.after_done", "update", marks=pytest.mark.full),
        pytest.param("S6.after_decision", "complete", marks=pytest.mark.full),
    ],
)
def test_a_driver_and_its_disk_may_go_at_any_step(
    new_job, spark, crash_points, tmp_path, point, mode
):
    job, same = new_job("lost", mode=mode), new_job("same", mode=mode)
    job.run(spark)
    expected = uninterrupted(same, spark)
    job.master = "local[4,4]"  # after which it goes on with fewer cores, in the tests' own session
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    lose_the_disk(job)
    job.run(spark)
    assert committed(job.servers, job.sink_topic) == expected
    assert state_of(job, spark) == state_of(same, spark)
    assert_settled(job)


def test_a_restore_that_was_killed_is_started_again(new_job, spark, crash_points, tmp_path):
    job, same = new_job("lost"), new_job("same")
    job.run(spark)
    expected = uninterrupted(same, spark)
    shutil.rmtree(job.checkpoint)
    crash_points.arm("restore.while_writing", "kill")
    assert job.run_in_own_driver(tmp_path / "log") != 0
    assert crash_points.reached("restore.while_writing")
    assert Path(job.checkpoint / "_eo_kafka_restoring").exists()
    job.run(spark)
    assert committed(job.servers, job.sink_topic) == expected


def test_a_checkpoint_that_lost_a_commit_goes_on_and_is_restored(new_job, spark, crash_points):
    """Spark's log of finished batches lacks one, and a later batch has begun: Spark only warns."""
    job, same = new_job("lost"), new_job("same")
    job.run(spark)
    expected = uninterrupted(same, spark)
    fail_at(job, spark, crash_points, "S6.before_decision")
    newest = max(int(path.name) for path in (job.checkpoint / "commits").glob("[0-9]*"))
    assert (job.checkpoint / f"offsets/{newest + 1}").exists()
    (job.checkpoint / f"commits/{newest}").unlink()
    fail_at(job, spark, crash_points, "S6.after_decision")
    assert read_ledger(job).snapshot.batch == newest + 1
    lose_the_disk(job)
    job.run(spark)
    assert committed(job.servers, job.sink_topic) == expected
    assert state_of(job, spark) == state_of(same, spark)


def test_a_clean_up_that_died_half_way_stops_no_query_and_no_restore(new_job, spark):
    """Spark has removed the tables that only older zips name, and not yet these zips."""
    job, same = (
        new_job(name, operator="deduplication", conf=TABLES_CHANGE) for name in ("lost", "same")
    )
    job.run(spark)
    removed = 0
    for store in (job.checkpoint / "state/0").glob("[0-9]*"):
        *older, newest = sorted(store.glob("*.zip"), key=lambda path: int(path.name.split("_")[0]))
        kept = set(tables(newest.read_bytes()))
        gone = {name for path in older for name in tables(path.read_bytes())} - kept
        removed += len(gone)
        for name in gone:
            (store / name).unlink()
    assert removed
    same.run(spark)
    produce(job.servers, job.source_topic, SECOND[:60])
    job.run(spark)  # its snapshot is of a checkpoint as the clean-up has left it
    lose_the_disk(job)
    produce(job.servers, job.source_topic, SECOND[60:])
    job.run(spark)
    same.run(spark)
    expected = committed(same.servers, same.sink_topic)
    assert expected
    assert committed(job.servers, job.sink_topic) == expected
    assert state_of(job, spark) == state_of(same, spark)


def test_a_query_on_a_checkpoint_that_parted_from_the_ledger_stops(new_job, spark, tmp_path):
    """Somebody kept a copy of an older checkpoint and goes on from it after more input came: its
    next batch has the number of one that is DONE, and holds other records."""
    job = new_job("copied")
    job.run(spark)
    shutil.copytree(job.checkpoint, tmp_path / "copy")
    produce(job.servers, job.source_topic, SECOND)
    job.run(spark)
    before = committed(job.servers, job.sink_topic)
    job.checkpoint, job.per_batch = tmp_path / "copy", 50
    with pytest.raises(
        Exception, match=r"the batch \d+ that comes now is another one.*snapshots restore"
    ):
        job.run(spark)
    assert committed(job.servers, job.sink_topic) == before


def test_an_older_copy_does_not_come_to_another_time_of_day_in_silence(new_job, spark, tmp_path):
    """The batches that it lacks are planned anew, with the same records. What the query gives in
    them only now would be lost, as these batches are written."""
    job = new_job("copied", operator="by_the_clock")
    job.run(spark)
    shutil.copytree(job.checkpoint, tmp_path / "copy")
    produce(job.servers, job.source_topic, SECOND)
    job.run(spark)
    of_the_job, job.checkpoint = job.checkpoint, tmp_path / "copy"
    with pytest.raises(Exception, match=r"time of day.*applyInPandasWithState.*snapshots restore"):
        job.run(spark)
    job.checkpoint = of_the_job
    lose_the_disk(job)
    job.run(spark)
    assert_settled(job)


def test_a_job_without_a_snapshot_starts_from_nothing(new_job, spark):
    job = new_job("off", operator="deduplication")
    job.sink_extra = {"snapshots": "false"}
    job.run(spark)
    assert read_ledger(job).snapshot is None
    assert len(committed(job.servers, job.sink_topic)) == 150


def test_a_relative_checkpoint_is_where_spark_has_it_wherever_python_has_gone(
    broker, make_topic, spark, tmp_path, monkeypatch
):
    """A driver's chdir does not move its JVM."""
    values, checkpoint = [b"%d" % n for n in range(30)], tmp_path / "checkpoint"
    job = make_copy(
        *(broker.bootstrap_servers, make_topic, tmp_path, values[:10]),
        sink_extra={"snapshots": "true"},
    )
    of_spark = spark._jvm.java.lang.System.getProperty("user.dir")
    job.checkpoint = Path(os.path.relpath(checkpoint, of_spark))
    (tmp_path / "python" / "is" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "python" / "is" / "here")
    job.run(spark)
    produce(job.servers, job.source_topic, values[10:20])
    job.run(spark)
    shutil.rmtree(checkpoint)
    produce(job.servers, job.source_topic, values[20:])
    job.run(spark)
    assert_exactly_once(job, values)
    assert (checkpoint / "commits" / "2").exists(), "it was restored there"
