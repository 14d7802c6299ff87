"""`commit=two-phase` into an IMap whose members went back: what is DONE is not there any more, and
the lanes' markers, which were lost with it, say so."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace

import pytest
from hazelcast.errors import HazelcastError

from eo_kafka.broker.hazelcast import HazelcastCluster
from eo_kafka.broker.hazelcast_settings import member_settings
from eo_kafka.clients.hazelcast.client import close_clients, connect
from eo_kafka.errors import LedgerError, OutcomeUnknown
from eo_kafka.sinks.maps import lanes as map_lanes
from eo_kafka.sinks.maps.applied import MARKERS, Done, Marker, marker_key
from eo_kafka.testing.processes import wait_until
from grid_fixtures import new_map, settings
from map_two_phase_job import ADDING, MapJob, job_of, kill_at

FULL = pytest.mark.full


class Cluster:
    """A map and its lanes' markers, as a split brain that heals sets them back."""

    def __init__(self, client, stored, job: MapJob) -> None:
        self._job, self._stored = job, stored
        self._markers = client.get_map(MARKERS).blocking()
        self._entries: dict[str, str] = {}
        self._said: dict[str, str] = {}

    def key(self, lane: int) -> str:
        return marker_key(self._job.given["jobName"], self._job.options.sink, lane)

    @property
    def markers(self) -> dict[str, str]:
        return {
            key: found for lane in range(4) if (found := self._markers.get(key := self.key(lane)))
        }

    def marker(self, lane: int) -> Marker:
        return Marker.decode(self._markers.get(self.key(lane)))

    def put_marker(self, lane: int, marker: Marker | None) -> None:
        self._markers.delete(self.key(lane))
        if marker is not None:
            self._markers.set(self.key(lane), marker.encode())

    def split(self) -> None:
        """From here on only one side has what is written."""
        self._entries, self._said = dict(self._stored.entry_set()), self.markers

    def heal(self) -> None:
        """The other side's entries stay."""
        self._stored.clear()
        self._stored.put_all(self._entries)
        for key in self.markers:
            self._markers.delete(key)
        for key, said in self._said.items():
            self._markers.set(key, said)


@pytest.fixture
def cluster(hazelcast_client, written_map, map_job) -> Cluster:
    return Cluster(hazelcast_client, written_map, map_job)


@pytest.mark.smoke
@pytest.mark.parametrize("merging", [False, True])
def test_a_split_brain_that_heals_stops_the_query(
    grid, hazelcast_client, written_map, broker, merging
) -> None:
    more = ADDING if merging else {}
    job = job_of(grid, written_map, broker.bootstrap_servers, **more)
    cluster = Cluster(hazelcast_client, written_map, job)
    job.run(0, 1)
    cluster.split()
    job.run(2, 3)
    cluster.heal()
    before = dict(written_map.entry_set())
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"Batches 2 to 3: entries may be missing") as told:
            job.prepare(4)
        way = "empty it, and write everything" if merging else "file 'offsets/1' of the old"
        assert way in str(told.value)
    assert dict(written_map.entry_set()) == before
    job.given["failOnDataLoss"] = "false"
    job.run(4)
    del job.given["failOnDataLoss"]
    job.run(5)
    expected = job.sums(0, 1, 4, 5) if merging else job.expected(0, 1, 4, 5)
    assert dict(written_map.entry_set()) == expected


def test_one_that_heals_while_a_batch_runs_is_found_before_it_is_applied(
    map_job, written_map, cluster
) -> None:
    map_job.run(0)
    cluster.split()
    map_job.run(1)
    map_job.prepare(2)
    cluster.heal()
    with pytest.raises(LedgerError, match="Batch 1: entries may be missing, or be older"):
        map_job.commit(2)
    assert dict(written_map.entry_set()) == map_job.expected(0)
    with pytest.raises(LedgerError, match="Batch 1: entries may be missing, or be older"):
        map_job.prepare(2)
    map_job.given["failOnDataLoss"] = "false"
    map_job.prepare(2)
    assert dict(written_map.entry_set()) == map_job.expected(0, 2)


