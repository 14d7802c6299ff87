"""`eo-kafka job reset`: the ledger goes to a new query, and not back to the one that wrote it. It
and the other commands that change a ledger are for the job that they name, under its prefix."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest

import eo_kafka
from eo_kafka.core.transaction import TransactionState
from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.state.snapshots.restoring import restore_missing
from eo_kafka.tools.cli import main
from hand_made_job import HandMadeJob, all_rows
from harness import assert_exactly_once, committed, control_plane, fail_at, make_copy

PREFIX = "--transactional-id-prefix"
VALUES = [b"%d" % number for number in range(300)]


@pytest.mark.parametrize(
    "point", ["S6.after_decision", pytest.param("S8.after_done", marks=pytest.mark.full)]
)
def test_the_query_that_wrote_the_ledger_is_refused_and_repeats_nothing(
    broker, make_topic, tmp_path, spark, crash_points, point
):
    """Its last batch is written and not in Spark's commit log: it would run once more, and the
    ledger knows nothing of it any more."""
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES)
    fail_at(job, spark, crash_points, point)
    where = ["--bootstrap-servers", job.servers]
    for _ in range(2):
        assert main(["job", "reset", job.job_name, *where]) == 0
        with pytest.raises(Exception, match=r"ForeignLedger.*given up by 'eo-kafka job reset'"):
            job.run(spark)
        assert set(committed(job.servers, job.sink_topic).values()) == {1}
    new = replace(job, checkpoint=tmp_path / "new", sink_topic=make_topic("again"))
    new.run(spark)
    assert_exactly_once(new, VALUES)
    with pytest.raises(Exception, match=r"ForeignLedger"):
        job.run(spark)


def changing(job: HandMadeJob, name: str) -> list[list[str]]:
    """The commands that change a ledger, or a checkpoint by a ledger."""
    repair = ["job", "repair", name, "--batch", "0", "--accept-loss"]
    return [["job", "reset", name], repair, ["job", "redo", name, str(job.folder)]]


def state_of(job: HandMadeJob, report) -> TransactionState:
    with control_plane(job.servers) as control:
        return control.describe_one(report.prepared.identity.transactional_id).state


def test_a_command_without_the_jobs_prefix_leaves_all_as_it_is(
    broker, make_topic, tmp_path, capsys
):
    """By another prefix it fences nobody, and what is open stays open."""
    topic = make_topic("out")
    job = HandMadeJob(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "checkpoint")
    job.extra["transactionalIdPrefix"] = "team1"
    where = ["--bootstrap-servers", job.servers]
    for batch in (0, 1):
        job.begin(batch)
        reports = job.prepare(batch)
        for words in changing(job, job.name):
            assert main([*words, *where]) == 1
            assert "--transactional-id-prefix team1" in capsys.readouterr().err
        committer.commit(job.options, reports, batch)
    assert job.visible == all_rows(0, 1)
    job.begin(2)
    (report,) = job.prepare(2)
    assert main(["job", "reset", job.name, "--transactional-id-prefix", "team1", *where]) == 0
    assert state_of(job, report) is TransactionState.COMPLETE_ABORT


def test_a_command_for_another_jobs_ledger_leaves_it_as_it_is(broker, make_topic, tmp_path, capsys):
    topic = make_topic("out")
    job = HandMadeJob(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "checkpoint")
    where = ["--bootstrap-servers", job.servers]
    ledger = ["--ledger-topic", job.options.job_and_ledger[1]]
    job.begin(0)
    reports = job.prepare(0)
    assert main(["job", "reset", "misspelt", *ledger, *where]) == 1
    assert "is not the ledger of job 'misspelt'" in capsys.readouterr().err
    committer.commit(job.options, reports, 0)
    restore = ["snapshots", "restore", "misspelt", str(tmp_path / "restored")]
    snapshots = [restore, ["snapshots", "list", "misspelt"]]
    for words in [*changing(job, "misspelt"), *snapshots]:
        assert main([*words, *ledger, *where]) == 1
        assert "is not the ledger of job 'misspelt'" in capsys.readouterr().err
    assert not (tmp_path / "restored").exists()
    job.run(1)
    assert job.visible == all_rows(0, 1)


def test_the_prefix_that_the_last_driver_had_is_asked_for(broker, make_topic, tmp_path, capsys):
    """Its first batch is open, and the newest one that is decided was another's."""
    topic = make_topic("out")
    job = HandMadeJob(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "checkpoint")
    job.run(0)
    job.extra["transactionalIdPrefix"] = "team1"
    job.begin(1)
    (report,) = job.prepare(1)
    where = ["--bootstrap-servers", job.servers]
    for words in changing(job, job.name):
        assert main([*words, *where]) == 1
        assert "--transactional-id-prefix team1" in capsys.readouterr().err
    assert state_of(job, report) is TransactionState.ONGOING
    assert main(["job", "reset", job.name, "--transactional-id-prefix", "team1", *where]) == 0
    assert state_of(job, report) is TransactionState.COMPLETE_ABORT


