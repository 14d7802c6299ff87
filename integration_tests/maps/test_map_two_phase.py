"""`commit=two-phase` into an IMap: invisible before the decision, whole after it, each chunk
applied once whoever is killed or paused. The map's journal shows that nothing was put twice."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pyarrow as pa
import pytest

from eo_kafka.clients.kafka import control_plane
from eo_kafka.errors import Fenced, LedgerError, OutcomeUnknown, Undecided
from eo_kafka.sinks.maps import two_phase as map_two_phase
from eo_kafka.sinks.maps.applied import MARKERS
from eo_kafka.sinks.maps.lanes import TRANSACTION_S, Lanes
from eo_kafka.sinks.maps.staging import CHUNK_ROWS, ChunkKey, Staging
from eo_kafka.sinks.maps.two_phase_options import read_two_phase
from eo_kafka.sinks.maps.write_ahead import WriteAhead, WriteAheads
from eo_kafka.sinks.protocol import committer, preflight
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.testing.processes import wait_until
from grid_fixtures import new_map
from harness import delete_topic
from map_two_phase_job import ADDING, COLUMNS, QUERY, MapJob, assert_exact, driver, job_of, kill_at

FULL = pytest.mark.full


@pytest.mark.smoke
def test_a_batch_is_invisible_until_its_decision_and_then_whole(
    map_job, written_map, staged, hazelcast_client
) -> None:
    map_job.prepare(0)
    assert written_map.size() == 0
    assert staged.size() == 6
    map_job.commit(0)
    assert_exact(map_job, hazelcast_client, written_map, 0)
    assert staged.size() == 0
    map_job.run(1, 2)
    assert_exact(map_job, hazelcast_client, written_map, 0, 1, 2)
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
    map_job, written_map, staged, hazelcast_client, crash_points, point
) -> None:
    map_job.run(0)
    kill_at(map_job, crash_points, point, 1)
    decided = point not in ("map.while_staging", "S5.prepared", "S6.before_decision")
    if not decided:
        assert_exact(map_job, hazelcast_client, written_map, 0)
    map_job.run(1, 2)
    assert_exact(map_job, hazelcast_client, written_map, 0, 1, 2)
    assert staged.size() == 0


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S6.before_decision", marks=FULL),
        pytest.param("S6.after_decision", marks=FULL),
        pytest.param("S7.lanes_taken", marks=FULL),
        pytest.param("S7.in_chunk", marks=FULL),  # its locks live on for 15 seconds
        "S7.after_chunk",
        pytest.param("S7.applied", marks=FULL),
    ],
)
def test_a_driver_that_was_paused_changes_nothing_when_it_goes_on(
    map_job, written_map, staged, hazelcast_client, crash_points, point
) -> None:
    map_job.run(0)
    crash_points.arm(point, "stop")
    with driver(map_job, 1) as process:
        assert crash_points.wait_reached(point) == process.pid
        map_job.run(1, 2)
        assert_exact(map_job, hazelcast_client, written_map, 0, 1, 2)
        os.kill(process.pid, signal.SIGCONT)
        _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "Fenced" in said
    assert_exact(map_job, hazelcast_client, written_map, 0, 1, 2)
    assert staged.size() == 0


@pytest.mark.parametrize("point", ["S7.lanes_taken", pytest.param("S7.after_chunk", marks=FULL)])
def test_a_decided_batch_is_not_applied_to_another_map(
    map_job, written_map, staged, hazelcast_client, crash_points, point
) -> None:
    """Option `map` is changed between two starts: staged rows are found by the job's name."""
    map_job.run(0)
    kill_at(map_job, crash_points, point, 1)
    here, other = dict(map_job.given), new_map(hazelcast_client)
    map_job.given["map"] = other.name
    for accepted in ("true", "false"):
        map_job.given["failOnDataLoss"] = accepted
        with pytest.raises(LedgerError, match=f"waits for map '{written_map.name}'"):
            map_job.prepare(1)
    assert other.size() == 0
    map_job.given = here
    map_job.run(1, 2)
    assert_exact(map_job, hazelcast_client, written_map, 0, 1, 2)


def start_in(checkpoint: Path, map_job: MapJob) -> None:
    """What Spark has written when batch 0 starts."""
    map_job.given["checkpointlocation"] = str(checkpoint)
    (checkpoint / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    (checkpoint / "offsets").mkdir()
    (checkpoint / "offsets" / "0").touch()


@pytest.mark.parametrize("point", [pytest.param("S6.after_decision", marks=FULL), "S7.after_chunk"])
def test_a_decided_batch_that_was_passed_brings_no_old_entries_back(
    map_job, written_map, staged, crash_points, tmp_path, point
) -> None:
    """The query went on with `commit=idempotent`, and comes back to two phases."""
    start_in(tmp_path, map_job)
    map_job.run(0)
    kill_at(map_job, crash_points, point, 1)
    (tmp_path / "commits").mkdir()
    for batch in range(4):  # of these, idempotent puts wrote 1 to 3
        (tmp_path / "commits" / f"{batch}").touch()
    newer = dict.fromkeys(map_job.expected(0, 1), "newer")
    written_map.put_all(newer)
    before = dict(written_map.entry_set())
    for accepted in ("true", "false"):
        map_job.given["failOnDataLoss"] = accepted
        with pytest.raises(LedgerError, match=r"Batch 1 .* at batch 3: .* a new 'jobName'"):
            map_job.prepare(4)
    assert dict(written_map.entry_set()) == before
    map_job.given["jobName"] += "-new"
    map_job.run(4)
    expected = {**before, **map_job.entries(4, 0), **map_job.entries(4, 1)}
    assert dict(written_map.entry_set()) == {k: v for k, v in expected.items() if v is not None}


def test_a_batch_that_is_applied_and_not_done_any_more_is_no_such(
    map_job, written_map, staged, hazelcast_client, crash_points, tmp_path
) -> None:
    """Kafka lost the record that says so: nothing waits."""
    start_in(tmp_path, map_job)
    map_job.run(0)
    kill_at(map_job, crash_points, "S7.applied", 1)
    staged.clear()
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "1").touch()
    map_job.run(2)
    assert_exact(map_job, hazelcast_client, written_map, 0, 1, 2)


