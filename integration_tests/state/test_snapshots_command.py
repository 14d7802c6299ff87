"""`eo-kafka snapshots` on a real Kafka: what is exported stays, whole, whatever the job does next;
what is not whole is named. Starting from an export is in test_start_from.py."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

import eo_kafka
from eo_kafka.core import crash_points as crash_points_module
from eo_kafka.core.crash_points import CrashPointReached
from eo_kafka.errors import CorruptSnapshot, EoKafkaError, Fenced, LedgerError
from eo_kafka.sinks.protocol import committer, preflight
from eo_kafka.state.ledger import compacted_topic
from eo_kafka.state.snapshots import export
from eo_kafka.state.snapshots.search import SnapshotSearch
from eo_kafka.state.snapshots.writer import ExportWriter
from eo_kafka.tools.cli import main
from eo_kafka.tools.snapshots import exporting
from hand_made_job import HandMadeJob, all_rows, cut_log
from harness import committed_messages, control_plane, delete_topic


@pytest.fixture
def job(broker, make_topic, tmp_path, crash_folder, monkeypatch) -> HandMadeJob:
    """Three batches are written."""
    monkeypatch.setattr(crash_points_module, "FOLDER", str(crash_folder))
    topic = make_topic("out")
    made = HandMadeJob(broker.bootstrap_servers, topic, f"job-{topic}", tmp_path / "checkpoint")
    made.run(0, 1, 2)
    return made


@pytest.fixture
def tool(broker, capsys):
    """Runs a command: its exit code, and what it said."""

    def run(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["snapshots", *words, "--bootstrap-servers", broker.bootstrap_servers])
        said = capsys.readouterr()
        return code, said.out if code == 0 or said.out else said.err

    return run


def batches(job: HandMadeJob) -> dict[str, int | None]:
    found = eo_kafka.snapshots(job.name, job.given)
    return {name: one.head.batch if one else None for name, one in found.items()}


def live(job: HandMadeJob, name: str) -> Counter[bytes]:
    """The keys of an export's topic and how often each was written, without what was taken back."""
    last: dict[bytes, bytes | None] = {}
    times: Counter[bytes] = Counter()
    for message in committed_messages(job.servers, export.topic_of(job.name, name)):
        last[message.key()] = message.value()
        times[message.key()] += 1
    return Counter({key: times[key] for key, value in last.items() if value is not None})


def needed(job: HandMadeJob, name: str) -> set[bytes]:
    search = SnapshotSearch(job.name, job.given)
    found = search.exported(name)
    blobs = {*search.manifest(found).blobs().values(), found.head.manifest}
    return {export.KEY, *(key for blob in blobs for key in blob.chunk_keys())}


def end_of(job: HandMadeJob, topic: str) -> int:
    with control_plane(job.servers) as control:
        return control.end_offset(topic, 0, committed=False)


def test_an_export_stays_as_it_is_until_it_is_deleted(job, tool, tmp_path):
    exported = job.files()
    assert tool("export", job.name, "before")[0] == 0
    job.replace_all(3)
    job.run(3, 4)
    cut_log(job.servers, job.state_topic, end_of(job, job.state_topic))
    assert batches(job) == {"latest": 4, "before": 2}
    code, said = tool("show", job.name, "before", "--json")
    shown = json.loads(said)
    assert (code, shown["batch"], shown["files"]) == (0, 2, len(exported) - 2)  # those of batch 0
    assert shown["offsets"] == ['{"in":{"0":30}}']
    assert [one["name"] for one in shown["operators"]] == ["stateStoreSave"]
    assert tool("verify", job.name, "before") == (0, f"Whole: 'before' of job '{job.name}'.\n")
    code, said = tool("export", job.name, "before")
    assert code == 1
    assert "has an exported snapshot 'before' already, of batch 2" in said
    assert tool("delete", job.name, "before")[0] == 0
    assert tool("verify", job.name, "before")[0] == 1
    assert batches(job) == {"latest": 4}
    assert tool("delete", job.name, "before")[0] == 1


def test_a_snapshot_is_read_where_the_ledger_says_that_it_is(job, tool, tmp_path):
    """Option `stateTopic` was added, and the old topic, which has an older one, is still there."""
    job.extra["stateTopic"] = f"{job.name}-elsewhere"
    job.run(3)
    code, said = tool("restore", job.name, str(tmp_path / "restored"))
    assert code == 0, said
    assert (tmp_path / "restored" / "offsets" / "3").exists()


def test_what_people_read_of_a_snapshot(job, tool):
    assert tool("list", job.name)[1].splitlines()[1].split()[:2] == ["latest", "2"]
    said = tool("show", job.name)[1]
    assert f"query id   {job.query}" in said
    assert 'source 0   {"in":{"0":30}}' in said
    assert "0  stateStoreSave           1  default" in said
    assert tool("verify", job.name) == (0, f"Whole: 'latest' of job '{job.name}'.\n")


