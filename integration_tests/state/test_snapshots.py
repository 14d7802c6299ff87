"""What a decision takes with it into Kafka: which files, in which transaction, and what is removed.

The batches are run by the sink's own code in this process, without Spark; the checkpoint is made by
hand, file by file as Spark's HDFS-backed state store would.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pytest

import eo_kafka
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.core import crash_points as crash_points_module
from eo_kafka.core.crash_points import CrashPointReached
from eo_kafka.errors import CheckpointError, LedgerError, SnapshotFailed
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, preflight, snapshots, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.state.ledger.coordinator import Coordinator
from eo_kafka.state.ledger.ledger import Ledger, fold
from eo_kafka.state.ledger.log_reader import read_records
from eo_kafka.state.snapshots import restored, restoring
from eo_kafka.tools import cli
from hand_made_job import cut_log
from harness import committed, control_plane, delete_topic, wait_until

QUERY = "2c8f0a52-0000-4000-8000-000000000001"


@dataclass
class Job:
    """A job with one stateful operator of one partition."""

    servers: str
    topic: str
    checkpoint: Path
    snapshots: str = "true"

    @property
    def given(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, "snapshots": self.snapshots}

    @property
    def options(self) -> SinkOptions:
        return SinkOptions.parse(
            {**self.given, "topic": self.topic, "jobName": self.topic}, streaming=True
        )

    def put(self, path: str, content: bytes) -> None:
        file = self.checkpoint / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def spark_writes(self, batch: int, state: bytes | None = None) -> None:
        """What Spark has written when the tasks of `batch` start: its offsets, and what batch
        `batch - 1` left, `state` among it."""
        self.put("metadata", b'{"id":"%s"}' % QUERY.encode())
        self.put(f"offsets/{batch}", b'v1\n{"batchTimestampMs":1}\n{"in":{"0":%d}}' % batch)
        if batch:
            self.put(f"commits/{batch - 1}", b'v1\n{"nextBatchWatermarkMs":0}')
            self.put(f"state/0/0/{batch}.delta", state or b"state %d" % batch)
        (self.checkpoint / "offsets" / f".{batch}.crc").write_bytes(b"crc")

    def run(self, batch: int, rows: list[bytes] | None = None) -> None:
        """S1 to S8."""
        plan = make_plan(self.options)
        task = TaskIdentity(QUERY, batch, 0, 0, checkpoint=str(self.checkpoint))
        values = rows if rows is not None else [b"row of %d" % batch]
        found = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
        report = two_phase.write(self.options, plan, task, iter([found]))
        committer.commit(self.options, [report], batch)

    def ledger(self) -> Ledger:
        return fold((key, value) for key, value in self.records(self.options.job_and_ledger[1]))

    def records(self, topic: str | None = None) -> Iterator[tuple[bytes, bytes | None]]:
        topic = topic or self.options.state_topic or ""
        with control_plane(self.servers) as control:
            end = control.end_offset(topic, 0, committed=True)
        for _, key, value in read_records(self.options.kafka, topic, 0, 0, end):
            yield key, value

    @property
    def is_stable(self) -> bool:
        """Whether the state topic's last stable offset is its end: markers follow an EndTxn."""
        topic = self.options.state_topic or ""
        with control_plane(self.servers) as control:
            ends = [control.end_offset(topic, 0, committed=only) for only in (True, False)]
        return ends[0] == ends[1]

    def compacted(self) -> dict[bytes, bytes]:
        """What compaction would leave of the state topic."""
        return {key: value for key, value in dict(self.records()).items() if value is not None}

    def restored(self, name: str) -> dict[str, bytes]:
        """The files of a restore into a new folder."""
        target = self.checkpoint.with_name(name)
        assert eo_kafka.restore(str(target), self.topic, self.given, progress=False)
        return files(target)


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.fixture
def job(broker, make_topic, tmp_path, crash_folder, monkeypatch) -> Job:
    monkeypatch.setattr(crash_points_module, "FOLDER", str(crash_folder))
    return Job(broker.bootstrap_servers, make_topic("out"), tmp_path / "checkpoint")


