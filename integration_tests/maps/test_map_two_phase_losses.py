"""`commit=two-phase` into an IMap, when members die: one of two, all of them, or with the only
copies of what was staged."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from eo_kafka.clients.hazelcast.client import connect
from eo_kafka.errors import LedgerError, RepairNeeded
from eo_kafka.testing.processes import wait_until
from grid_fixtures import new_map, settings
from map_two_phase_job import (
    ADDING,
    MapJob,
    assert_exact,
    assert_once,
    driver,
    job_of,
    kill_at,
    staging_of,
)

FULL = pytest.mark.full


def with_other_values(job: MapJob, batch: int) -> None:
    """The batch again, by a query that is not deterministic."""
    job.prepare(batch, other="!")
    job.commit(batch)


def test_a_decided_batch_whose_staged_rows_are_lost_is_written_anew(
    map_job, written_map, staged, hazelcast_client, crash_points
) -> None:
    map_job.run(0)
    kill_at(map_job, crash_points, "S6.after_decision", 1)
    staged.remove(next(iter(staged.key_set())))
    with_other_values(map_job, 1)  # free to differ: nothing of it was in the map
    changed = {key: f"{value}!" for key, value in map_job.expected(0, 1).items()}
    assert dict(written_map.entry_set()) == changed
    assert staged.size() == 0


def test_a_batch_that_is_lost_when_some_of_it_is_applied_must_come_back_as_it_was(
    map_job, written_map, staged, hazelcast_client, crash_points
) -> None:
    map_job.run(0)
    kill_at(map_job, crash_points, "S7.after_chunk", 1)
    assert dict(written_map.entry_set()) not in (map_job.expected(0), map_job.expected(0, 1))
    staged.clear()
    before = dict(written_map.entry_set())
    with pytest.raises(RepairNeeded, match=r"partitions \[0, 1\] .* are not the same"):
        with_other_values(map_job, 1)
    assert dict(written_map.entry_set()) == before
    map_job.run(1)
    assert dict(written_map.entry_set()) == map_job.expected(0, 1)
    map_job.run(2)
    assert dict(written_map.entry_set()) == map_job.expected(0, 1, 2)


@FULL
def test_unequal_rows_of_such_a_batch_can_be_accepted(
    map_job, written_map, staged, crash_points
) -> None:
    map_job.run(0)
    kill_at(map_job, crash_points, "S7.after_chunk", 1)
    staged.clear()
    map_job.given["failOnDataLoss"] = "false"
    with_other_values(map_job, 1)
    changed = {key: f"{value}!" for key, value in map_job.expected(0, 1).items()}
    assert dict(written_map.entry_set()) == changed


@FULL
def test_a_cluster_that_was_started_anew_under_a_decided_batch_is_found(
    mortal_grid, broker, crash_points
) -> None:
    client = connect(settings(mortal_grid))
    stored = new_map(client)
    job = job_of(mortal_grid, stored, broker.bootstrap_servers)
    job.run(0)
    kill_at(job, crash_points, "S6.after_decision", 1)
    before = client._connection_manager._cluster_id
    mortal_grid.restart()
    wait_until(lambda: client._connection_manager._cluster_id != before, "it is connected again")
    for _ in range(2):
        with pytest.raises(LedgerError, match="all members were started anew"):
            job.run(1)
        assert stored.size() == 0
    job.given["failOnDataLoss"] = "false"
    job.run(1)
    del job.given["failOnDataLoss"]
    assert dict(stored.entry_set()) == job.expected(1)
    job.run(2)
    assert dict(stored.entry_set()) == job.expected(1, 2)
    client.shutdown()


@FULL
@pytest.mark.parametrize("point", ["map.while_staging", "S7.in_chunk", "S7.after_chunk"])
def test_a_member_that_is_killed_loses_and_repeats_nothing(
    mortal_grid, broker, crash_points, point
) -> None:
    client = connect(settings(mortal_grid))
    stored = new_map(client)
    job = job_of(mortal_grid, stored, broker.bootstrap_servers)
    job.run(0)
    crash_points.arm(point, "wait")
    with driver(job, 1) as process:
        crash_points.wait_reached(point)
        mortal_grid.members[0].kill()
        crash_points.release(point)
        _, said = process.communicate(timeout=150)
    assert process.returncode == 0, said
    assert_exact(job, client, stored, 0, 1)
    assert client.get_map(staging_of(job)).blocking().size() == 0
    client.shutdown()


@contextmanager
def busy() -> Iterator[None]:
    """Others need the cores, too."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@FULL
@pytest.mark.parametrize("kind, merging", [("j", False), ("j", True), ("guarded", True)])
def test_a_member_that_is_killed_in_the_middle_of_commits_tears_no_chunk(
    mortal_grid, broker, crash_points, kind, merging
) -> None:
    """No crash point can name the moment: a part of a chunk's rows is in the map, and perhaps its
    marker. There are thirty commits, each by one of two members, when one of these dies, on a
    machine that is busy, as commits are longer there. The one that lives refuses rows of a guarded
    map, and not the marker, until the other is back."""
    client = connect(settings(mortal_grid))
    for _ in range(4):
        mortal_grid.start()
        stored = new_map(client, kind)
        more = ADDING if merging else {}
        job = job_of(mortal_grid, stored, broker.bootstrap_servers, **more)
        job.rows_of_task = 3000
        job.run(0)
        crash_points.arm("S7.after_chunk", "wait")
        with driver(job, 1) as process:
            crash_points.wait_reached("S7.after_chunk")
            with busy():
                crash_points.release("S7.after_chunk")
                time.sleep(random.uniform(0.0, 2.0))
                mortal_grid.members[0].kill()
            if kind == "guarded":
                time.sleep(3)  # commits are refused meanwhile
                mortal_grid.start()
            _, said = process.communicate(timeout=150)
        assert process.returncode == 0, said
        crash_points.clear()
        assert_once(job, client, stored, 0, 1)
    client.shutdown()
