"""What is lost of a map's journal is found, never passed over: the same at planning and reading."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from eo_kafka.clients.hazelcast import internals
from eo_kafka.clients.hazelcast.client import client as shared_client
from eo_kafka.clients.hazelcast.client import close_clients, connect
from eo_kafka.errors import DataLossError, EnvironmentRefused
from eo_kafka.sources.maps.options import MapOptions
from eo_kafka.sources.maps.planner import MapPlanner
from eo_kafka.sources.maps.position import MapPosition, ranges
from eo_kafka.sources.maps.reader import read_journal, tasks
from eo_kafka.testing.processes import wait_until
from grid_fixtures import members, new_map, settings


class Query:
    """A stream without Spark: the planner and the reader, and what Spark's log would hold."""

    def __init__(self, grid, stored, **more: str) -> None:
        given = {"backend": "hazelcast", "map": stored.name, **more}
        given["hazelcast.members"] = ",".join(grid.addresses)
        self.options = MapOptions.parse(given, streaming=True)
        self.at: MapPosition | None = None

    def plan(self) -> MapPosition:
        return MapPlanner(self.options).end(self.at, self.options.max_events, now=False)

    def read(self, end: MapPosition) -> list[str]:
        """The new values of the events."""
        found = []
        for task in tasks(end.cluster, ranges(self.at, end), 3):
            for batch in read_journal(self.options, task):
                found += filter(None, batch.column("value").to_pylist())
        return sorted(found)

    def batch(self) -> list[str]:
        """Plan, read and commit one."""
        end = self.plan()
        found = self.read(end)
        self.at = MapPosition.decode(end.encode())
        return found

    def forgiving(self) -> Query:
        self.options = replace(self.options, fail_on_data_loss=False)
        return self


@pytest.fixture
def started(grid, hazelcast_client):
    """A query that has read five events of one key, and the map."""

    def start(kind: str = "j", **more: str):
        stored = new_map(hazelcast_client, kind)
        return start_query(grid, stored, **more), stored

    return start


def start_query(grid, stored, **more: str) -> Query:
    query = Query(grid, stored, **more)
    assert query.batch() == []  # it fixes where the query starts
    for number in range(5):
        stored.put("k", f"{number}")
    assert query.batch() == ["0", "1", "2", "3", "4"]
    return query


def test_a_batch_is_the_same_when_it_is_read_again(started) -> None:
    query, stored = started()
    stored.put("k", "5")
    end = query.plan()
    stored.put("k", "6")
    assert query.read(end) == query.read(end) == ["5"]
    query.at = end
    assert query.batch() == ["6"]


def test_overwritten_events_are_named(started, caplog) -> None:
    query, stored = started("small")
    for number in range(5, 21):
        stored.put("k", f"{number}")
    with pytest.raises(DataLossError) as loss:
        query.plan()
    at = shared_client(query.options.hazelcast).partition_service.get_partition_id("k")
    assert stored.name in str(loss.value)
    assert f"partition {at}: sequences 5 to 10" in str(loss.value)
    assert "'failOnDataLoss' to false" in str(loss.value)
    with caplog.at_level(logging.WARNING):
        assert query.forgiving().batch() == sorted(f"{number}" for number in range(11, 21))
    assert f"partition {at}: sequences 5 to 10" in caplog.text


def test_events_overwritten_between_plan_and_read_are_named(started, caplog) -> None:
    query, stored = started("small")
    stored.put("k", "5")
    end = query.plan()
    for number in range(6, 17):
        stored.put("k", f"{number}")
    with pytest.raises(DataLossError, match=r"from sequence 5 to 6: sequence 4 is not in the"):
        query.read(end)
    with caplog.at_level(logging.WARNING):
        assert query.forgiving().read(end) == []
    assert "holds sequences 7 to 16" in caplog.text


def test_a_journal_that_is_full_to_the_position_shows_nothing_and_stops(started) -> None:
    """The event before the position is overwritten, and no other: it may be another journal."""
    query, stored = started("small")
    for number in range(5, 15):
        stored.put("k", f"{number}")
    end = query.plan()
    with pytest.raises(DataLossError, match="nothing shows that this is still the journal"):
        query.read(end)
    assert len(query.forgiving().read(end)) == 10


def test_a_journal_whose_events_expired_up_to_the_position_shows_nothing_and_stops(
    started, hazelcast_client
) -> None:
    query, stored = started("brief")
    at = hazelcast_client.partition_service.get_partition_id("k")

    def held() -> list[bytes]:
        return internals.read_journal(hazelcast_client, stored.name, at, 0, 10).result().items

    wait_until(lambda: not held(), "the events have outlived the journal's time-to-live")
    assert query.batch() == [], "nothing new, nothing to show"
    stored.put("k", "5")
    end = query.plan()
    with pytest.raises(DataLossError, match="nothing shows that this is still the journal"):
        query.read(end)