def named(job: Job) -> set[bytes]:
    """The keys that the newest snapshot needs: its manifest's and its files'."""
    from eo_kafka.state.snapshots.manifest import Manifest

    head = job.ledger().snapshot
    assert head is not None
    content = dict(job.records())
    packed = b"".join(content[key] or b"" for key in head.manifest.chunk_keys())
    blobs = [head.manifest, *Manifest.decode(packed).blobs().values()]
    return {key for blob in blobs for key in blob.chunk_keys()}


def test_a_snapshot_holds_what_a_restart_needs_and_nothing_else(job):
    for batch in range(4):
        job.spark_writes(batch)
        job.run(batch)
    assert job.restored("elsewhere") == {
        path: content
        for path, content in files(job.checkpoint).items()
        if path.startswith(("metadata", "state/"))
        or path in ("offsets/2", "offsets/3", "commits/2")
    }
    assert job.compacted().keys() == named(job), "what no manifest names has a tombstone"


def test_only_what_is_new_is_sent(job):
    job.spark_writes(0)
    job.run(0)
    job.spark_writes(1, b"x" * 100_000)
    job.run(1)
    before = len(list(job.records()))
    job.spark_writes(2)
    job.run(2)
    new = [(key, value) for key, value in list(job.records())[before:] if value is not None]
    assert sum(len(value) for _, value in new) < 2_000
    head = job.ledger().snapshot
    assert head is not None
    assert head.batch == 2
    assert head.size > 100_000 > head.sent


@pytest.mark.parametrize("point", ["S6.snapshot_taken", "S6.before_decision"])
def test_a_snapshot_without_its_decision_does_not_count(job, crash_points, point):
    job.spark_writes(0)
    job.run(0)
    before = job.restored("before")
    job.spark_writes(1)
    crash_points.arm(point, "raise")
    with pytest.raises(CrashPointReached):
        job.run(1)
    assert job.restored("after") == before
    job.run(1)
    assert "state/0/0/1.delta" in job.restored("later")
    assert job.compacted().keys() == named(job)
    assert committed(job.servers, job.topic) == Counter([b"row of 0", b"row of 1"])


def test_a_large_snapshot_is_sent_ahead_and_what_a_crash_leaves_of_it_is_removed(
    job, crash_points, monkeypatch
):
    monkeypatch.setattr(snapshots, "INLINE_MAX", 1_000_000)
    monkeypatch.setattr(snapshots, "PORTION", 600_000)
    job.spark_writes(0)
    job.run(0)
    job.spark_writes(1, os.urandom(3_000_000))
    crash_points.arm("S6.while_sending_ahead", "raise")
    with pytest.raises(CrashPointReached):
        job.run(1)
    assert job.ledger().loading_from is not None
    left = job.compacted().keys() - named(job)
    assert left, "the crash left nothing behind"
    job.put("state/0/0/1.delta", os.urandom(3_000_000))  # the replay wrote it anew
    job.run(1)
    assert job.ledger().loading_from is None
    assert job.compacted().keys() == named(job)
    assert (
        job.restored("elsewhere")["state/0/0/1.delta"] == files(job.checkpoint)["state/0/0/1.delta"]
    )


@pytest.mark.parametrize("is_stale", [False, True])
def test_what_an_interrupted_try_has_sent_is_not_sent_again(
    job, crash_points, monkeypatch, caplog, is_stale
):
    """Also where an old end of the state topic is told first, as a leader does that is cut off."""
    monkeypatch.setattr(snapshots, "INLINE_MAX", 500_000)
    monkeypatch.setattr(snapshots, "PORTION", 600_000)
    job.spark_writes(0)
    job.run(0)
    job.spark_writes(1, os.urandom(3_000_000))
    for partition in (1, 2):
        job.put(f"state/0/{partition}/1.delta", os.urandom(3_000_000))
    crash_points.arm("S6.snapshot_taken", "raise")
    with pytest.raises(CrashPointReached):
        job.run(1)
    sent, append, look = [], Coordinator.append, ControlPlane.look

    def appended(self, records, state=(), **others):
        sent.append(sum(len(value or b"") for _, value in state))
        append(self, records, state, **others)

    def looked(self, *asked, **others):
        found = look(self, *asked, **others)
        if (
            is_stale
            and others.get("ends", [("",)])[0][0] == job.options.state_topic
            and not sent[1:]
        ):
            return replace(found, ends=[found.ends[0], found.ends[1] - 4])
        return found

    monkeypatch.setattr(Coordinator, "append", appended)
    monkeypatch.setattr(ControlPlane, "look", looked)
    job.run(1)
    assert sum(sent) < (6_100_000 if is_stale else 100_000)
    assert ("asking again from the fence" in caplog.text) is is_stale
    assert job.ledger().loading_from is None
    assert job.compacted().keys() == named(job)
    kept, there = job.restored("elsewhere"), files(job.checkpoint)
    for partition in range(3):
        path = f"state/0/{partition}/1.delta"
        assert kept[path] == there[path]


