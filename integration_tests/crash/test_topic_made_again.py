"""A source topic that is deleted and made again: no record of the new one is passed over without a
word. With `failOnDataLoss=false` it is read from its beginning, once, whatever dies meanwhile."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace

import pytest

from eo_kafka.testing.records import write
from harness import (
    Copy,
    Stateful,
    assert_exactly_once,
    committed,
    control_plane,
    kill_driver_at,
    make_copy,
    produce,
    recreate_topic,
    started,
)
from test_restore_jobs import events

FULL = pytest.mark.full
OLD = [b"old-%d" % n for n in range(80)]
NEW, LATER = ([b"%s-%d" % (kind, n) for n in range(40)] for kind in (b"new", b"later"))  # a batch
# The old topic's offsets are below the end of the longer one, and above that of the shorter.
LENGTHS = [pytest.param(200, id="longer"), pytest.param(30, id="shorter", marks=FULL)]
LENIENT = {"failOnDataLoss": "false"}


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Copy:
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, OLD, per_batch=40)


@pytest.fixture
def lenient(job) -> Copy:
    """It goes on."""
    job.source_extra |= LENIENT
    job.sink_extra |= LENIENT
    return job


def recreate(job: Copy, values: list[bytes], partitions: int = 2) -> None:
    """The source topic is deleted and made again."""
    recreate_topic(job.servers, job.source_topic, values, partitions)


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("source", ["eo-kafka", "kafka"])
def test_a_source_topic_replaced_between_two_runs_is_found_out(job, spark, source, count):
    """By the source; Spark's own sees no more than offsets, and the sink knows the topic."""
    if source == "kafka" and count < len(OLD):
        pytest.skip("Spark's own finds that itself")
    job.source = source
    job.run(spark)
    recreate(job, again := [b"again-%d" % n for n in range(count)])
    for _ in range(2):
        with pytest.raises(Exception, match=rf"{job.source_topic}'.* made again"):
            job.run(spark)
    assert committed(job.servers, job.sink_topic) == Counter(OLD)
    job.sink_extra["failOnDataLoss"] = "false"
    if source == "kafka":  # the rows below the old offsets are given up
        job.run(spark)
        after = committed(job.servers, job.sink_topic) - Counter(OLD)
        assert 0 < sum(after.values()) < len(again)
        return
    job.source_extra["failOnDataLoss"] = "false"
    job.run(spark)
    assert_exactly_once(job, OLD + again)


@pytest.mark.parametrize("per_batch", [None, pytest.param(40, marks=FULL)])
def test_nor_does_its_first_batch_when_it_is_replaced_before_the_decision(
    job, spark, crash_points, tmp_path, per_batch
):
    """When all was read: the decision sees the new topic's id, and the position has the old one."""
    job.per_batch = per_batch
    crash_points.arm("S6.before_fence", "wait")
    with started(job, tmp_path / "log") as driver:
        crash_points.wait_reached("S6.before_fence")
        recreate(job, again := [b"again-%d" % n for n in range(200)])
        crash_points.release("S6.before_fence")
        assert (driver.wait(120) == 0) == (per_batch is None), "there is no more to read"
    read = committed(job.servers, job.sink_topic)
    for _ in range(2):
        with pytest.raises(Exception, match=rf"'{job.source_topic}' was deleted and made again"):
            job.run(spark)
    assert committed(job.servers, job.sink_topic) == read
    job.source_extra["failOnDataLoss"] = job.sink_extra["failOnDataLoss"] = "false"
    job.run(spark)
    assert_exactly_once(job, [*read.elements(), *again])


def test_a_copy_with_the_same_offsets_is_read_on_as_the_error_says(job, spark):
    job.run(spark)
    with control_plane(job.servers) as control:
        before = control.topic_ids([job.source_topic])
    recreate(job, [*OLD, *NEW])
    with pytest.raises(Exception, match="a copy with the same offsets") as stop:
        job.run(spark)
    assert before[job.source_topic] in str(stop.value)
    *_, end = (job.checkpoint / "offsets" / "1").read_text().splitlines()
    copied = replace(job, checkpoint=job.checkpoint.with_name("new"))
    copied.source_extra["startingOffsets"] = end
    with pytest.raises(Exception, match="ForeignLedger"):
        copied.run(spark)
    copied.sink_extra["onReset"] = "new-job"
    copied.run(spark)
    assert_exactly_once(job, OLD + NEW)