def test_a_destroyed_map_is_found_while_it_is_shorter(started) -> None:
    query, stored = started()
    stored.destroy()
    stored.put("k", "new life")
    with pytest.raises(DataLossError, match="read up to sequence 4, now ends with 0"):
        query.plan()
    assert query.forgiving().batch() == ["new life"]
    stored.put("k", "and on")
    assert query.batch() == ["and on"]


def test_a_destroyed_map_is_found_when_it_is_longer_again(started, caplog) -> None:
    query, stored = started()
    stored.destroy()
    for number in range(8):
        stored.put("k", f"new {number}")
    end = query.plan()
    with pytest.raises(DataLossError, match="sequence 4 is no longer the same event"):
        query.read(end)
    with caplog.at_level(logging.WARNING):
        assert query.forgiving().read(end) == ["new 5", "new 6", "new 7"]
    assert "sequence 4 is no longer the same event" in caplog.text


def test_a_map_destroyed_between_plan_and_read_is_found(started) -> None:
    query, stored = started()
    stored.put("k", "5")
    end = query.plan()
    stored.destroy()
    for number in range(5):  # the same again up to the position, so that only the end tells
        stored.put("k", f"{number}")
    with pytest.raises(DataLossError, match=r"from sequence 5 to 6: sequence 5 is not in the"):
        query.read(end)
    stored.put("k", "another")
    with pytest.raises(DataLossError, match="sequence 5 is no longer the same event"):
        query.read(end)


def test_a_map_without_a_journal_is_refused_with_the_setting_that_is_missing(
    grid, hazelcast_client
) -> None:
    query = Query(grid, new_map(hazelcast_client, "plain"))
    with pytest.raises(EnvironmentRefused, match="event-journal: {enabled: true, capacity: N}"):
        query.plan()


def test_a_cluster_that_was_restarted_is_found_before_and_after_it_is_longer_again(
    mortal_grid,
) -> None:
    grid = mortal_grid
    client = connect(settings(grid))
    stored = new_map(client)
    query = start_query(grid, stored)
    stored.put("k", "5")
    end = query.plan()
    grid.restart()
    for number in range(9):
        stored.put("k", f"{number}")  # the same events, and more
    for act in (query.plan, lambda: query.read(end)):
        with pytest.raises(DataLossError, match="all its members were restarted"):
            act()
    assert query.forgiving().read(end) == [], "a batch planned before has nothing of the new one"
    assert query.batch() == sorted(f"{number}" for number in range(9))
    client.shutdown()


def test_a_fail_over_that_loses_the_only_copies_is_found(mortal_grid) -> None:
    """Without backups, a killed member takes its partitions' journals with it."""
    grid = mortal_grid
    client = connect(settings(grid))
    stored = new_map(client, "alone")
    victim = grid.members[0]
    service = client.partition_service
    query = Query(grid, stored)
    assert query.batch() == []

    def keys_of_victim() -> list[str]:
        ports = {one.uuid: one.address.port for one in client.cluster_service.get_members()}
        keys = {f"k{n}": service.get_partition_id(f"k{n}") for n in range(100)}
        owned = {key: service.get_partition_owner(at) for key, at in keys.items()}
        return [key for key, owner in owned.items() if ports.get(owner) == victim.port]

    # One that has just come back is given its partitions a moment later
    wait_until(keys_of_victim, "the member that will die owns partitions")
    key = keys_of_victim()[0]
    stored.put_all({key: "read"})
    assert query.batch() == ["read"]
    cluster = internals.cluster_id(client)
    victim.kill()
    with pytest.raises(DataLossError, match="members died that had the only copies"):
        query.plan()
    assert internals.cluster_id(client) == cluster, "it is still the same cluster"
    client.shutdown()


@pytest.mark.parametrize("leave", ["kill", "stop"])
def test_a_fail_over_of_a_map_whose_entries_expire_is_told_as_that(
    monkeypatch, caplog, leave
) -> None:
    """Replicas write expiries into their journals when they make them: nothing was lost, but the
    other journal is not the one that was read."""
    # What has expired is told to the copies in one go, and here by no timer
    later = "-Dhazelcast.internal.map.expiration.task.period.seconds=3600"
    monkeypatch.setenv("JDK_JAVA_OPTIONS", later)
    with members(2) as grid:
        client = connect(settings(grid))
        stored = new_map(client)
        query = Query(grid, stored)
        assert query.batch() == []
        keys = [f"k{number}" for number in range(300)]
        for key in keys:
            stored.put(key, f"v of {key}", ttl=1)
        wait_until(lambda: not any(map(stored.get, keys)), "all have expired")
        read = query.batch()
        assert sorted(read) == sorted(f"v of {key}" for key in keys)
        getattr(grid.members[0], leave)()
        told = "is shorter than what was read.* a member left.* entries expired"
        with pytest.raises(DataLossError, match=told):
            query.plan()
        with caplog.at_level(logging.WARNING):
            again = query.forgiving().batch()
        assert again, "what the warning says"
        assert set(again) < set(read)
        assert "may give events again" in caplog.text
        client.shutdown()
        close_clients()