def test_one_that_heals_under_a_batch_without_the_lanes_of_the_last_is_found(
    map_job, written_map, cluster
) -> None:
    map_job.run(0)
    cluster.split()
    map_job.run(1)
    map_job.prepare(2)
    map_job.reports = map_job.reports[:1]  # rows in lane 0 alone
    kept = cluster.marker(0)
    cluster.heal()
    cluster.put_marker(0, kept)
    with pytest.raises(LedgerError, match=f"'{cluster.key(1)}' is at generation"):
        map_job.commit(2)


@pytest.mark.parametrize("chunks", [0, 1, 2])
def test_one_that_began_in_the_middle_of_a_batch_is_found(map_job, cluster, chunks) -> None:
    map_job.run(0, 1)
    whole = cluster.marker(1)
    assert whole.done == 3
    cluster.put_marker(1, replace(whole, done=chunks))
    with pytest.raises(LedgerError, match="Batch 1: entries may be missing") as told:
        map_job.prepare(2)
    assert f"/1' is at chunk {chunks} of generation 2, and was at 3. A" in str(told.value)


def run_in(job: MapJob, batch: int, partition: int) -> None:
    """A batch with rows in one lane alone."""
    job.prepare(batch)
    job.reports = [job.reports[partition]]
    job.commit(batch)


@pytest.mark.parametrize("prepared", [False, True])
def test_lanes_that_the_newest_batch_does_not_use_are_looked_at(map_job, cluster, prepared) -> None:
    map_job.run(0)
    cluster.split()
    run_in(map_job, 1, 1)
    run_in(map_job, 2, 0)
    if prepared:
        map_job.prepare(3)
    cluster.heal()
    with pytest.raises(LedgerError, match=r"Batches 1 to 2: .* \(file 'offsets/0'"):
        map_job.commit(3) if prepared else map_job.prepare(3)


def test_a_loss_that_is_accepted_is_told_no_more_in_lanes_that_no_batch_uses(
    map_job, cluster
) -> None:
    map_job.run(0)
    cluster.split()
    run_in(map_job, 1, 1)
    run_in(map_job, 2, 0)
    cluster.heal()
    map_job.given["failOnDataLoss"] = "false"
    run_in(map_job, 3, 0)
    del map_job.given["failOnDataLoss"]
    run_in(map_job, 4, 0)
    run_in(map_job, 5, 1)


def test_a_marker_that_is_gone_of_a_lane_that_the_newest_batch_does_not_use(
    map_job, cluster
) -> None:
    map_job.run(0)
    run_in(map_job, 1, 1)
    run_in(map_job, 2, 0)
    cluster.put_marker(1, None)
    with pytest.raises(LedgerError, match=r"Batches 0 to 1 and perhaps older ones") as told:
        map_job.prepare(3)
    assert "empty it, and write everything again" in str(told.value)


def test_the_map_that_was_written_is_named(map_job, written_map, cluster) -> None:
    map_job.run(0)
    cluster.split()
    map_job.run(1)
    cluster.heal()
    map_job.given["map"] = "another"
    with pytest.raises(LedgerError, match=f"^Map '{written_map.name}' of .* has lost"):
        map_job.prepare(2)


def test_a_member_that_is_away_when_other_lanes_are_asked_is_waited_for(
    map_job, monkeypatch
) -> None:
    map_job.run(0)
    map_job.prepare(1)
    check, away = Done.check_all, [True]

    def at_first_away(self, but=()):
        if away.pop() if away else False:
            raise HazelcastError("split-brain protection")
        return check(self, but)

    monkeypatch.setattr(Done, "check_all", at_first_away)
    map_job.commit(1)
    assert not away


def test_markers_that_are_gone_are_found(map_job, cluster) -> None:
    map_job.run(0, 1)
    cluster.put_marker(0, None)
    with pytest.raises(
        LedgerError, match=r"/0' is missing\. .* Batches 0 to 1 and perhaps older ones: entries"
    ):
        map_job.prepare(2)


