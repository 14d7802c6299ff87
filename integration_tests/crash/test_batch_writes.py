"""`df.write` of a job: each numbered write is there once, whatever dies and however often it is
tried."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

import pytest

from eo_kafka.errors import OptionsError
from eo_kafka.sinks.options import SinkOptions
from harness import (
    Copy,
    assert_settled,
    committed,
    kill_driver_at,
    open_transactions,
    produce,
    read_ledger,
)
from jobs.save_job import save

VALUES = [b"%d" % number for number in range(500)]


@dataclass
class Save(Copy):
    """One `save()`, with a number."""

    script: ClassVar[str] = "save_job.py"

    def as_batch(self, number: int) -> Save:
        self.sink_extra = {"batchId": str(number)}
        return self

    def run(self, spark) -> None:
        save(spark, self.as_job())


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Save:
    source = make_topic("in", partitions=2)
    produce(broker.bootstrap_servers, source, VALUES)
    sink = make_topic("out", partitions=2)
    return Save(broker.bootstrap_servers, source, sink, tmp_path, f"saves-{source}").as_batch(7)


def assert_written(job: Save, times: int) -> None:
    assert committed(job.servers, job.sink_topic) == Counter(VALUES * times)
    assert_settled(job)


@pytest.mark.parametrize(
    "point",
    [
        "S7.after_first_end_txn",
        pytest.param("S6.before_decision", marks=pytest.mark.full),
        pytest.param("S5.prepared", marks=pytest.mark.full),
        pytest.param("S6.after_decision", marks=pytest.mark.full),
        pytest.param("S7.after_last_end_txn", marks=pytest.mark.full),
        pytest.param("S8.after_done", marks=pytest.mark.full),
    ],
)
def test_a_driver_that_dies_leaves_all_or_nothing_and_another_completes_it(
    job, spark, crash_points, tmp_path, point
):
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    job.run(spark)
    assert_written(job, 1)


def test_a_number_is_written_once_and_the_next_one_too(job, spark):
    job.run(spark)
    job.run(spark)  # the whole application is run again, as schedulers do
    assert_written(job, 1)
    job.as_batch(20261121).run(spark)
    assert_written(job, 2)
    assert sorted(read_ledger(job).of_sink("main")) == [7, 20261121]
    with pytest.raises(Exception, match="and not batch 8: it was not written"):
        job.as_batch(8).run(spark)
    assert_written(job, 2)
    assert open_transactions(job) == []


def test_the_next_write_completes_what_the_last_one_decided(job, spark, crash_points, tmp_path):
    kill_driver_at(job, crash_points, "S7.after_first_end_txn", tmp_path / "log")
    job.as_batch(8).run(spark)
    assert_written(job, 2)


@pytest.mark.full
@pytest.mark.parametrize("point", ["S7.after_first_end_txn", "S6.before_decision"])
def test_a_range_by_time_that_is_another_one_when_it_is_looked_up_again(
    job, spark, crash_points, tmp_path, point
):
    """No record is as new as its end, so it ends at the newest one; then more records come. What
    was decided is not mended with them, and nothing is silent."""
    job.source_extra["endingTimestamp"] = str(round(time.time() * 1000) + 3_600_000)
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    produce(job.servers, job.source_topic, [b"more"])
    if point == "S6.before_decision":
        job.run(spark)
        assert committed(job.servers, job.sink_topic) == Counter([*VALUES, b"more"])
    else:
        with pytest.raises(Exception, match=r"BatchMismatch.*it had 500 rows, and this .* 501"):
            job.run(spark)
        assert_written(job, 1)
    assert open_transactions(job) == []


def test_a_streams_name_is_not_a_batch_writes(job, spark):
    job.run(spark)
    stream = Copy(
        job.servers, job.source_topic, job.sink_topic, job.checkpoint / "stream", job.job_name
    )
    with pytest.raises(Exception, match="belongs to query batch writes of"):
        stream.run(spark)


@pytest.mark.parametrize(
    ("given", "streaming", "words"),
    [
        ({"batchId": "1"}, False, "needs a 'jobName'"),
        ({"batchId": "1", "jobName": "j", "guarantee": "none"}, False, "guarantee 'exactly-once'"),
        ({"batchId": "1", "jobName": "j"}, True, "is for batch writes"),
        ({"batchId": "-1", "jobName": "j"}, False, "must be a whole number"),
    ],
)
def test_what_makes_no_sense_is_said(given, streaming, words):
    with pytest.raises(OptionsError, match=words):
        SinkOptions.parse({"kafka.bootstrap.servers": "b:1", "topic": "t", **given}, streaming)
