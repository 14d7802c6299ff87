"""The number of state partitions is changed while the query is stopped: more, and fewer; the disk
is lost afterwards; and what cannot work is refused before the checkpoint is touched."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

import eo_kafka
from eo_kafka.errors import CheckpointError
from harness import Stateful, assert_settled, committed, fail_at, kill_driver_at, produce
from test_restore_jobs import (  # noqa: F401 - a fixture
    CHANGELOG,
    FIRST,
    ROCKSDB,
    SECOND,
    lose_the_disk,
    new_job,
    state_of,
)


def keyed(job: Stateful, spark) -> Counter[tuple[str, ...]]:
    """The state without the last column, which is the partition's number."""
    found: Counter[tuple[str, ...]] = Counter()
    for row, times in state_of(job, spark).items():
        found[row[:-1]] += times
    return found


def partitions_of(job: Stateful) -> set[str]:
    """The partitions that the newest batch's state is in."""
    folder = job.checkpoint / "state/0"
    newest = max(int(path.stem) for path in folder.glob("*/*.zip"))
    return {path.parent.name for path in folder.glob(f"*/{newest}.zip")}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("operator", "conf", "commit"),
    [
        pytest.param("window", ROCKSDB, "two-phase", marks=pytest.mark.full),
        ("rows", CHANGELOG, "two-phase"),
        pytest.param("rows", CHANGELOG, "idempotent", marks=pytest.mark.full),
    ],
)
def test_more_and_then_fewer_partitions_and_then_the_disk_is_lost(
    new_job,  # noqa: F811
    spark,
    operator,
    conf,
    commit,
):
    job, same = (new_job(name, operator=operator, conf=conf) for name in ("changed", "same"))
    job.sink_extra["commit"] = same.sink_extra["commit"] = commit
    job.run(spark)
    same.run(spark)
    eo_kafka.repartition(spark, str(job.checkpoint), 3)
    third = [value.replace(b'"n": ', b'"n": 1000') for value in SECOND]
    for values, partitions in ((SECOND, 1), (third, None)):
        produce(job.servers, job.source_topic, values)
        job.run(spark)
        same.run(spark)
        assert committed(job.servers, job.sink_topic) == committed(same.servers, same.sink_topic)
        assert keyed(job, spark) == keyed(same, spark)
        if partitions is not None:
            eo_kafka.repartition(spark, str(job.checkpoint), partitions)
    lose_the_disk(job)
    produce(job.servers, job.source_topic, FIRST)
    job.run(spark)
    same.run(spark)
    assert committed(job.servers, job.sink_topic) == committed(same.servers, same.sink_topic)
    assert keyed(job, spark) == keyed(same, spark)
    assert_settled(job)


def test_without_the_checkpoint_of_after_it_a_batch_that_is_partly_committed_is_not_repeated(
    new_job,  # noqa: F811
    spark,
    crash_points,
    tmp_path,
):
    """With the checkpoint of before, Spark gives what that batch has read the number of the
    repartition, and no other token would speak against writing it."""
    job = new_job("torn", operator="rows", conf=CHANGELOG)
    job.sink_extra["commit"] = "idempotent"
    job.run(spark)
    eo_kafka.repartition(spark, str(job.checkpoint), 3)
    produce(job.servers, job.source_topic, SECOND)
    kill_driver_at(job, crash_points, "one-phase.committed", tmp_path / "log")
    written = committed(job.servers, job.sink_topic)
    lose_the_disk(job)
    produce(job.servers, job.source_topic, FIRST)
    with pytest.raises(StreamingQueryException, match="was interrupted when tasks had committed"):
        job.run(spark)
    assert committed(job.servers, job.sink_topic) == written


@pytest.mark.parametrize("commit", ["idempotent", "two-phase"])
def test_an_older_checkpoint_that_is_repartitioned_repeats_nothing(
    new_job,  # noqa: F811
    spark,
    commit,
):
    """Two of them take the numbers of the batches that are written since, the one with records and
    the one that told the state of their watermark. The next number is a new one, and what it reads
    is written."""
    job = new_job("older", operator="rows", conf=CHANGELOG)
    job.sink_extra["commit"] = commit
    job.run(spark)
    older = job.checkpoint.with_name("older")
    shutil.copytree(job.checkpoint, older)
    produce(job.servers, job.source_topic, SECOND[:20])  # one batch
    job.run(spark)
    written = committed(job.servers, job.sink_topic)
    shutil.rmtree(job.checkpoint)
    older.rename(job.checkpoint)
    for partitions in (3, 4):
        eo_kafka.repartition(spark, str(job.checkpoint), partitions)
    with pytest.raises(StreamingQueryException, match="is not decided: it begins at"):
        job.run(spark)
    assert committed(job.servers, job.sink_topic) == written


def test_what_would_leave_the_checkpoint_stuck_is_refused_and_nothing_touched(
    new_job,  # noqa: F811
    spark,
    crash_points,
    tmp_path,
):
    job = new_job("default-store", operator="deduplication")
    job.run(spark)
    before = contents(job.checkpoint)
    with pytest.raises(CheckpointError, match="HDFSBackedStateStoreProvider.*stuck"):
        eo_kafka.repartition(spark, str(job.checkpoint), 3)
    assert contents(job.checkpoint) == before
    rocks = new_job("unfinished", operator="deduplication", conf=ROCKSDB)
    fail_at(rocks, spark, crash_points, "S6.after_decision")
    before = contents(rocks.checkpoint)
    with pytest.raises(CheckpointError, match="is not finished.*availableNow"):
        eo_kafka.repartition(spark, str(rocks.checkpoint), 3)
    assert contents(rocks.checkpoint) == before
    rocks.run(spark)
    with pytest.raises(CheckpointError, match="has 2 partitions already"):
        eo_kafka.repartition(spark, str(rocks.checkpoint), 2)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        eo_kafka.repartition(spark, str(tmp_path / "nothing"), 2)