def test_a_query_that_goes_on_where_another_ended_says_so_too(job, spark, crash_points, tmp_path):
    """`onReset=continue`: the end of its first batch, which reads nothing, is of the old topic."""
    job.source_extra["jobName"] = job.job_name
    job.run(spark)
    after = replace(job, checkpoint=job.checkpoint.with_name("new"))
    after.source_extra["onReset"] = after.sink_extra["onReset"] = "continue"
    kill_driver_at(after, crash_points, "S8.after_done", tmp_path / "log")
    recreate(job, again := [b"again-%d" % n for n in range(200)])
    with pytest.raises(Exception, match="made again"):
        after.run(spark)
    after.source_extra |= LENIENT
    after.sink_extra |= LENIENT
    after.run(spark)
    assert_exactly_once(job, OLD + again)


@pytest.mark.parametrize("count", LENGTHS)
def test_a_strict_sink_stops_a_lenient_source_and_its_way_on_reads_the_new_topic(job, spark, count):
    """What the sentence says is done, word by word; nothing of the new topic is passed over."""
    job.source_extra.update(LENIENT)
    job.run(spark)
    recreate(job, again := [b"again-%d" % n for n in range(count)])
    way = r"made again since batch 1 .* set 'failOnDataLoss' to false at the sink, too, until"
    for _ in range(2):  # again and again, until somebody does what it says
        with pytest.raises(Exception, match=way):
            job.run(spark)
    assert committed(job.servers, job.sink_topic) == Counter(OLD)
    job.sink_extra.update(LENIENT)
    job.run(spark)
    assert_exactly_once(job, OLD + again)
    for options in (job.source_extra, job.sink_extra):  # a batch is written
        options.clear()
    produce(job.servers, job.source_topic, LATER)
    job.run(spark)
    assert_exactly_once(job, OLD + again + LATER)


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("point", ["S8.after_done", pytest.param("S6.after_decision", marks=FULL)])
def test_a_batch_that_is_decided_takes_nothing_of_the_new_topic_with_it(
    lenient, spark, crash_points, tmp_path, point, count
):
    """Spark runs it again, and the sink skips it as written: what it read would be lost."""
    job = lenient
    job.run(spark)
    produce(job.servers, job.source_topic, NEW)
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    recreate(job, again := [b"again-%d" % n for n in range(count)])
    job.run(spark)
    assert_exactly_once(job, OLD + NEW + again)


@pytest.mark.parametrize("count", LENGTHS)
def test_nor_does_a_first_batch(lenient, spark, crash_points, tmp_path, count):
    job = lenient
    job.per_batch = None
    kill_driver_at(job, crash_points, "S8.after_done", tmp_path / "log")
    recreate(job, again := [b"again-%d" % n for n in range(count)])
    job.run(spark)
    assert_exactly_once(job, OLD + again)


@pytest.mark.parametrize("count", LENGTHS)
def test_a_restored_batch_takes_nothing_of_the_new_topic_with_it(lenient, spark, count):
    job = lenient
    job.sink_extra["snapshots"] = "true"
    job.run(spark)
    shutil.rmtree(job.checkpoint)
    recreate(job, again := [b"again-%d" % n for n in range(count)])
    job.run(spark)
    assert_exactly_once(job, OLD + again)


def test_a_query_with_state_that_has_to_read_a_decided_batch_again_stops(
    broker, make_topic, spark, crash_points, tmp_path
):
    """It would forget which events it has seen."""
    source = make_topic("in", partitions=2)
    job = Stateful(
        servers=broker.bootstrap_servers,
        source_topic=source,
        sink_topic=make_topic("out", partitions=2),
        checkpoint=tmp_path / "0",
        job_name=f"job-{source}",
        per_batch=None,
        source_extra=dict(LENIENT),
        sink_extra=dict(LENIENT),
        operator="deduplication",
    )
    produce(job.servers, source, events(0, 20))
    job.run(spark)
    produce(job.servers, source, events(20, 40))
    kill_driver_at(job, crash_points, "S8.after_done", tmp_path / "log")
    written = committed(job.servers, job.sink_topic)
    recreate(job, events(0, 60))
    for _ in range(2):
        with pytest.raises(Exception, match="for its state; but topics .* made again since"):
            job.run(spark)
    assert committed(job.servers, job.sink_topic) == written


