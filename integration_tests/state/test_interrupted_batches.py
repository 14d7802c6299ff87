"""`commit=idempotent`, and the checkpoint is lost when tasks of a batch have committed, each by
itself: the batch comes back with the records that it had, though more have arrived and the reader
takes other numbers at a time."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

from eo_kafka.tools import cli
from harness import (
    Copy,
    Stateful,
    assert_exactly_once,
    assert_settled,
    committed,
    kill_driver_at,
    make_copy,
    produce,
    read_ledger,
)
from test_restore_jobs import FIRST, SECOND, events, lose_the_disk, new_job, state_of  # noqa: F401

FIRSTS, MORE, LATER = ([b"%s %d" % (kind, n) for n in range(90)] for kind in (b"f", b"m", b"l"))
IDEMPOTENT = {"commit": "idempotent", "snapshots": "true"}
TORN = "one-phase.committed"


@pytest.fixture(params=["eo-kafka", pytest.param("direct", marks=pytest.mark.full)])
def job(request, broker, make_topic, tmp_path) -> Copy:
    """Its reader does not know the job's name."""
    return make_copy(
        broker.bootstrap_servers,
        make_topic,
        tmp_path,
        FIRSTS,
        per_batch=60,
        source=request.param,
        sink_extra=dict(IDEMPOTENT),
    )


def tear_a_batch(job: Copy, crash_points, log) -> None:
    """The driver dies when a task has committed; then more arrives."""
    before = committed(job.servers, job.sink_topic)
    kill_driver_at(job, crash_points, TORN, log)
    assert committed(job.servers, job.sink_topic) > before, "nothing is visible of the batch"
    produce(job.servers, job.source_topic, LATER)
    job.per_batch = 77


def test_a_copy_goes_on(job, spark, crash_points, tmp_path):
    job.run(spark)
    produce(job.servers, job.source_topic, MORE)
    tear_a_batch(job, crash_points, tmp_path / "log")
    shutil.rmtree(job.checkpoint)
    job.run(spark)
    assert_exactly_once(job, FIRSTS + MORE + LATER)


def test_a_copy_goes_on_that_lost_its_first_batch(job, spark, crash_points, tmp_path):
    tear_a_batch(job, crash_points, tmp_path / "log")
    shutil.rmtree(job.checkpoint)
    job.run(spark)
    assert_exactly_once(job, FIRSTS + LATER)


def test_the_command_restores_a_first_batch(job, spark, crash_points, tmp_path, capsys):
    words = ["snapshots", "restore", job.job_name, str(job.checkpoint)]
    words += ["--bootstrap-servers", job.servers]
    tear_a_batch(job, crash_points, tmp_path / "log")
    assert cli.main(words) == 1, "the folder is not empty"
    shutil.rmtree(job.checkpoint)
    assert cli.main(words) == 0
    assert "has no snapshot. Its first batch was interrupted" in capsys.readouterr().out
    job.run(spark)
    assert_exactly_once(job, FIRSTS + LATER)


def test_so_does_the_first_batch_of_a_query_that_took_the_job_over(
    job, spark, crash_points, tmp_path
):
    job.run(spark)
    shutil.rmtree(job.checkpoint)
    anew = replace(job, sink_extra={"commit": "idempotent", "onReset": "new-job"})
    tear_a_batch(anew, crash_points, tmp_path / "log")
    shutil.rmtree(job.checkpoint)
    job.per_batch = 77
    job.run(spark)
    assert_exactly_once(job, FIRSTS + FIRSTS + LATER)


def test_who_begins_anew_before_anything_is_visible_may_read_what_he_likes(
    job, spark, crash_points, make_topic, tmp_path
):
    kill_driver_at(job, crash_points, "S1.after_generation", tmp_path / "log")
    shutil.rmtree(job.checkpoint)
    job.source_topic = make_topic("other", partitions=3)
    produce(job.servers, job.source_topic, MORE)
    job.run(spark)
    assert_exactly_once(job, MORE)


