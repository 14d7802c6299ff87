"""A new job that goes on from an exported snapshot: what the old one wrote is not repeated,
whatever dies in between; and nobody else's ledger is touched."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import eo_kafka
from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.core import crash_points as crash_points_module
from eo_kafka.core.crash_points import CrashPointReached
from eo_kafka.errors import CheckpointError, Fenced, ForeignLedger, LedgerError
from eo_kafka.sinks.protocol import committer
from eo_kafka.state.ledger.ledger import Ledger
from eo_kafka.state.snapshots.search import SnapshotSearch
from eo_kafka.state.snapshots.snapshot import RESTORING
from eo_kafka.tools.cli import main
from hand_made_job import HandMadeJob, all_rows

NEEDED = {"commits/1", "metadata", "offsets/1", "offsets/2", "state/0/_metadata/metadata"} | {
    f"state/0/0/{version}.delta" for version in (1, 2)
}


@pytest.fixture
def job(broker, make_topic, tmp_path, crash_folder, monkeypatch) -> HandMadeJob:
    """Batches 0 to 2 are written, and exported as 'before'."""
    monkeypatch.setattr(crash_points_module, "FOLDER", str(crash_folder))
    topic = make_topic("out")
    made = HandMadeJob(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "checkpoint")
    made.run(0, 1, 2)
    eo_kafka.export_snapshot(made.name, "before", made.given)
    return made


def query_in(folder: Path) -> str:
    return json.loads((folder / "metadata").read_text())["id"]


def ledger_of(job: HandMadeJob) -> Ledger:
    return SnapshotSearch(job.name, job.given).ledger()


def successor(job: HandMadeJob, folder: Path, number: int = 2) -> HandMadeJob:
    """What is started from `folder`, which was made from the export."""
    name = f"{job.name}-{number}"
    return replace(job, name=name, folder=folder, query=query_in(folder))


def start_from(job: HandMadeJob, folder: Path, number: int = 2) -> HandMadeJob:
    eo_kafka.start_from(job.name, "before", f"{job.name}-{number}", str(folder), job.given)
    return successor(job, folder, number)


def test_a_new_job_goes_on_into_the_same_output(job, tmp_path):
    new = start_from(job, tmp_path / "new")
    assert new.query != job.query
    before, after = job.files(), new.files()
    assert set(after) == NEEDED
    assert {name: before[name] for name in NEEDED - {"metadata"}} == {
        name: content for name, content in after.items() if name != "metadata"
    }
    seed = ledger_of(new)
    assert (seed.owner, list(seed.decisions)) == (new.query, [("main", 2)])
    new.run(2, 3, 4)  # Spark runs the snapshot's batch once more
    assert new.visible == all_rows(0, 1, 2, 3, 4)
    assert ledger_of(new).snapshot.batch == 4
    assert ledger_of(job).snapshot.batch == 2


def test_a_folder_that_is_lost_before_there_is_new_input_is_restored(job, tmp_path):
    """That may be hours; and the export is not needed meanwhile."""
    folder = tmp_path / "new"
    new = start_from(job, folder)
    new.run(2)  # the batch that Spark runs once more
    assert new.visible == all_rows(0, 1, 2)
    with pytest.raises(LedgerError, match=f"snapshots restore {new.name} CHECKPOINT.*job reset"):
        start_from(job, tmp_path / "another")
    eo_kafka.delete_snapshot(job.name, "before", job.given)
    shutil.rmtree(folder)
    assert eo_kafka.restore(str(folder), new.name, new.given).batch == 2
    assert query_in(folder) == new.query
    new.run(2, 3)
    assert new.visible == all_rows(0, 1, 2, 3)
    assert ledger_of(new).snapshot.batch == 3


def test_a_folder_that_is_lost_before_the_first_start_is_made_again(job, tmp_path):
    folder = tmp_path / "new"
    new = start_from(job, folder)
    shutil.rmtree(folder)
    with pytest.raises(ForeignLedger, match="snapshots start-from"):
        replace(new, query="of an empty folder").run(0)
    shutil.rmtree(folder)
    again = start_from(job, folder)
    assert again.query == new.query
    again.run(2, 3)
    assert job.visible == all_rows(0, 1, 2, 3)


def test_the_export_is_independent_of_what_its_job_does_next(job, make_topic, tmp_path):
    job.replace_all(3)
    job.run(3, 4)
    new = start_from(job, tmp_path / "new")
    new.topic = make_topic("another")
    new.run(2, 3)
    assert new.visible == all_rows(3)
    assert job.visible == all_rows(0, 1, 2, 3, 4)


def test_the_command_says_what_spark_will_compare(job, tmp_path, capsys):
    words = ["--job", f"{job.name}-2", "--checkpoint", str(tmp_path / "new")]
    servers = ["--bootstrap-servers", job.servers]
    assert main(["snapshots", "start-from", job.name, "before", *words, *servers]) == 0
    said = capsys.readouterr().out
    assert "it goes on after batch 2, which it counts as written" in said
    assert "       0  stateStoreSave           1  default" in said
    assert "one that was dropped, added or moved is refused" in said
    successor(job, tmp_path / "new").run(2, 3)
    assert job.visible == all_rows(0, 1, 2, 3)


KILL = """
import os, signal, sys
import eo_kafka
from eo_kafka.state.snapshots.checkpoint import LocalCheckpoint
LocalCheckpoint.finish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
job, new_job, folder, servers = sys.argv[1:]
eo_kafka.start_from(job, "before", new_job, folder, {"kafka.bootstrap.servers": servers})
"""


def die_with_the_seed_written(job: HandMadeJob, folder: Path) -> None:
    words = [job.name, f"{job.name}-2", str(folder), job.servers]
    killed = subprocess.run([sys.executable, "-c", KILL, *words], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert (folder / RESTORING).exists()


def test_a_start_that_died_behind_the_seed_is_started_again(job, tmp_path):
    folder = tmp_path / "new"
    die_with_the_seed_written(job, folder)
    stopped = successor(job, folder)
    seed = ledger_of(stopped)
    assert seed.owner == stopped.query
    with pytest.raises(CheckpointError, match="was not restored to its end"):
        stopped.run(3)
    new = start_from(job, folder)
    assert new.query == seed.owner, "the ledger would refuse another query"
    new.run(2, 3)
    assert new.visible == all_rows(0, 1, 2, 3)


@pytest.mark.parametrize("point", ["restore.while_writing", "S1.after_generation"])
def test_a_start_that_died_before_the_seed_is_started_again(job, tmp_path, crash_points, point):
    folder = tmp_path / "new"
    crash_points.arm(point, "raise")
    with pytest.raises(CrashPointReached):
        start_from(job, folder)
    assert (folder / RESTORING).exists()
    new = start_from(job, folder)
    new.run(2, 3)
    assert new.visible == all_rows(0, 1, 2, 3)


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("died", ["before the seed", "behind it"])
def test_a_start_that_died_is_not_begun_anew(job, tmp_path, crash_points, capsys, died, named):
    """The new job has a ledger and no snapshot: its query would write all again. `named`: the
    marker says what it is of, unlike an older eo-kafka's."""
    folder, name = tmp_path / "new", f"{job.name}-2"
    if died == "before the seed":
        crash_points.arm("restore.while_writing", "raise")
        with pytest.raises(CrashPointReached):
            start_from(job, folder)
    else:
        die_with_the_seed_written(job, folder)
    if not named:
        (folder / RESTORING).write_bytes(b"0123456789abcdef0123456789abcdef")
    before = job.files(folder)
    again = f"start-from {job.name} before --job {name} --checkpoint {folder} " if named else ""
    with pytest.raises(CheckpointError, match=f"start-from.*{again}.*delete the folder"):
        eo_kafka.restore(str(folder), name, job.given)  # what eo_kafka.start asks first
    words = ["restore", name, str(folder), "--bootstrap-servers", job.servers]
    assert main(["snapshots", *words]) == 1
    said = capsys.readouterr()
    assert "nothing was written" not in said.out and again in said.err
    assert job.files(folder) == before
    new = start_from(job, folder)
    new.run(2, 3)
    assert new.visible == all_rows(0, 1, 2, 3)