@pytest.mark.parametrize("count", LENGTHS)
def test_batches_since_a_snapshot_are_repeated_or_stop_the_query(lenient, spark, count):
    job = lenient
    job.sink_extra |= {"snapshots": "true", "snapshotInterval": "1 hour"}
    job.source_extra["jobName"] = job.job_name
    produce(job.servers, job.source_topic, NEW)
    job.run(spark)  # the snapshot is that of batch 1, and there are 0 to 2
    shutil.rmtree(job.checkpoint)
    recreate(job, [b"again-%d" % n for n in range(count)])
    for _ in range(2):
        with pytest.raises(Exception, match="made again. A batch since the restored snapshot must"):
            job.run(spark)
        shutil.rmtree(job.checkpoint)
    assert committed(job.servers, job.sink_topic) == Counter(OLD + NEW)


def test_a_new_topic_has_a_snapshot_of_its_own(lenient, spark):
    job = lenient
    job.sink_extra |= {"snapshots": "true", "snapshotInterval": "1 hour"}
    job.source_extra["jobName"] = job.job_name
    job.run(spark)
    recreate(job, again := [b"again-%d" % n for n in range(100)])
    job.run(spark)
    shutil.rmtree(job.checkpoint)
    produce(job.servers, job.source_topic, LATER)
    job.run(spark)
    assert_exactly_once(job, OLD + again + LATER)


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize("point", ["S8.after_done", "S6.before_fence"])
def test_it_may_happen_while_a_batch_is_written(
    lenient, spark, crash_points, tmp_path, point, count
):
    """Then its decision is of the old topic. `availableNow` reads no further than it saw first."""
    job = lenient
    crash_points.arm(point, "wait")
    with started(job, tmp_path / "log") as driver:
        crash_points.wait_reached(point)
        recreate(job, again := [b"again-%d" % n for n in range(count)])
        crash_points.release(point)
        assert driver.wait(120) == 0
    read = committed(job.servers, job.sink_topic)
    assert sum(read.values()) == 40, "of batch 0"
    job.run(spark)
    assert_exactly_once(job, [*read.elements(), *again])


@FULL
@pytest.mark.parametrize("fault", ["S1.after_generation", "S8.after_done"])
def test_a_partition_without_a_record_does_not_make_the_second_batch_a_first_one(
    lenient, spark, crash_points, tmp_path, fault
):
    job = lenient
    job.run(spark)
    recreate(job, [])
    again = [b"again-%d" % n for n in range(120)]
    write(job.servers, job.source_topic, [(b"k", value) for value in again])  # all in one
    job.key_of = None
    crash_points.arm("S8.after_done", "wait")
    with started(job, tmp_path / "log") as driver:
        crash_points.wait_reached("S8.after_done")
        crash_points.arm(fault, "kill-driver")
        crash_points.release("S8.after_done")
        assert driver.wait(120) != 0
    job.run(spark)
    assert_exactly_once(job, OLD + again)


def test_it_may_have_fewer_partitions(lenient, spark, crash_points, tmp_path):
    job = lenient
    job.run(spark)
    produce(job.servers, job.source_topic, NEW)
    kill_driver_at(job, crash_points, "S1.after_generation", tmp_path / "log")
    recreate(job, again := [b"again-%d" % n for n in range(60)], partitions=1)
    job.run(spark)
    assert_exactly_once(job, OLD + again)


@pytest.mark.parametrize("count", LENGTHS)
@pytest.mark.parametrize(
    "point", ["S1.after_generation", pytest.param("S5.prepared", marks=FULL), "S8.after_done"]
)
@pytest.mark.parametrize("batch", [pytest.param("before", marks=FULL), "of"])
def test_whoever_dies_beside_the_first_batch_of_the_new_topic_it_is_read_once(
    lenient, spark, crash_points, tmp_path, batch, point, count
):
    """`before`: the batch was planned on the old topic, and not decided."""
    job = lenient
    job.run(spark)
    again = [b"again-%d" % n for n in range(count)]
    if batch == "before":
        produce(job.servers, job.source_topic, NEW)
        kill_driver_at(job, crash_points, "S1.after_generation", tmp_path / "log")
    recreate(job, again)
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    job.run(spark)
    produce(job.servers, job.source_topic, LATER)
    job.run(spark)
    assert_exactly_once(job, OLD + again + LATER)