def test_of_two_jobs_of_one_name_none_is_taken_for_the_other(broker, make_topic, tmp_path, capsys):
    """One has decided nothing yet, and the other has a batch open."""
    where = ["--bootstrap-servers", broker.bootstrap_servers]
    name, jobs = make_topic("copy"), []
    for team in ("teama", "teamb"):
        job = HandMadeJob(where[1], make_topic("out"), name, tmp_path / team)
        ledger = {"ledgerTopic": f"{job.topic}-ledger", "stateTopic": f"{job.topic}-state"}
        job.extra |= {"transactionalIdPrefix": team, **ledger}
        job.begin(0)
        jobs.append(job)
    new, job = jobs
    make_plan(new.options)
    reports = job.prepare(0)
    for one, wrong, right in ((new, "teamb", "teama"), (job, "teama", "teamb")):
        asked = ["job", "reset", name, "--ledger-topic", one.extra["ledgerTopic"], *where]
        assert main([*asked, "--transactional-id-prefix", wrong]) == 1
        assert f"'--transactional-id-prefix {right}'" in capsys.readouterr().err
    assert main([*asked[:4], new.extra["ledgerTopic"], *where, PREFIX, "teama"]) == 0
    committer.commit(job.options, reports, 0)
    assert job.visible == all_rows(0)


def test_a_renamed_job_has_its_new_name_once_it_has_started(broker, make_topic, tmp_path, capsys):
    topic = make_topic("out")
    old = HandMadeJob(broker.bootstrap_servers, topic, f"old-{topic}", tmp_path / "checkpoint")
    old.extra |= {"ledgerTopic": f"{topic}-ledger", "stateTopic": f"{topic}-state"}
    old.run(0, 1)
    new = replace(old, name=f"new-{topic}")
    where = ["--ledger-topic", f"{topic}-ledger", "--bootstrap-servers", old.servers]
    looks = [["snapshots", "list"], ["txn", "list", "--job"]]

    def refused(name: str) -> None:
        look = [[*words, name] for words in looks]
        for words in [*changing(old, name), *look]:
            assert main([*words, *where]) == 1
            said = capsys.readouterr().err
            assert f"is not the ledger of job '{name}'" in said and "renamed" in said

    refused(new.name)
    new.begin(2)
    (report,) = new.prepare(2)
    refused(old.name)
    assert state_of(new, report) is TransactionState.ONGOING
    for words in looks:
        assert main([*words, new.name, *where]) == 0
    export = eo_kafka.export_snapshot(new.name, "after", new.given, progress=False)
    assert export.snapshot.batch == 1
    assert main(["job", "reset", new.name, *where]) == 0
    assert state_of(new, report) is TransactionState.COMPLETE_ABORT


def test_a_job_whose_batches_name_no_ids_is_known_by_its_driver(spark, broker, tmp_path, capsys):
    """One that writes files."""
    name, given = f"job-{tmp_path.name}", {"kafka.bootstrap.servers": broker.bootstrap_servers}
    given |= {"jobName": name, "batchId": "1", "transactionalIdPrefix": "team1"}
    rows = spark.range(5).coalesce(1).write.format("eo-files").mode("append")
    rows.options(**given, fileFormat="json").save(str(tmp_path / "files"))
    where = ["--ledger-topic", f"__eo_kafka.{name}.ledger"]
    where += ["--bootstrap-servers", broker.bootstrap_servers]
    restore = ["snapshots", "restore", "misspelt", str(tmp_path / "restored")]
    for words in (["job", "reset", "misspelt"], restore):
        assert main([*words, *where]) == 1
        assert "is not the ledger of job 'misspelt'" in capsys.readouterr().err
    assert main(["job", "reset", name, *where]) == 1
    assert "--transactional-id-prefix team1" in capsys.readouterr().err
    assert main(["job", "reset", name, PREFIX, "team1", *where]) == 0


def test_a_job_that_was_renamed_is_restored_at_its_first_start(broker, make_topic, tmp_path):
    """Its newest batch was decided under its old name, under which a command restores it."""
    topic = make_topic("out")
    job = HandMadeJob(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "checkpoint")
    job.extra |= {"ledgerTopic": f"{topic}-ledger", "stateTopic": f"{topic}-state"}
    job.run(0, 1)
    shutil.rmtree(job.folder)
    renamed = replace(job, name=f"renamed-{topic}")
    restored = restore_missing(str(job.folder), renamed.name, renamed.given)
    assert restored is not None and restored.batch == 1
    renamed.run(2)
    assert renamed.visible == all_rows(0, 1, 2)


@pytest.mark.parametrize("there", ["no folder", "an empty folder"])
def test_redo_of_a_folder_that_holds_no_checkpoint_says_so(
    broker, make_topic, tmp_path, capsys, there
):
    topic = make_topic("out")
    job = HandMadeJob(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "checkpoint")
    job.run(0)
    folder = tmp_path / "misspelt"
    if there == "an empty folder":
        folder.mkdir()
    where = ["--bootstrap-servers", job.servers]
    assert main(["job", "redo", job.name, str(folder), *where]) == 1
    said = capsys.readouterr().err
    assert (
        f"'{folder}' holds no checkpoint" in said and f"{job.folder}', as its ledger says" in said
    )
    assert "fs.defaultFS" not in said