def test_a_checkpoint_from_a_backup_goes_on_after_job_redo(
    job, spark, crash_points, tmp_path, capsys
):
    job.sink_extra["snapshots"] = "false"
    job.run(spark)
    shutil.copytree(job.checkpoint, backup := tmp_path / "backup")
    produce(job.servers, job.source_topic, MORE)
    tear_a_batch(job, crash_points, tmp_path / "log")
    shutil.rmtree(job.checkpoint)
    shutil.copytree(backup, job.checkpoint)
    refused_until_redo(job, spark, capsys)
    assert_exactly_once(job, FIRSTS + MORE + LATER)


def test_so_does_one_that_lost_its_first_batch(job, spark, crash_points, tmp_path, capsys):
    job.sink_extra["snapshots"] = "false"
    tear_a_batch(job, crash_points, tmp_path / "log")
    shutil.rmtree(job.checkpoint)
    refused_until_redo(job, spark, capsys)
    assert_exactly_once(job, FIRSTS + LATER)


def test_so_does_one_that_would_have_other_tasks(
    broker, make_topic, spark, crash_points, tmp_path, capsys
):
    job = make_copy(
        *(broker.bootstrap_servers, make_topic, tmp_path, FIRSTS),
        partitions=20,
        per_batch=None,
        master="local[1]",
        sink_extra={"commit": "idempotent"},
    )
    job.run(spark)
    shutil.copytree(job.checkpoint, backup := tmp_path / "backup")
    produce(job.servers, job.source_topic, MORE)
    kill_driver_at(job, crash_points, TORN, tmp_path / "log")
    shutil.rmtree(job.checkpoint)
    shutil.copytree(
        backup, job.checkpoint
    )  # and nothing more arrives; but the tests have more cores
    refused_until_redo(job, spark, capsys)
    assert_exactly_once(job, FIRSTS + MORE)


def refused_until_redo(job: Copy, spark, capsys) -> None:
    """And that is run. Nothing offers to give rows up of which none is lost."""
    with pytest.raises(Exception, match=r"It ended at .* when it first ran, ") as refused:
        job.run(spark)
    assert "'eo-kafka job redo" in str(refused.value)
    assert "--accept-loss" not in str(refused.value)
    where = ["--bootstrap-servers", job.servers]
    assert cli.main(["job", "redo", job.job_name, str(job.checkpoint), *where]) == 0
    assert "which was interrupted, gets the records that it had" in capsys.readouterr().out
    job.run(spark)


@pytest.mark.parametrize("interval", ["0 seconds", "1 hour"])
def test_a_query_with_state_goes_on_whose_reader_knows_the_job(
    new_job,  # noqa: F811
    spark,
    crash_points,
    tmp_path,
    interval,
):
    def new(name: str) -> Stateful:
        job = new_job(name, operator="deduplication")
        job.sink_extra |= {**IDEMPOTENT, "snapshotInterval": interval}
        job.source_extra["jobName"] = job.job_name
        return job

    job, same = new("lost"), new("same")
    job.run(spark)
    same.run(spark)
    produce(job.servers, job.source_topic, SECOND)
    kill_driver_at(job, crash_points, TORN, tmp_path / "log")
    lose_the_disk(job)
    produce(job.servers, job.source_topic, events(300, 450))
    job.per_batch = 33
    job.run(spark)
    same.run(spark)
    assert committed(job.servers, job.sink_topic) == committed(same.servers, same.sink_topic)
    assert state_of(job, spark) == state_of(same, spark)
    assert_settled(job)


def test_with_two_phases_nothing_of_it_is_recorded(job, spark, crash_points, tmp_path):
    job.run(spark)
    produce(job.servers, job.source_topic, MORE)
    tear_a_batch(job, crash_points, tmp_path / "log")
    assert read_ledger(job).begun is not None
    job.sink_extra["commit"] = "two-phase"
    job.run(spark)
    assert read_ledger(job).begun is None
    assert_exactly_once(job, FIRSTS + MORE + LATER)