def test_a_lane_that_goes_back_between_its_chunks_stops_the_query(
    map_job, written_map, cluster, monkeypatch
) -> None:
    """The driver goes on where it was, and chunks before that are not in the map any more."""
    map_job.run(0)
    apply = map_lanes.Lanes.apply

    def after_healing(self, lane, number, key) -> None:
        if (lane, number) == (0, 2):
            cluster.put_marker(0, replace(cluster.marker(0), done=1))
        apply(self, lane, number, key)

    with monkeypatch.context() as patched:
        patched.setattr(map_lanes.Lanes, "apply", after_healing)
        with pytest.raises(OutcomeUnknown, match="a split brain has healed"):
            map_job.run(1)
    map_job.run(1, 2)
    assert dict(written_map.entry_set()) == map_job.expected(0, 1, 2)


def test_batches_that_need_fewer_lanes_or_none_are_no_loss(
    map_job, written_map, cluster, crash_points
) -> None:
    map_job.run(0)
    map_job.prepare(1)
    map_job.reports = map_job.reports[:1]
    map_job.commit(1)
    kill_at(map_job, crash_points, "S6.after_decision", 2)  # markers of batches 0 and 1
    crash_points.clear()
    map_job.run(2)
    kill_at(map_job, crash_points, "S7.applied", 3)
    crash_points.clear()
    map_job.run(3)
    rows, map_job.rows_of_task = map_job.rows_of_task, 0
    entries, map_job.entries = map_job.entries, lambda batch, partition: {}
    map_job.run(4, 5)
    map_job.rows_of_task, map_job.entries = rows, entries
    map_job.run(6)
    assert dict(written_map.entry_set()) == map_job.expected(0, 2, 3, 6)


@FULL
@pytest.mark.parametrize("merging", [False, True])
def test_a_real_split_brain_that_heals_stops_the_query(broker, merging) -> None:
    """One of two members goes on alone while the other stands still, and that one without it, with
    a third. Members drop the smaller side's entries, here what the job wrote."""
    seconds = {"max.no.heartbeat": 5, "heartbeat.interval": 1, "merge.next.run.delay": 2}
    delays = {**seconds, "merge.first.run.delay": 20}
    properties = json.loads(member_settings(0, (), {}))["hazelcast"]["properties"]
    properties |= {f"hazelcast.{name}.seconds": str(one) for name, one in delays.items()}
    maps = {name: {"backup-count": 2} for name in ("__eo_kafka.*", "j*")}  # each has all of it
    with HazelcastCluster(3, maps, settings={"properties": properties}) as grid:
        alone, other, third = grid.members
        third.kill()
        of_one = {"hazelcast.members": alone.address, "hazelcast.smart.routing": "false"}
        client = connect(settings(grid, **of_one))
        stored = new_map(client)
        more = ADDING if merging else {}
        job = job_of(grid, stored, broker.bootstrap_servers, **{**more, **of_one})

        def sees(client, count: int) -> bool:
            return len(client.cluster_service.get_members()) == count

        wait_until(lambda: sees(client, 2), "the third is gone")
        job.run(0, 1)
        os.kill(other.pid, signal.SIGSTOP)
        wait_until(lambda: sees(client, 1), "it goes on alone", 60)
        job.run(2, 3)
        expected = job.sums if merging else job.expected
        assert dict(stored.entry_set()) == expected(0, 1, 2, 3)
        client.shutdown()
        close_clients()  # of the job: its member is about to begin anew
        os.kill(alone.pid, signal.SIGSTOP)
        os.kill(other.pid, signal.SIGCONT)
        there = connect(settings(grid, **{**of_one, "hazelcast.members": other.address}))
        wait_until(lambda: sees(there, 1), "so does that one")
        third.launch()
        wait_until(lambda: sees(there, 2), "with a third", 120)
        os.kill(alone.pid, signal.SIGCONT)
        wait_until(lambda: sees(there, 3), "they are one again", 90)
        found = there.get_map(stored.name).blocking()
        wait_until(lambda: dict(found.entry_set()) == expected(0, 1), "their entries stay", 30)
        with pytest.raises(LedgerError, match="Batches 2 to 3: entries may be missing"):
            job.prepare(4)
        there.shutdown()
        close_clients()
