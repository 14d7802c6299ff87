"""`eo-target` into Redis and into a Delta table: invisible before the decision, whole after it,
once, whoever is killed or paused."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from eo_kafka.errors import Fenced, LedgerError, Undecided
from eo_kafka.sinks.protocol import committer
from harness import committed
from table_job import kill_at, overtaken
from target_job import TargetJob, delta_job, redis_job
from target_places import redis_server  # noqa: F401 - a fixture

FULL = pytest.mark.full


@pytest.fixture(params=["redis", "delta"])
def job(request, tmp_path, broker) -> TargetJob:
    if request.param == "redis":
        return redis_job(request.getfixturevalue("redis_server"), broker.bootstrap_servers)
    return delta_job(tmp_path, broker.bootstrap_servers)


@pytest.fixture
def one(tmp_path, broker) -> TargetJob:
    """Where it does not matter which."""
    return delta_job(tmp_path, broker.bootstrap_servers)


def test_a_batch_is_invisible_until_its_decision_and_then_whole(job):
    job.prepare(0)
    assert job.there() == Counter()
    assert len(job.left()) == 2
    job.commit(0)
    assert job.there() == job.expected(0)
    assert job.left() == []
    job.run(1, 2)
    job.run(2)  # again
    assert job.there() == job.expected(0, 1, 2)
    assert job.left() == []


def test_a_class_that_was_moved_writes_the_same_rows(one, tmp_path, monkeypatch):
    """The batch is compared by its rows: these have no offsets."""
    module, _, name = one.given["target"].partition(":")
    (tmp_path / "moved_target.py").write_text(f"from {module} import {name} as Moved")
    monkeypatch.syspath_prepend(tmp_path)
    one.run(0)
    one.given["target"] = "moved_target:Moved"
    one.run(0)  # again
    one.run(1)
    assert one.there() == one.expected(0, 1)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("target.while_staging", marks=FULL),
        pytest.param("S5.prepared", marks=FULL),
        pytest.param("S6.before_decision", marks=FULL),
        "S6.after_decision",
        pytest.param("S7.before_target", marks=FULL),
        "S7.in_target",
        pytest.param("S8.after_done", marks=FULL),
    ],
)
def test_a_driver_that_is_killed_leaves_each_batch_to_be_shown_once(job, crash_points, point):
    job.run(0)
    kill_at(job, crash_points, point, 1)
    if point not in ("S7.in_target", "S8.after_done"):
        assert job.there() == job.expected(0)
    job.run(1, 2)
    assert job.there() == job.expected(0, 1, 2)
    assert job.left() == []


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S6.before_decision", marks=FULL),
        pytest.param("S6.after_decision", marks=FULL),
        "S7.before_target",
        pytest.param("S7.in_target", marks=FULL),
    ],
)
def test_a_driver_that_was_paused_changes_nothing_when_it_goes_on(job, crash_points, point):
    overtaken(job, crash_points, point)
    job.run(3)
    assert job.there() == job.expected(0, 1, 2, 3)


def test_with_a_topic_both_have_one_decision(tmp_path, broker, make_topic, crash_points):
    topic = make_topic("out", partitions=2)
    job = delta_job(tmp_path, broker.bootstrap_servers, topic=topic)
    job.run(0)
    kill_at(job, crash_points, "S6.after_decision", 1)
    job.run(1, 2)
    assert job.there() == job.expected(0, 1, 2)
    words = Counter(word.encode() for _, word in job.sent(0, 1, 2).elements())
    assert committed(broker.bootstrap_servers, topic) == words


@pytest.mark.parametrize("lost", ["before its decision", "after its decision"])
def test_staged_rows_that_are_lost_are_written_again_or_told(one, crash_points, lost):
    one.run(0)
    if lost == "before its decision":
        one.prepare(1)
        one.read()[1].made().discard(one.left()[:1])
        with pytest.raises(Undecided, match="rows of partitions"):
            one.commit(1)
    else:
        kill_at(one, crash_points, "S6.after_decision", 1)
        one.read()[1].made().discard(one.left()[:1])
    one.run(1, 2)  # none of it was shown: it is written as if it had never been decided
    assert one.there() == one.expected(0, 1, 2)


def test_a_target_that_was_restored_from_an_older_copy_stops_the_job(one, tmp_path):
    one.run(0)
    shutil.copytree(one.database, tmp_path / "copy")
    one.run(1, 2)
    shutil.rmtree(one.database)
    shutil.copytree(tmp_path / "copy", one.database)
    with pytest.raises(LedgerError, match=r"shows batch 0 .* the ledger has batch 2"):
        one.prepare(3)
    one.given["failOnDataLoss"] = "false"
    one.run(3)
    assert one.there() == one.expected(0, 3)


def test_another_job_has_a_marker_of_its_own(one):
    one.run(0, 1)
    one.given["jobName"] += "-2"
    one.run(0, 1)
    assert one.there() == one.expected(0, 1, 0, 1)


def test_what_nothing_decided_is_removed(job):
    job.prepare(0)
    committer.abort(job.options, job.reports)
    assert job.left() == []
    job.prepare(0)
    job.prepare(0, attempt=10)  # another driver's: the first one's is gone
    assert len(job.left()) == 2
    job.commit(0)
    assert job.there() == job.expected(0)


def test_a_driver_that_lost_its_generation_is_fenced(one):
    one.prepare(0)
    reports = one.reports
    one.run(0)
    one.reports = reports
    with pytest.raises(Fenced):
        one.commit(0)
    assert one.there() == one.expected(0)