def test_a_job_without_snapshots_has_none_to_show_or_export(tool, make_topic):
    name = make_topic("nobody")
    for words in (("list", name), ("list", name, "--json")):
        code, said = tool(*words)
        assert code == 1
        assert f"There is no job '{name}' on this cluster (no topic '__eo_kafka." in said
    for words in (("show", name), ("export", name, "x"), ("verify", name)):
        code, said = tool(*words)
        assert code == 1
        assert f"Job '{name}' has no snapshot (its ledger is '__eo_kafka.{name}.ledger')" in said
    assert "no exported snapshot 'x'" in tool("show", name, "x")[1]


def test_the_newer_snapshot_is_exported_if_the_job_goes_on_meanwhile(job, monkeypatch):
    """The files of the one that was begun are gone before they are copied."""
    copy, seen = exporting._copy, []

    def slow(search, writer, name, found, *others):
        seen.append(found.head.batch)
        if len(seen) == 1:
            at = end_of(job, job.state_topic)
            job.replace_all(3)
            job.run(3)
            cut_log(job.servers, job.state_topic, at)
        return copy(search, writer, name, found, *others)

    monkeypatch.setattr(exporting, "_copy", slow)
    made = eo_kafka.export_snapshot(job.name, "before", job.given)
    assert seen == [2, 3]
    assert made.snapshot.batch == 3
    assert eo_kafka.verify_snapshot(job.name, job.given, "before") == []
    assert set(live(job, "before")) == needed(job, "before")


def test_what_is_lost_is_named_and_not_exported(job, tool):
    cut_log(job.servers, job.state_topic, 4)
    code, said = tool("verify", job.name, "--json")
    broken = json.loads(said)["broken"]
    assert code == 1
    assert broken
    assert "offsets/2" not in broken, "the newest batch's files are still there"
    with pytest.raises(CorruptSnapshot, match=f"lacks the contents of {len(broken)} of"):
        eo_kafka.export_snapshot(job.name, "before", job.given)
    assert batches(job) == {"latest": 2, "before": None}
    assert "was not finished" in tool("show", job.name, "before")[1]
    assert tool("delete", job.name, "before")[0] == 0
    assert batches(job) == {"latest": 2}


def test_a_damaged_snapshot_is_not_shown_as_one_without_state(job, tool, spark):
    manifest = SnapshotSearch(job.name, job.given).latest().head.manifest
    keys = [message.key() for message in committed_messages(job.servers, job.state_topic)]
    assert tool("show", job.name)[0] == 0
    newest = max(at for at, key in enumerate(keys) if key in set(manifest.chunk_keys()))
    cut_log(job.servers, job.state_topic, newest)
    for words in (("show", job.name), ("show", job.name, "--json")):
        code, said = tool(*words)
        assert code == 1
        assert "is damaged: it lacks the contents of state/0/_metadata/metadata" in said
    options = {"kafka.bootstrap.servers": job.servers, "jobName": job.name}
    reader = spark.read.format("eo-state").options(**options)
    with pytest.raises(Exception, match=r"CorruptSnapshot.*lacks .* state/0/_metadata/metadata"):
        reader.option("read", "operators").load().collect()


def test_exports_are_listed_when_the_state_topic_is_gone(job, tool):
    eo_kafka.export_snapshot(job.name, "before", job.given)
    delete_topic(job.servers, job.state_topic)
    code, said = tool("list", job.name)
    assert code == 1
    assert "\nlatest         lost: its topic is gone\n" in said
    assert "\nbefore      2  " in said
    assert f"there is no topic '{job.state_topic}'" in tool("show", job.name)[1]
    assert batches(job) == {"latest": None, "before": 2}
    assert tool("verify", job.name, "before")[0] == 0
    preflight._checked.clear()  # as a new start does
    job.run(3)  # makes the topic anew, and sends all files
    assert tool("verify", job.name) == (0, f"Whole: 'latest' of job '{job.name}'.\n")


NOT_WHOLE = "Not whole: 2 files.\n  commits/1\n  metadata\n"


def test_a_damaged_export_is_named(job, tool, tmp_path):
    eo_kafka.export_snapshot(job.name, "before", job.given)
    cut_log(job.servers, export.topic_of(job.name, "before"), 2)
    assert tool("verify", job.name, "before") == (1, NOT_WHOLE)
    target = tmp_path / "another"
    code, said = tool(
        "start-from", job.name, "before", "--job", f"{job.name}-2", "--checkpoint", str(target)
    )
    assert code == 1
    assert "lacks the contents of 1 of" in said
    assert job.files(target) == {}


KILL_AFTER_THREE = """
import os, signal, sys
from eo_kafka.tools.cli import main
from eo_kafka.state.snapshots import writer as export_writer
from eo_kafka.state.snapshots.writer import ExportWriter
export_writer.PORTION_RECORDS = 1
append, done = ExportWriter.append, []
def appended(self, records):
    append(self, records)
    done.append(records)
    if len(done) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
ExportWriter.append = appended
main(sys.argv[1:])
"""


