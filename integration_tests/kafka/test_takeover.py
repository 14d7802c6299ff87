"""A query that Spark's own connector started goes on under ours on one checkpoint, and back."""

from __future__ import annotations

import shutil

import pytest

from eo_kafka.tools import cli
from harness import (
    assert_exactly_once,
    committed,
    kill_driver_at,
    make_copy,
    produce,
)
from test_restore_jobs import SECOND, events, new_job, state_of  # noqa: F401 - a fixture

THIRD = events(300, 450)
VALUES = [b"%d" % number for number in range(1000)]


def test_a_checkpoint_of_the_jvm_connector_is_continued(spark, broker, make_topic, tmp_path):
    servers = broker.bootstrap_servers
    job = make_copy(servers, make_topic, tmp_path, VALUES[:600], source="kafka", sink="kafka")
    log = tmp_path / "log"
    assert job.run_in_own_driver(log) == 0, log.read_text()[-4000:]
    produce(job.servers, job.source_topic, VALUES[600:])
    job.source = job.sink = "eo-kafka"
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_a_checkpoint_of_ours_is_continued_by_the_jvm_connector(
    spark, broker, make_topic, tmp_path
):
    """The way back is open: Spark's own connector goes on where we stopped, in order."""
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES[:600])
    job.run(spark)
    produce(job.servers, job.source_topic, VALUES[600:])
    job.source = job.sink = "kafka"
    log = tmp_path / "log"
    assert job.run_in_own_driver(log) == 0, log.read_text()[-4000:]
    assert_exactly_once(job, VALUES)


@pytest.mark.full
def test_a_stateful_checkpoint_is_taken_over_and_given_back(new_job, spark):  # noqa: F811
    """Windows that one connector opened are closed by the other, with all their records."""
    job, same = new_job("changing"), new_job("same")
    expected = {}
    for source, values in (("kafka", SECOND), ("eo-kafka", THIRD), ("kafka", None)):
        job.source, job.sink = source, "eo-kafka"
        job.run(spark)
        same.run(spark)
        expected = committed(job.servers, same.sink_topic)
        assert committed(job.servers, job.sink_topic) == expected
        assert state_of(job, spark) == state_of(same, spark)
        if values is not None:
            produce(job.servers, job.source_topic, values)
    assert expected


@pytest.mark.parametrize(
    ("before", "after"),
    [("kafka", "eo-kafka"), pytest.param("eo-kafka", "kafka", marks=pytest.mark.full)],
)
def test_a_batch_that_was_interrupted_is_taken_over(
    spark, broker, make_topic, tmp_path, crash_points, before, after
):
    """The driver dies between the decision and Spark's commit log; another source repeats the
    batch, and the sink sees that it is the same."""
    values = [b"%d" % number for number in range(600)]
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, values, per_batch=200)
    job.source = before
    kill_driver_at(job, crash_points, "S7.after_first_end_txn", tmp_path / "log")
    assert len(list((job.checkpoint / "offsets").glob("[0-9]*"))) == 1 + len(
        list((job.checkpoint / "commits").glob("[0-9]*"))
    )
    job.source = after
    job.run(spark)
    assert_exactly_once(job, values)


def test_idempotent_tasks_are_not_for_sparks_own_source(spark, broker, make_topic, tmp_path):
    """Of two to four partitions it makes other tasks when a batch is run again. It is told at the
    start of a job, and both ways on that are named can be gone."""
    for way, partitions in (("two-phase", 2), ("eo-kafka", 4), ("none is needed", 5)):
        job = make_copy(
            broker.bootstrap_servers, make_topic, tmp_path / way, VALUES, partitions, source="kafka"
        )
        job.sink_extra["commit"] = "idempotent"
        if partitions <= 4:
            with pytest.raises(Exception, match="OptionsError.*with two to four partitions"):
                job.run(spark)
            assert not committed(job.servers, job.sink_topic)
        if way == "two-phase":
            job.sink_extra["commit"] = way
        elif way == "eo-kafka":
            shutil.rmtree(job.checkpoint)
            job.source = way
        job.run(spark)
        assert_exactly_once(job, VALUES)


def test_a_job_that_has_begun_with_them_is_told_how_to_go_on(
    spark, broker, make_topic, tmp_path, crash_points, capsys
):
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES[:80], per_batch=40)
    job.sink_extra["commit"] = "idempotent"
    job.run(spark)
    produce(job.servers, job.source_topic, VALUES[80:120])
    job.source = "kafka"
    kill_driver_at(job, crash_points, "S6.before_fence", tmp_path / "log")
    for source in ("kafka", "eo-kafka"):
        job.source = source
        with pytest.raises(Exception, match="gives its tasks other.*--accept-loss"):
            job.run(spark)
    at = ["--bootstrap-servers", job.servers]
    arguments = ["verify", "--input", job.source_topic, "--output", job.sink_topic, *at]
    assert cli.main(arguments) == 0, capsys.readouterr().out
    assert cli.main(["job", "repair", job.job_name, "--batch", "2", "--accept-loss", *at]) == 0
    produce(job.servers, job.source_topic, VALUES[120:])
    job.run(spark)
    assert_exactly_once(job, VALUES)
