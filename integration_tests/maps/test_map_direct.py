"""The direct lane into maps: IMaps by decision and by puts, and maps that are topics."""

from __future__ import annotations

from collections import Counter

import pytest

from harness import committed, kill_driver_at
from lane_copies import VALUES, LaneCopy, assert_done, die_twice, lane_copy
from map_backends import COMPACTED
from map_two_phase_job import journal_of

FULL = pytest.mark.full
ENTRIES = {value.decode(): value.decode() for value in VALUES}
PLACES = (
    *("S6.before_decision", "S6.after_decision", "S7.in_chunk", "S7.after_chunk", "S7.applied"),
    "S8.after_done",
)


def into_imap(grid, written_map, **more: str) -> dict[str, str]:
    members = ",".join(grid.addresses)
    return {"backend": "hazelcast", "map": written_map.name, "hazelcast.members": members, **more}


@pytest.fixture
def copy(grid, written_map, broker, make_topic, tmp_path) -> LaneCopy:
    into = into_imap(grid, written_map, commit="two-phase")
    found = lane_copy(broker, make_topic, tmp_path, into)
    found.schema = "key STRING, value STRING"
    return found


def assert_each_is_put_once(copy, written_map, client) -> None:
    """By the map's journal, in which an entry that is put twice is there twice."""
    assert dict(written_map.entry_set()) == ENTRIES
    put = journal_of(client, written_map)
    assert_done(copy, Counter({key.encode(): times for (key, _), times in put.items()}))


def test_a_task_that_dies_puts_each_entry_once(
    copy, written_map, hazelcast_client, spark, crash_points
) -> None:
    crash_points.arm("map.while_staging", "kill")
    copy.run(spark)
    assert crash_points.reached("map.while_staging")
    assert_each_is_put_once(copy, written_map, hazelcast_client)


@FULL
@pytest.mark.parametrize("place", PLACES)
def test_a_task_that_dies_and_a_driver_that_dies_put_each_entry_once(
    copy, written_map, hazelcast_client, spark, crash_points, tmp_path, place
) -> None:
    die_twice(copy, crash_points, "map.while_staging", place, tmp_path / "log")
    copy.run(spark)
    assert_each_is_put_once(copy, written_map, hazelcast_client)


@FULL
def test_puts_as_they_come_leave_the_same_map(
    copy, grid, written_map, spark, crash_points, tmp_path
) -> None:
    copy.into = into_imap(grid, written_map)
    crash_points.arm("map.after_put", "kill")
    kill_driver_at(copy, crash_points, "map.committed", tmp_path / "log")
    copy.run(spark)
    assert dict(written_map.entry_set()) == ENTRIES


@FULL
def test_a_map_that_is_a_topic_gets_each_entry_once(
    spark, broker, make_topic, crash_points, tmp_path
) -> None:
    topic = make_topic("map", 2, COMPACTED)
    into = {"backend": "kafka", "map": topic}
    copy = lane_copy(broker, make_topic, tmp_path, into)
    die_twice(copy, crash_points, "S3.while_writing", "S7.after_first_end_txn", tmp_path / "log")
    copy.run(spark)
    assert_done(copy, committed(copy.servers, topic))
