"""What a batch's commit leaves for `eo_kafka.progress`, and that it never fails for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from eo_kafka.core.process.moment import Moment
from eo_kafka.core.transaction import Identity, Participant
from eo_kafka.sinks.batches.committable import TaskReport
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import batch_figures
from eo_kafka.sinks.protocol.batch_figures import DECIDE, DONE, Course
from eo_kafka.state.ledger.blob_names import Blob, SnapshotHead

QUERY = "5c0f9b1e-3d52-4a8a-9c57-8c2a4f6f0a11"
OPTIONS = SinkOptions.parse(
    {"kafka.bootstrap.servers": "nowhere:1", "topic": "t", "jobName": "j"}, streaming=True
)
OTHER = SinkOptions.parse(
    {"kafka.bootstrap.servers": "nowhere:1", "topic": "t", "jobName": "k"}, streaming=True
)
OPEN = Participant(0, 0, 1, Identity("eo-kafka.j.0", 7, 1), 3, "d", (("t", "id"),))


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/elsewhere")
    return tmp_path


def report(batch: int, participant: Participant | None = None, **more: object) -> TaskReport:
    return TaskReport(0, batch, 0, False, QUERY, 1, 5, 0, 3, "d", participant, **more)


def leave(batch: int, options: SinkOptions = OPTIONS) -> None:
    batch_figures.leave(options, [report(batch)], Course(), [1.0])


def batches(directory: Path, numbers: range) -> list[str]:
    found = [one for n in numbers for one in batch_figures.of_batch(str(directory), QUERY, n)]
    return [f"{one.jobName}{one.batchId}" for one in found]


def test_what_is_left_is_found_by_query_and_batch(directory):
    course = Course()
    course.lap(DECIDE)
    course.lap(DONE)
    course.snapshot = SnapshotHead(4, 1, QUERY, Blob("d", 1), 0, 3, 100, 40, 0)
    course.aborted = 2
    told = {"size": 10, "aborted": 3}  # the plan's, by every task
    reports = [
        report(4, OPEN, began=Moment.now(), **told),
        report(4, **told),
        report(4, OPEN, committed=True, **told),
    ]

    batch_figures.leave(OPTIONS, reports, course, [12.04, 0.0], [7, 5])

    (found,) = batch_figures.of_batch(str(directory), QUERY, 4)
    assert list(found.durationMs) == ["plan", "tasks", "decide", "done"]
    assert found == batch_figures.SinkProgress(
        "j", 4, {**found.durationMs, "plan": 12.0}, 1, 3, 100, 40, 9, 12, 30, 5
    )
    assert not list(batch_figures.of_batch(str(directory), "another", 4))
    assert not list(batch_figures.of_batch(str(directory), QUERY, 5))


def test_each_job_of_a_query_is_told_and_a_batch_that_ran_again_once(directory):
    for batch, planned in ((8, 1.0), (9, 1.0), (9, 2.0)):
        batch_figures.leave(OPTIONS, [report(batch)], Course(), [planned])
    leave(9, OTHER)
    found = batch_figures.of_batch(str(directory), QUERY, 9)
    planned = {one.jobName: one.durationMs["plan"] for one in found}
    assert planned == {"j": 2.0, "k": 1.0}


def test_the_file_stays_small_and_keeps_the_newest_batches(directory, monkeypatch):
    monkeypatch.setattr(batch_figures, "MOST", 4096)
    sizes = []
    for batch in range(100):
        leave(batch)
        (path,) = directory.iterdir()
        sizes.append(path.stat().st_size)
    assert 3000 < max(sizes) <= 4096
    assert sum(after < before for before, after in pairwise(sizes)) >= 2, "shortened again"
    kept = batches(directory, range(100))
    assert kept == [f"j{n}" for n in range(100 - len(kept), 100)]
    assert len(kept) > 8


def test_steps_are_disjoint_and_add_up():
    course = Course()
    for step in (DECIDE, DONE, DECIDE):
        course.lap(step)
    assert set(course.ms) == {DECIDE, DONE}
    assert 0 < sum(course.ms.values()) <= course.age_s() * 1000


def test_the_time_of_tasks_is_left_out_where_it_is_another_machines(directory):
    elsewhere = replace(Moment.now(), machine="another")
    batch_figures.leave(OPTIONS, [report(1, began=elsewhere)], Course(), [1.0])
    (found,) = batch_figures.of_batch(str(directory), QUERY, 1)
    assert found.durationMs == {"plan": 1.0}


@pytest.mark.parametrize("text", ["", "nonsense", "7", "[7]", '{"batchId": 1}', "\udcff"])
def test_what_cannot_be_read_is_passed_over(directory, text):
    leave(1)
    (path,) = directory.iterdir()
    path.write_bytes(text.encode(errors="surrogateescape") + b"\n")
    assert batches(directory, range(5)) == []
    leave(2)
    assert batches(directory, range(5)) == ["j2"]


def test_a_batch_is_written_also_where_its_figures_are_not(directory, monkeypatch, tmp_path):
    leave(1)
    (path,) = directory.iterdir()
    path.unlink()
    path.mkdir()
    leave(2)  # a folder is where the file should be
    batch_figures.leave(OPTIONS, [], Course(), [])
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "gone"))
    leave(3)
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    leave(4)
    assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == [path.name]