def test_a_version_that_a_replay_wrote_anew_is_read_anew(job, crash_points):
    """Same path, same size, and, as some file systems tell it, the same time."""
    job.spark_writes(0)
    job.run(0)
    job.spark_writes(1, b"first")
    crash_points.arm("S6.after_decision", "raise")  # decided: the snapshot of batch 1 counts
    with pytest.raises(CrashPointReached):
        job.run(1)
    job.run(1)
    stat = os.stat(job.checkpoint / "state/0/0/1.delta")
    job.put("state/0/0/1.delta", b"other")
    os.utime(job.checkpoint / "state/0/0/1.delta", ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    job.spark_writes(2)
    job.run(2)
    assert job.restored("elsewhere")["state/0/0/1.delta"] == b"other"


@pytest.mark.full
def test_hundreds_of_batches_leave_a_topic_as_small_as_one(job):
    for batch in range(200):
        job.spark_writes(batch, os.urandom(1000))
        if batch >= 10:  # Spark's own maintenance
            job.put(f"state/0/0/{batch - 3}.snapshot", os.urandom(1000))
            for old in range(batch - 5):
                (job.checkpoint / f"state/0/0/{old}.delta").unlink(missing_ok=True)
        job.run(batch, rows=[])
    wait_until(lambda: job.is_stable, "the last transaction's marker is in the state topic", 30)
    assert job.compacted().keys() == named(job)
    assert len(job.compacted()) < 15


def test_a_checkpoint_that_cannot_be_read_stops_before_the_decision(job):
    job.put("metadata", b'{"id":"%s"}' % QUERY.encode())
    with pytest.raises(CheckpointError, match="offsets of batch 0 .* cannot be read"):
        job.run(0)
    job.snapshots = "false"  # what the batch is, is read from there all the same
    with pytest.raises(CheckpointError, match="offsets of batch 0 .* cannot be read"):
        job.run(0)
    assert committed(job.servers, job.topic) == Counter()


def test_a_reset_forgets_the_snapshot_and_the_next_one_removes_its_files(job):
    job.spark_writes(0)
    job.run(0)
    job.spark_writes(1, os.urandom(1000))
    job.run(1)
    assert cli.main(["job", "reset", job.topic, "--bootstrap-servers", job.servers]) == 0
    assert eo_kafka.restore(str(job.checkpoint.with_name("x")), job.topic, job.given) is None
    shutil.rmtree(job.checkpoint)
    job.spark_writes(0)
    job.run(0)
    assert job.compacted().keys() == named(job)


def test_a_damaged_checkpoint_stops_before_the_decision(job):
    job.spark_writes(0)
    job.run(0)
    job.spark_writes(1)
    (job.checkpoint / "state/0/0/1.delta").rename(job.checkpoint / "state/0/0/7.delta")
    with pytest.raises(SnapshotFailed, match="state/0/0 has no version 1"):
        job.run(1)
    assert committed(job.servers, job.topic) == Counter([b"row of 0"])
    (job.checkpoint / "state/0/0/7.delta").rename(job.checkpoint / "state/0/0/1.delta")
    job.run(1)
    assert committed(job.servers, job.topic) == Counter([b"row of 0", b"row of 1"])


def test_a_state_topic_that_was_made_again_gets_a_whole_snapshot(job):
    """By a process that remembers what it sent to the one before."""
    for batch in range(2):
        job.spark_writes(batch)
        job.run(batch)
    delete_topic(job.servers, job.options.state_topic)
    preflight._checked.clear()  # it is made again
    job.spark_writes(2)
    job.run(2)
    assert (
        job.restored("elsewhere")["state/0/0/2.delta"] == files(job.checkpoint)["state/0/0/2.delta"]
    )


def test_a_whole_snapshot_into_a_topic_that_was_made_again_may_be_interrupted(
    job, crash_points, monkeypatch
):
    """Its process lives on and remembers what it had sent to the topic before."""
    job.spark_writes(0)
    job.run(0)
    job.spark_writes(1, os.urandom(6_000_000))
    job.run(1)
    monkeypatch.setattr(snapshots, "INLINE_MAX", 1_000_000)
    monkeypatch.setattr(snapshots, "PORTION", 1_000_000)
    delete_topic(job.servers, job.options.state_topic)
    preflight._checked.clear()
    job.spark_writes(2)
    crash_points.arm("S6.while_sending_ahead", "raise")
    with pytest.raises(CrashPointReached):
        job.run(2)
    job.run(2)
    assert (
        job.restored("elsewhere")["state/0/0/1.delta"] == files(job.checkpoint)["state/0/0/1.delta"]
    )


@pytest.mark.parametrize("which", ["files", "all"])
def test_after_records_of_the_state_topic_were_deleted_the_next_snapshot_is_a_whole_one(
    job, which, caplog
):
    """Somebody let Kafka delete by age for a while, or deleted by hand."""
    job.spark_writes(0)
    job.run(0)
    for batch in (1, 2):
        job.spark_writes(batch, os.urandom(1000))
        job.run(batch)
    head = job.ledger().snapshot
    assert head is not None
    topic = job.options.state_topic
    with control_plane(job.servers) as control:
        end = control.end_offset(topic, 0, committed=True)
    cut_log(job.servers, topic, head.manifest_from if which == "files" else end)
    for batch in (3, 4):
        caplog.clear()
        job.spark_writes(batch)
        job.run(batch)
        restored_files = job.restored(f"after-{batch}")
        assert restored_files["state/0/0/1.delta"] == files(job.checkpoint)["state/0/0/1.delta"]
        assert ("were deleted" in caplog.text) == (batch == 3), "it is told once"
    assert job.compacted().keys() == named(job)


def test_batches_without_snapshots_cannot_be_restored_over(job):
    job.spark_writes(0)
    job.run(0)
    job.snapshots = "false"
    job.spark_writes(1)
    job.run(1)
    target = job.checkpoint.with_name("elsewhere")
    with pytest.raises(CheckpointError, match=r"snapshot .* batch 0, and batches up to 1 were"):
        eo_kafka.restore(str(target), job.topic, job.given)
    assert not target.exists()


def test_a_skipped_batch_must_be_the_one_that_was_written(job):
    for batch in range(2):
        job.spark_writes(batch)
        job.run(batch)
    job.run(1)  # the same again: skipped
    job.put("offsets/1", b'v1\n{"batchTimestampMs":2}\n{"in":{"0":7}}')
    with pytest.raises(LedgerError, match="the batch 1 that comes now is another one"):
        job.run(1)


def test_a_restore_needs_an_empty_folder_and_a_job_with_a_snapshot(job, tmp_path, caplog):
    assert eo_kafka.restore(str(tmp_path / "x"), "no-such-job", job.given) is None
    job.spark_writes(0)
    job.run(0)
    with pytest.raises(CheckpointError, match="is not empty"):
        eo_kafka.restore(str(job.checkpoint), job.topic, job.given)
    shutil.rmtree(job.checkpoint)
    with caplog.at_level(logging.INFO, "eo_kafka"):
        head = eo_kafka.restore(str(job.checkpoint), job.topic, job.given)
    assert head is not None
    assert head.batch == 0
    noted = restored.newest()[job.topic]  # for its metrics
    assert (noted.batch, noted.size) == (0, head.size) and 0 < noted.seconds < 60
    (said,) = [one for one in caplog.records if one.name == restoring.__name__]
    assert re.fullmatch(
        rf"Job '{job.topic}' goes on at batch 0: snapshot 'latest' of 20\d\d-\S+T\S+\+00:00 "
        rf"\({head.files} files, {head.size} bytes\) was restored into '{job.checkpoint}'\.",
        said.getMessage(),
    )
