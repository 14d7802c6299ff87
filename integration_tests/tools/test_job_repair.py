"""`eo-kafka job repair`: the way on after a batch of which a part is lost for good.

The batches are written by the sink's own code in this process, without Spark: what Spark would add
is who calls it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from eo_kafka.core import crash_points as crash_points_module
from eo_kafka.core.crash_points import CrashPointReached
from eo_kafka.errors import RepairNeeded
from eo_kafka.sinks.batches.committable import TaskReport
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, one_phase, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.tools.cli import main
from harness import committed, control_plane

A, B, C, D = (
    [b"%s%d" % (name, number) for number in range(10)] for name in (b"a", b"b", b"c", b"d")
)


@dataclass
class Job:
    """A job whose tasks run here: `write` is S1 to S5, and for one-phase the tasks' commits."""

    servers: str
    topic: str
    commit_by: str = "two-phase"

    @property
    def options(self) -> SinkOptions:
        return SinkOptions.parse(
            {
                "kafka.bootstrap.servers": self.servers,
                "topic": self.topic,
                "jobName": self.topic,
                "commit": self.commit_by,
            },
            streaming=True,
        )

    def write(self, batch: int, tasks: Sequence[list[bytes]]) -> list[TaskReport]:
        plan = make_plan(self.options)
        write = one_phase.write if self.options.one_phase else two_phase.write
        return [
            write(
                self.options,
                plan,
                TaskIdentity("query", batch, partition, partition),
                iter([pa.RecordBatch.from_pydict({"value": rows})]),
            )
            for partition, rows in enumerate(tasks)
        ]

    def run(self, batch: int, tasks: Sequence[list[bytes]]) -> None:
        committer.commit(self.options, self.write(batch, tasks), batch)

    @property
    def visible(self) -> Counter[bytes]:
        return committed(self.servers, self.topic)

    def command(self, *arguments: str) -> int:
        return main(["job", *arguments, "--bootstrap-servers", self.servers])

    def repair(self, batch: int) -> int:
        return self.command("repair", self.topic, "--batch", str(batch), "--accept-loss")


@pytest.fixture
def job(broker, make_topic, crash_folder, monkeypatch) -> Job:
    monkeypatch.setattr(crash_points_module, "FOLDER", str(crash_folder))
    return Job(broker.bootstrap_servers, make_topic("out"))


def tear(job: Job, crash_points) -> list[list[bytes]]:
    """Decide a batch of two tasks of which Kafka commits one and aborts the other. Returns the
    committed task's rows, and the other's."""
    reports = job.write(0, [A, B])
    crash_points.arm("S7.after_first_end_txn", "raise")
    with pytest.raises(CrashPointReached):
        committer.commit(job.options, reports, 0)
    identities = [report.prepared.identity for report in reports if report.prepared]
    with control_plane(job.servers) as control:
        control.end(identities, commit=False, version=reports[0].end_txn_version)
    visible = job.visible
    return [A, B] if visible == Counter(A) else [B, A]


def test_a_decided_batch_goes_on_without_what_kafka_aborted(job, crash_points, capsys):
    kept, lost = tear(job, crash_points)
    assert job.visible == Counter(kept)
    with pytest.raises(RepairNeeded, match=f"'eo-kafka job repair {job.topic} --batch 0"):
        job.run(0, [C])
    assert job.repair(0) == 0
    at = [A, B].index(kept)
    assert capsys.readouterr().out == (
        f"Batch 0 is DONE with the 10 rows of partitions [{at}], without the 10 rows of partitions "
        f"[{1 - at}]. Start the query again.\n"
    )
    job.run(0, [C])  # Spark runs it once more, with whatever plan: it counts as written
    job.run(1, [D])
    assert job.visible == Counter(kept + D)
    assert not set(lost) & set(job.visible)


def test_an_interrupted_one_phase_batch_goes_on_with_what_is_visible(job, crash_points, capsys):
    job.commit_by = "idempotent"
    job.write(0, [A])  # and the driver dies
    with pytest.raises(RepairNeeded, match=f"'eo-kafka job repair {job.topic} --batch 0"):
        job.run(0, [C])
    assert job.repair(0) == 0
    assert capsys.readouterr().out == (
        "Batch 0 is DONE with the 10 rows of partitions [0]. What its other partitions would have "
        "held stays missing. Start the query again.\n"
    )
    job.run(0, [C, B])
    job.run(1, [D])
    assert job.visible == Counter(A + D)


@pytest.mark.parametrize("batch", [0, 7])
def test_what_is_whole_is_not_repaired(job, capsys, batch):
    """Nor is another batch than the one the error named, whatever state that is in."""
    job.run(0, [A])
    job.write(1, [B])
    code = job.repair(batch)
    told = capsys.readouterr()
    if batch == 0:
        assert code == 0
        assert told.out.startswith("Batch 0 is DONE and counts as written, whatever a replay")
    else:
        assert code == 1
        assert "Batch 7 needs no repair: it is not decided." in told.err
    job.run(1, [B])
    assert job.visible == Counter(A + B)


def test_a_torn_batch_is_left_alone_when_another_is_named(job, crash_points, capsys):
    kept, lost = tear(job, crash_points)
    assert job.repair(1) == 1
    assert job.command("reset", job.topic) == 1
    assert "Batch 0 is partly lost" in capsys.readouterr().err
    # The same rows in the same partitions complete it, with no repair.
    job.run(0, [A, B])
    assert job.visible == Counter(kept + lost)


def test_what_kafka_aborted_as_a_whole_is_written_anew(job, crash_points, capsys):
    reports = job.write(0, [A, B])
    crash_points.arm("S6.after_decision", "raise")
    with pytest.raises(CrashPointReached):
        committer.commit(job.options, reports, 0)
    identities = [report.prepared.identity for report in reports if report.prepared]
    with control_plane(job.servers) as control:
        control.end(identities, commit=False, version=reports[0].end_txn_version)
    assert job.repair(0) == 0
    assert "Batch 0 is VOID: it is written anew." in capsys.readouterr().out
    job.run(0, [C])
    assert job.visible == Counter(C)
