"""`format("eo-map")` as a stream of an IMap: what only its journal has. The rest is in
test_map_backends.py."""

from __future__ import annotations

import os
import signal

import pytest
from hazelcast.core import HazelcastJsonValue

from eo_kafka.clients.hazelcast.client import connect
from grid_fixtures import new_map, settings
from harness import assert_exactly_once, wait_until
from map_backends import all_of, map_copy, run, write


def options_of(grid, stored, **more: str) -> dict[str, str]:
    return {
        "backend": "hazelcast",
        "map": stored.name,
        "hazelcast.members": ",".join(grid.addresses),
        **more,
    }


def test_every_kind_of_event(spark, grid, hazelcast_client, tmp_path) -> None:
    stored = new_map(hazelcast_client)
    at = hazelcast_client.partition_service.get_partition_id("k")
    stored.put("k", "one")
    stored.put("k", HazelcastJsonValue('{"n": 2}'))
    stored.remove("k")
    stored.put("k", 3)
    stored.evict("k")
    found = all_of(run(spark, options_of(grid, stored), tmp_path))
    assert sorted(found, key=lambda row: row.sequence) == [
        ("ADDED", "k", "one", None, at, 0),
        ("UPDATED", "k", '{"n": 2}', "one", at, 1),
        ("REMOVED", "k", None, '{"n": 2}', at, 2),
        ("ADDED", "k", "3", None, at, 3),
        ("EVICTED", "k", None, "3", at, 4),
    ]


@pytest.mark.full
def test_a_query_that_lost_events_stops_with_the_sentence_and_goes_on_if_told_to(
    spark, grid, hazelcast_client, tmp_path
) -> None:
    stored = new_map(hazelcast_client)
    for number in range(3):
        stored.put("k", f"{number}")
    assert len(all_of(run(spark, options_of(grid, stored), tmp_path))) == 3
    stored.destroy()
    stored.put("k", "new life")
    with pytest.raises(Exception, match="read up to sequence 2, now ends with 0"):
        run(spark, options_of(grid, stored), tmp_path)
    found = all_of(run(spark, options_of(grid, stored, failOnDataLoss="false"), tmp_path))
    assert [row.value for row in found] == ["new life"]


@pytest.mark.full
def test_a_member_that_is_killed_while_it_is_read_loses_and_repeats_nothing(
    broker, make_topic, spark, crash_points, tmp_path, mortal_grid
) -> None:
    grid = mortal_grid
    client = connect(settings(grid))
    stored = new_map(client)
    values = [value for lot in range(10) for value in write(stored, 300 * lot, 300)]
    job = map_copy(broker, make_topic, tmp_path, options_of(grid, stored))
    crash_points.arm("source.while_reading_map", "wait")
    with job.running(spark) as query:
        crash_points.wait_reached("source.while_reading_map")
        os.kill(grid.members[0].pid, signal.SIGKILL)
        wait_until(lambda: not grid.members[0].running, "the member is gone")
        crash_points.release("source.while_reading_map")
        assert query.awaitTermination(180)
    values += write(stored, 3000, 300)
    job.run(spark)
    assert_exactly_once(job, values)
    client.shutdown()