def test_an_exporter_that_was_killed_is_started_again(job, tool):
    words = ["snapshots", "export", job.name, "before", "--bootstrap-servers", job.servers]
    killed = subprocess.run([sys.executable, "-c", KILL_AFTER_THREE, *words], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert batches(job) == {"latest": 2, "before": None}
    left = live(job, "before")
    assert len(left) == 3
    (job.folder / "state/0/0/1.delta").write_bytes(os.urandom(99))
    job.run(3)  # one of the three may be needed no more
    assert tool("export", job.name, "before")[0] == 0
    assert batches(job) == {"latest": 3, "before": 3}
    there = live(job, "before")
    assert set(there) == needed(job, "before")
    assert set(there.values()) == {1}, "copied twice"
    assert tool("verify", job.name, "before")[0] == 0


def test_of_two_exporters_of_one_name_the_later_one_goes_on(job):
    search, topic = SnapshotSearch(job.name, job.given), export.topic_of(job.name, "before")
    compacted_topic.create(search.admin, topic, 1, 1)
    first = ExportWriter(search.options, search.control, topic)
    first.append([(b"0" * 40 + b"/0", b"stray")])
    eo_kafka.export_snapshot(job.name, "before", job.given)
    with pytest.raises(Fenced, match="Somebody else exports"):
        first.append([(b"1" * 40 + b"/0", b"late")])
    assert batches(job)["before"] == 2
    assert set(live(job, "before")) == needed(job, "before")


def test_a_batch_that_is_decided_and_not_finished_is_waited_for(job, crash_points, monkeypatch):
    job.begin(3)
    crash_points.arm("S6.after_decision", "raise")
    with pytest.raises(CrashPointReached):
        committer.commit(job.options, job.prepare(3), 3)
    monkeypatch.setattr(exporting, "DONE_TIMEOUT_S", 1)
    with pytest.raises(EoKafkaError, match="of batch 3, which is DECIDED"):
        eo_kafka.export_snapshot(job.name, "before", job.given)
    assert batches(job) == {"latest": 3}
    job.run(3)  # the next start finishes it
    assert eo_kafka.export_snapshot(job.name, "before", job.given).snapshot.batch == 3


class Query:
    """A query of Spark's; stopping it leaves what `leave` does."""

    def __init__(self, leave) -> None:
        self._leave = leave
        self.stopped = False

    def stop(self) -> None:
        self._leave()
        self.stopped = True


def test_cancel_and_export_settles_what_the_stopped_query_left(job, crash_points):
    def decide_and_die() -> None:
        job.begin(3)
        crash_points.arm("S6.after_decision", "raise")
        with pytest.raises(CrashPointReached):
            committer.commit(job.options, job.prepare(3), 3)

    query = Query(decide_and_die)
    made = eo_kafka.cancel_and_export(query, job.name, "last", job.given)
    assert query.stopped
    assert made.snapshot.batch == 3
    assert job.visible == all_rows(0, 1, 2, 3)


def test_cancel_and_export_under_another_prefix_is_refused_before_the_query_is_stopped(job):
    """It could not end what the query leaves open."""
    query, given = Query(lambda: None), {**job.given, "transactionalIdPrefix": "team1"}
    with pytest.raises(LedgerError, match="option 'transactionalIdPrefix'"):
        eo_kafka.cancel_and_export(query, job.name, "last", given)
    assert not query.stopped and batches(job) == {"latest": 2}


def test_cancel_and_export_says_whether_the_query_is_stopped(job):
    def write_without_a_snapshot() -> None:
        job.extra = {"snapshots": "false"}
        job.run(3)

    query = Query(write_without_a_snapshot)
    eo_kafka.export_snapshot(job.name, "taken", job.given)
    with pytest.raises(EoKafkaError, match="'taken' already"):
        eo_kafka.cancel_and_export(query, job.name, "taken", job.given)
    assert not query.stopped
    with pytest.raises(EoKafkaError, match=r"up to 3 were written since.*The query is stopped"):
        eo_kafka.cancel_and_export(query, job.name, "last", job.given)
    assert query.stopped
    assert batches(job) == {"latest": 2, "taken": 2}


@pytest.mark.parametrize("does", ["writes a batch", "has begun"])
def test_cancel_and_export_says_that_another_driver_goes_on(job, monkeypatch, does):
    """One that its caller did not stop: a job started from the export would write that again."""
    copy = exporting._copy

    def copy_while_it_goes_on(*given):
        made = copy(*given)
        job.begin(3)
        if does == "has begun":
            job.prepare(3)
        else:
            job.run(3)
        return made

    monkeypatch.setattr(exporting, "_copy", copy_while_it_goes_on)
    with pytest.raises(EoKafkaError, match=r"Another driver of job .*snapshots delete .* last"):
        eo_kafka.cancel_and_export(Query(lambda: None), job.name, "last", job.given)
