"""`onConflict=merge`: entry and row are made one by the user's function, and each row counts once,
whoever is killed. The function adds up: a row that was merged twice would show."""

from __future__ import annotations

import os
import signal

import pyarrow as pa
import pytest

from eo_kafka.errors import LedgerError, SinkError
from eo_kafka.sinks.maps import two_phase as map_two_phase
from eo_kafka.sinks.maps.two_phase_options import read_two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from map_two_phase_job import (
    ADDING,
    COLUMNS,
    QUERY,
    MapJob,
    driver,
    job_of,
    journal_of,
    kill_at,
)

FULL = pytest.mark.full


@pytest.fixture
def adding(grid, written_map, broker) -> MapJob:
    return job_of(grid, written_map, broker.bootstrap_servers, **ADDING)


def assert_added_once(job: MapJob, client, stored) -> None:
    """After batches 0 to 2: sums, and no event more than there are changes."""
    assert dict(stored.entry_set()) == job.sums(0, 1, 2)
    found = journal_of(client, stored)
    assert set(found.values()) == {1}
    assert found["0-200", "3"] == 1


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S6.after_decision", marks=FULL),
        pytest.param("S7.in_chunk", marks=FULL),
        "S7.after_chunk",
        pytest.param("S7.applied", marks=FULL),
        pytest.param("S8.after_done", marks=FULL),
    ],
)
def test_a_driver_that_is_killed_leaves_each_row_to_be_merged_once(
    adding, written_map, hazelcast_client, crash_points, point
) -> None:
    adding.run(0)
    kill_at(adding, crash_points, point, 1)
    adding.run(1, 2)
    assert_added_once(adding, hazelcast_client, written_map)


@pytest.mark.full
@pytest.mark.parametrize("point", ["S7.in_chunk", "S7.after_chunk"])
def test_a_driver_that_was_paused_merges_nothing_when_it_goes_on(
    adding, written_map, hazelcast_client, crash_points, point
) -> None:
    adding.run(0)
    crash_points.arm(point, "stop")
    with driver(adding, 1) as process:
        assert crash_points.wait_reached(point) == process.pid
        adding.run(1, 2)
        os.kill(process.pid, signal.SIGCONT)
        _, said = process.communicate(timeout=120)
    assert "Fenced" in said
    assert_added_once(adding, hazelcast_client, written_map)


def test_rows_are_merged_in_their_order_and_a_function_that_fails_can_be_mended(
    grid, written_map, broker, hazelcast_client
) -> None:
    written_map.put("there", "10")
    job = job_of(grid, written_map, broker.bootstrap_servers, **ADDING)
    options, target, _ = read_two_phase(job.given, COLUMNS)
    keys = ["there", "new", "there", "gone", "gone", "back", "back", "back"]
    values = ["1", "2", "3", "4", None, "5", None, "6"]
    rows = pa.record_batch([pa.array(keys), pa.array(values)], names=["key", "value"])
    task = TaskIdentity(QUERY, 0, 0, 0)
    job.reports = [map_two_phase.write(options, target, make_plan(options), task, iter([rows]))]
    written_map.put("there", "no number")
    with pytest.raises(SinkError, match=r"'map_two_phase_job:added'.*failed for key there: Value"):
        job.commit(0)
    assert dict(written_map.entry_set()) == {"there": "no number"}
    another = job.given | {"mergeFunction": "operator:concat"}
    with pytest.raises(LedgerError, match="merged by 'map_two_phase_job:added', and option"):
        make_plan(read_two_phase(another, COLUMNS)[0])
    assert dict(written_map.entry_set()) == {"there": "no number"}
    written_map.put("there", "10")
    make_plan(options)  # the query is started again, and rolls the batch forward
    assert dict(written_map.entry_set()) == {"there": "14", "new": "2", "back": "6"}


@FULL
def test_rows_that_are_lost_beside_merged_ones_are_not_merged_anew(
    adding, written_map, staged, crash_points
) -> None:
    """Where rows replace their entries, the whole participant is written again: here some of it
    would count twice."""
    adding.run(0)
    kill_at(adding, crash_points, "S7.after_chunk", 1)
    staged.clear()
    before = dict(written_map.entry_set())
    assert set(before.values()) == {"0", "1"}
    with pytest.raises(LedgerError, match="would repeat the rows that are merged already"):
        adding.run(1)
    assert dict(written_map.entry_set()) == before
    adding.given["failOnDataLoss"] = "false"
    adding.run(1, 2)
    once = {key: str(int(value) + 2) for key, value in before.items()}
    gone = [key for key in once if key not in adding.sums(0, 1, 2)]
    # removed in batch 1, and so lost, or in batch 2
    assert dict(written_map.entry_set()) == {key: once[key] for key in once if key not in gone}