def test_what_nothing_decided_is_removed(map_job, written_map, staged, hazelcast_client) -> None:
    map_job.prepare(0)
    committer.abort(map_job.options, map_job.reports)
    assert staged.size() == 0
    map_job.prepare(0)  # and its driver dies
    left = set(staged.key_set())
    map_job.prepare(0, attempt=7)
    assert left.isdisjoint(staged.key_set())
    assert staged.size() == len(left) == 6
    staged.remove(next(iter(staged.key_set())))
    with pytest.raises(Undecided, match=r"rows of partitions \[[01]\] that were staged"):
        map_job.commit(0)
    assert written_map.size() == 0
    map_job.run(0)
    assert_exact(map_job, hazelcast_client, written_map, 0)


def test_a_driver_that_finds_a_chunk_gone_looks_who_has_taken_over(map_job) -> None:
    options, job = map_job.options, map_job.given["jobName"]
    old, new = (
        Lanes(Staging(options.staging, job), job, options.sink, at, 5, "d") for at in (5, 9)
    )
    old.take(0)
    new.take(0)
    removed = ChunkKey(options.sink, 5, 0, 0, 0, 0, 0)
    aheads = WriteAheads(Staging(options.staging, job), options.sink)
    aheads.write(0, 5, WriteAhead(5, 0, False, ()))  # late, by one who was paused before it
    with pytest.raises(Fenced):
        old.apply(0, 0, removed)
    assert aheads.read(0, 5) is None
    with pytest.raises(OutcomeUnknown, match="members were lost"):
        new.apply(0, 0, removed)


def test_who_reads_a_key_while_its_chunk_is_applied_waits_for_the_new_entry(
    map_job, written_map, hazelcast_client, crash_points
) -> None:
    map_job.run(0)
    crash_points.arm("S7.in_chunk", "wait")
    with driver(map_job, 1) as process:
        crash_points.wait_reached("S7.in_chunk")
        asked = [hazelcast_client.get_map(written_map.name).get(f"{part}-10") for part in (0, 1)]
        wait_until(lambda: any(one.done() for one in asked), "the other lane's chunk is applied")
        assert not all(one.done() for one in asked)
        crash_points.release("S7.in_chunk")
        assert process.wait(120) == 0
    assert [one.result() for one in asked].count("1") >= 1
    assert_exact(map_job, hazelcast_client, written_map, 0, 1)


@pytest.mark.parametrize("more", [{}, ADDING], ids=["replace", "merge"])
def test_tasks_with_the_same_keys_in_another_order_do_not_wait_for_each_other(
    grid, written_map, broker, more
) -> None:
    """Two lanes that lock the same entries in opposite orders would, until their locks expire."""
    job = job_of(grid, written_map, broker.bootstrap_servers, **more)
    options, target, _ = read_two_phase(job.given, COLUMNS)
    keys = [f"{number}" for number in range(CHUNK_ROWS)]
    waits = []
    for batch in range(3):
        plan = make_plan(options)
        job.reports = []
        for partition, order in enumerate((keys, keys[::-1])):
            columns = [pa.array(order), pa.array(["1"] * len(order))]
            rows = iter([pa.record_batch(columns, names=["key", "value"])])
            task = TaskIdentity(QUERY, batch, partition, partition)
            job.reports.append(map_two_phase.write(options, target, plan, task, rows))
        begun = time.monotonic()
        job.commit(batch)
        waits.append(time.monotonic() - begun)
    value = str(2 * 3) if more else "1"
    assert dict(written_map.entry_set()) == dict.fromkeys(keys, value)
    assert max(waits) < TRANSACTION_S


def test_what_another_ledger_decided_does_not_count_as_applied(
    map_job, written_map, hazelcast_client
) -> None:
    """The topics and the map are made anew for another trial, and nobody thinks of the markers."""
    make_plan(map_job.options)
    map_job.run(0)
    renew_the_ledger(map_job)
    written_map.clear()
    with pytest.raises(Fenced, match="ledger was deleted and is new: remove the keys"):
        map_job.run(0)
    assert written_map.size() == 0
    markers = hazelcast_client.get_map(MARKERS).blocking()
    for key in [key for key in markers.key_set() if key.startswith(f"{map_job.given['jobName']}/")]:
        markers.remove(key)
    map_job.run(1)
    assert dict(written_map.entry_set()) == map_job.expected(0, 1)


def renew_the_ledger(job) -> None:
    """Its topic is deleted and made again, and has the generation 1, as it had."""
    _, topic = job.options.job_and_ledger
    control = control_plane.shared(job.options.kafka)
    delete_topic(job.given["kafka.bootstrap.servers"], topic)
    wait_until(lambda: not control.topic_ids([topic]), "the topic is gone")
    preflight._checked.clear()
    preflight.ensure(job.options)
    wait_until(lambda: control.topic_ids([topic]), "the topic is there again")
    assert make_plan(job.options, by_hand=True).generation == 1