def test_a_folder_that_is_in_use_is_left_as_it_is(job, tmp_path):
    before = job.files()
    with pytest.raises(CheckpointError, match="is not empty"):
        start_from(job, job.folder)
    assert job.files() == before
    assert ledger_of(replace(job, name=f"{job.name}-2")).owner is None


def another(job: HandMadeJob, make_topic, folder: Path) -> HandMadeJob:
    """Another job, under the name that the new one is to have."""
    name = f"{job.name}-2"
    return replace(job, name=name, topic=make_topic("other"), folder=folder, query="other")


def test_the_ledger_of_a_job_at_work_is_left_as_it_is(job, make_topic, tmp_path):
    other = another(job, make_topic, tmp_path / "other")
    other.run(0)
    before = ledger_of(other)
    with pytest.raises(LedgerError, match=r"has a ledger already.*it is at batch 0.*job reset"):
        start_from(job, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    after = ledger_of(other)
    assert (after.generation, after.owner) == (before.generation, "other"), "it was disturbed"
    main(["job", "reset", other.name, "--bootstrap-servers", job.servers])
    start_from(job, tmp_path / "new").run(2, 3)
    assert job.visible == all_rows(0, 1, 2, 3)


def test_a_job_that_has_written_nothing_yet_loses_its_name(job, make_topic, tmp_path):
    other = another(job, make_topic, tmp_path / "other")
    other.begin(0)
    reports = other.prepare(0)
    new = start_from(job, tmp_path / "new")
    with pytest.raises(Fenced):
        committer.commit(other.options, reports, 0)
    assert not other.visible
    new.run(2, 3)
    assert job.visible == all_rows(0, 1, 2, 3)


def test_two_starts_of_one_name_are_one_job(job, tmp_path):
    """Of two folders made by the same words one is as good as the other, and not both."""
    one, two = start_from(job, tmp_path / "one"), start_from(job, tmp_path / "two")
    assert one.query == two.query
    one.run(2, 3)
    with pytest.raises(LedgerError, match="has a ledger already.*it is at batch 3"):
        start_from(job, tmp_path / "three")


def test_the_same_job_goes_on_from_an_export_of_its_newest_batch(job, tmp_path):
    """Cancelled and exported; the code is upgraded, and the name kept."""
    eo_kafka.start_from(job.name, "before", job.name, str(tmp_path / "new"), job.given)
    upgraded = replace(job, folder=tmp_path / "new")
    assert query_in(upgraded.folder) == job.query
    upgraded.run(2, 3)
    assert job.visible == all_rows(0, 1, 2, 3)
    for words in (
        ["start-from", job.name, "before", "--job", job.name, "--checkpoint"],
        ["restore", job.name, "--snapshot", "before"],
    ):
        folder = str(tmp_path / "late")
        assert main(["snapshots", *words, folder, "--bootstrap-servers", job.servers]) == 1
        assert not os.path.exists(folder)


def test_restore_takes_an_export_or_points_to_start_from(job, tmp_path):
    restored = eo_kafka.restore(str(tmp_path / "same"), job.name, job.given, "before")
    assert restored.batch == 2
    assert set(job.files(tmp_path / "same")) == NEEDED
    replace(job, folder=tmp_path / "same").run(3)
    with pytest.raises(CheckpointError, match="it is at batch 3 now.*snapshots start-from"):
        eo_kafka.restore(str(tmp_path / "late"), job.name, job.given, "before")
    assert eo_kafka.restore(str(tmp_path / "late"), job.name, job.given).batch == 3


def test_the_command_restores_the_newest_snapshot(job, tmp_path, capsys):
    words = ["--bootstrap-servers", job.servers]
    assert main(["snapshots", "restore", job.name, str(tmp_path / "new"), *words]) == 0
    assert "holds batch 2 of job" in capsys.readouterr().out
    assert set(job.files(tmp_path / "new")) == NEEDED
    assert main(["snapshots", "restore", f"{job.name}-9", str(tmp_path / "x"), *words]) == 1
    said = capsys.readouterr().out
    assert "has no snapshot: nothing was written" in said
    assert "no ledger here either" in said, "as where --ledger-topic is forgotten"


def test_a_job_on_another_cluster_goes_on_from_an_export(job, tmp_path, capsys):
    with KafkaBroker() as other:
        topic = topic_maker(other.bootstrap_servers)("out")
        words = ["--job", job.name, "--checkpoint", str(tmp_path / "new")]
        servers = ["--bootstrap-servers", job.servers]
        target = ["--target-bootstrap-servers", other.bootstrap_servers]
        start = ["snapshots", "start-from", job.name, "before", *words, *servers, *target]
        assert main(start) == 0
        new = replace(
            job,
            servers=other.bootstrap_servers,
            topic=topic,
            folder=tmp_path / "new",
            query=query_in(tmp_path / "new"),
        )
        assert new.query != job.query
        new.run(2, 3)
        assert new.visible == all_rows(3)
        assert ledger_of(new).snapshot.batch == 3
        assert eo_kafka.verify_snapshot(new.name, new.given) == []
    assert ledger_of(job).decisions.keys() == {("main", 0), ("main", 1), ("main", 2)}
    assert job.visible == Counter(all_rows(0, 1, 2))
