"""`commit=two-phase` into an IMap: invisible before the decision, whole after it, each chunk
applied once whoever is killed or paused. The map's journal shows that nothing was put twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from eo_kafka.errors import Undecided
from eo_kafka.sinks import committer
from grid_fixtures import new_map
from map_two_phase_job import MapJob, journal_of
from processes import killed_at_last
from test_map_stream import options_of

FULL = pytest.mark.full
SCRIPT = Path(__file__).parent / "map_two_phase_job.py"


def job_of(grid, stored, servers: str, **more: str) -> MapJob:
    of_kafka = {"kafka.bootstrap.servers": servers, "jobName": f"job-{stored.name}"}
    return MapJob(options_of(grid, stored, commit="two-phase", **of_kafka, **more))


@pytest.fixture
def stored(hazelcast_client):
    return new_map(hazelcast_client)


@pytest.fixture
def job(grid, stored, broker) -> MapJob:
    return job_of(grid, stored, broker.bootstrap_servers)


@pytest.fixture
def staged(hazelcast_client, job):
    """The job's staging map."""
    return hazelcast_client.get_map(f"__eo_kafka.{job.given['jobName']}.staged").blocking()


@contextmanager
def driver(job: MapJob, batch: int):
    """A driver of one batch in a process of its own."""
    given = json.dumps([job.given, job.rows_of_task, batch])
    process = subprocess.Popen(
        [sys.executable, str(SCRIPT), given], stderr=subprocess.PIPE, text=True
    )
    with killed_at_last(process.pid):
        yield process


def assert_exact(job: MapJob, client, stored, *batches: int) -> None:
    """The map is what the batches make of it, and nothing was put or removed twice."""
    assert dict(stored.entry_set()) == job.expected(*batches)
    assert journal_of(client, stored) == job.events(*batches)


def test_a_batch_is_invisible_until_its_decision_and_then_whole(
    job, stored, staged, hazelcast_client
) -> None:
    job.prepare(0)
    assert stored.size() == 0
    assert staged.size() == 6
    job.commit(0)
    assert_exact(job, hazelcast_client, stored, 0)
    assert staged.size() == 0
    job.run(1, 2)
    assert_exact(job, hazelcast_client, stored, 0, 1, 2)
    assert staged.size() == 0


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("map.while_staging", marks=FULL),
        pytest.param("S5.prepared", marks=FULL),
        pytest.param("S6.before_decision", marks=FULL),
        "S6.after_decision",
        pytest.param("S7.in_chunk", marks=FULL),
        "S7.after_chunk",
        pytest.param("S7.applied", marks=FULL),
        pytest.param("S8.after_done", marks=FULL),
    ],
)
def test_a_driver_that_is_killed_leaves_each_batch_to_be_applied_once(
    job, stored, staged, hazelcast_client, crash_points, point
) -> None:
    job.run(0)
    crash_points.arm(point, "kill")
    with driver(job, 1) as process:
        assert process.wait(120) == -signal.SIGKILL
    assert crash_points.reached(point)
    decided = point not in ("map.while_staging", "S5.prepared", "S6.before_decision")
    if not decided:
        assert_exact(job, hazelcast_client, stored, 0)
    job.run(1, 2)
    assert_exact(job, hazelcast_client, stored, 0, 1, 2)
    assert staged.size() == 0


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S6.before_decision", marks=FULL),
        pytest.param("S6.after_decision", marks=FULL),
        pytest.param("S7.in_chunk", marks=FULL),  # its locks live for half a minute
        "S7.after_chunk",
        pytest.param("S7.applied", marks=FULL),
    ],
)
def test_a_driver_that_was_paused_changes_nothing_when_it_goes_on(
    job, stored, staged, hazelcast_client, crash_points, point
) -> None:
    job.run(0)
    crash_points.arm(point, "stop")
    with driver(job, 1) as process:
        assert crash_points.wait_reached(point) == process.pid
        job.run(1, 2)
        assert_exact(job, hazelcast_client, stored, 0, 1, 2)
        os.kill(process.pid, signal.SIGCONT)
        _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "Fenced" in said
    assert_exact(job, hazelcast_client, stored, 0, 1, 2)
    assert staged.size() == 0


def test_what_nothing_decided_is_removed(job, stored, staged, hazelcast_client) -> None:
    job.prepare(0)
    committer.abort(job.options, job.reports)
    assert staged.size() == 0
    job.prepare(0)  # and its driver dies
    left = set(staged.key_set())
    job.prepare(0, attempt=7)
    assert left.isdisjoint(staged.key_set())
    assert staged.size() == len(left) == 6
    staged.remove(next(iter(staged.key_set())))
    with pytest.raises(Undecided, match=r"rows of partitions \[[01]\] that were staged"):
        job.commit(0)
    assert stored.size() == 0
    job.run(0)
    assert_exact(job, hazelcast_client, stored, 0)
