"""`format("eo-map")` as a stream: every event of the journal once, whatever is killed."""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from dataclasses import dataclass

import pytest
from hazelcast.core import HazelcastJsonValue

from eo_kafka.hazelcast_client import connect
from grid_fixtures import new_map, settings
from harness import Copy, assert_exactly_once, kill_driver_at, wait_until

COLUMNS = ["event", "key", "value", "old_value", "partition", "sequence"]


def options_of(grid, stored, **more: str) -> dict[str, str]:
    return {
        "backend": "hazelcast",
        "map": stored.name,
        "hazelcast.members": ",".join(grid.addresses),
        **more,
    }


def run(spark, grid, stored, checkpoint, **more: str) -> list[list]:
    """Read what there is, as batches of rows."""
    batches: list[list] = []
    query = (
        spark.readStream.format("eo-map")
        .options(**options_of(grid, stored, **more))
        .load()
        .writeStream.foreachBatch(lambda rows, _: batches.append(rows.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return batches


def all_of(batches: list[list]) -> list:
    return [row for batch in batches for row in batch]


def test_every_kind_of_event_comes_once_and_a_restart_reads_what_is_new(
    spark, grid, hazelcast_client, tmp_path
) -> None:
    stored = new_map(hazelcast_client)
    at = hazelcast_client.partition_service.get_partition_id("k")
    stored.put("k", "one")
    stored.put("k", HazelcastJsonValue('{"n": 2}'))
    stored.remove("k")
    stored.put("k", 3)
    stored.evict("k")
    found = all_of(run(spark, grid, stored, tmp_path))
    assert all(list(row.asDict()) == COLUMNS for row in found)
    assert sorted(found, key=lambda row: row.sequence) == [
        ("ADDED", "k", "one", None, at, 0),
        ("UPDATED", "k", '{"n": 2}', "one", at, 1),
        ("REMOVED", "k", None, '{"n": 2}', at, 2),
        ("ADDED", "k", "3", None, at, 3),
        ("EVICTED", "k", None, "3", at, 4),
    ]
    stored.put_all({number: f"v{number}" for number in range(500)})
    found = all_of(run(spark, grid, stored, tmp_path))
    assert Counter((row.event, row.key, row.value) for row in found) == Counter(
        ("ADDED", str(number), f"v{number}") for number in range(500)
    )
    assert all_of(run(spark, grid, stored, tmp_path)) == []


def test_a_batch_has_about_as_many_events_as_asked_for(
    spark, grid, hazelcast_client, tmp_path
) -> None:
    stored = new_map(hazelcast_client)
    stored.put_all({number: f"v{number}" for number in range(6000)})
    batches = run(spark, grid, stored, tmp_path, maxEventsPerTrigger="2000", fetchSize="3")
    sizes = [len(batch) for batch in batches if batch]
    # partitions' shares are rounded; of 271 partitions none may starve
    assert len(sizes) >= 3
    assert all(size <= 2000 + 271 for size in sizes)
    assert Counter(row.value for row in all_of(batches)) == Counter(f"v{n}" for n in range(6000))


def test_current_starts_with_what_is_written_after_the_first_start(
    spark, grid, hazelcast_client, tmp_path
) -> None:
    stored = new_map(hazelcast_client)
    stored.put_all(dict.fromkeys(range(100), "before"))
    assert all_of(run(spark, grid, stored, tmp_path, startingSequence="current")) == []
    stored.put_all(dict.fromkeys(range(100), "after"))
    found = all_of(run(spark, grid, stored, tmp_path, startingSequence="current"))
    assert Counter((row.event, row.value) for row in found) == {("UPDATED", "after"): 100}


def test_a_query_that_lost_events_stops_with_the_sentence_and_goes_on_if_told_to(
    spark, grid, hazelcast_client, tmp_path
) -> None:
    stored = new_map(hazelcast_client)
    for number in range(3):
        stored.put("k", f"{number}")
    assert len(all_of(run(spark, grid, stored, tmp_path))) == 3
    stored.destroy()
    stored.put("k", "new life")
    with pytest.raises(Exception, match="read up to sequence 2, now ends with 0"):
        run(spark, grid, stored, tmp_path)
    found = all_of(run(spark, grid, stored, tmp_path, failOnDataLoss="false"))
    assert [row.value for row in found] == ["new life"]
    other = new_map(hazelcast_client)
    with pytest.raises(Exception, match=f"is of a stream of map '{stored.name}'"):
        run(spark, grid, other, tmp_path)


@dataclass
class MapCopy(Copy):
    """A copy of a map's events to a topic."""

    map_options: dict[str, str] | None = None

    def as_job(self) -> dict[str, object]:
        return {
            **super().as_job(),
            "source": "eo-map",
            "source_options": {**(self.map_options or {}), **self.source_extra},
        }


@pytest.fixture
def job(broker, make_topic, tmp_path, grid, hazelcast_client):
    return map_copy(broker, make_topic, tmp_path, grid, new_map(hazelcast_client))


def map_copy(broker, make_topic, tmp_path, grid, stored) -> MapCopy:
    made = MapCopy(
        servers=broker.bootstrap_servers,
        source_topic="none",
        sink_topic=make_topic("out", partitions=2),
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{uuid.uuid4().hex[:6]}",
        map_options=options_of(grid, stored, maxEventsPerTrigger="500"),
    )
    made.stored = stored
    return made


def write(stored, first: int, count: int) -> list[bytes]:
    """Entries whose values are their own numbers, so that each event is told from all others."""
    numbers = range(first, first + count)
    stored.put_all({f"key {number % 300}": f"{number}" for number in numbers})
    return sorted(  # of numbers with the same key, put_all writes one
        str(number).encode() for number in {n % 300: n for n in numbers}.values()
    )


@pytest.mark.full
@pytest.mark.parametrize(
    "point",
    [
        "source.after_initial_resolution",
        "source.before_partitions",
        "source.while_reading_map",
        "S6.before_decision",
        "S6.after_decision",
        "S8.after_done",
    ],
)
def test_a_driver_that_is_killed_starts_again_and_loses_and_repeats_nothing(
    job, spark, crash_points, tmp_path, point
) -> None:
    values = write(job.stored, 0, 300)
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    values += write(job.stored, 300, 300)
    job.run(spark)
    assert_exactly_once(job, values)


def test_a_task_that_is_killed_while_it_reads_is_retried_and_repeats_nothing(
    job, spark, crash_points
) -> None:
    values = write(job.stored, 0, 300)
    crash_points.arm("source.while_reading_map", "kill")
    job.run(spark)
    assert crash_points.reached("source.while_reading_map")
    assert_exactly_once(job, values)


@pytest.mark.full
def test_a_member_that_is_killed_while_it_is_read_loses_and_repeats_nothing(
    broker, make_topic, spark, crash_points, tmp_path, mortal_grid
) -> None:
    grid = mortal_grid
    client = connect(settings(grid))
    stored = new_map(client)
    values = [value for lot in range(10) for value in write(stored, 300 * lot, 300)]
    job = map_copy(broker, make_topic, tmp_path, grid, stored)
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
