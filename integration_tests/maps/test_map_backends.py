"""`format("eo-map")` on both backends: every event once, whatever is killed; all entries once."""

from __future__ import annotations

from collections import Counter

import pytest

from harness import assert_exactly_once, kill_driver_at
from map_backends import ADDED, KAFKA_IN_FULL, all_of, map_copy, run, write

COLUMNS = ["event", "key", "value", "old_value", "partition", "sequence"]


def test_every_change_comes_once_and_a_restart_reads_what_is_new(spark, a_map, tmp_path) -> None:
    added = ADDED[a_map.backend]
    a_map.put_all({"k": "one"})
    a_map.put_all({"k": "two"})
    a_map.remove("k")
    found = all_of(run(spark, a_map.options(), tmp_path))
    assert all(list(row.asDict()) == COLUMNS for row in found)
    found = sorted(found, key=lambda row: row.sequence)
    assert [(row.event, row.key, row.value, row.sequence) for row in found] == [
        (added, "k", "one", 0),
        ("UPDATED", "k", "two", 1),
        ("REMOVED", "k", None, 2),
    ]
    known = a_map.backend == "hazelcast"
    assert [row.old_value for row in found] == ([None, "one", "two"] if known else [None] * 3)
    a_map.put_all({f"{number}": f"v{number}" for number in range(500)})
    found = all_of(run(spark, a_map.options(), tmp_path))
    assert Counter((row.event, row.key, row.value) for row in found) == Counter(
        (added, str(number), f"v{number}") for number in range(500)
    )
    assert all_of(run(spark, a_map.options(), tmp_path)) == []


@KAFKA_IN_FULL
def test_a_batch_has_about_as_many_events_as_asked_for(spark, a_map, tmp_path) -> None:
    a_map.put_all({f"{number}": f"v{number}" for number in range(6000)})
    batches = run(spark, a_map.options(maxEventsPerTrigger="2000"), tmp_path)
    sizes = [len(batch) for batch in batches if batch]
    # partitions' shares are rounded; of Hazelcast's 271 none may starve
    assert len(sizes) >= 3
    assert all(size <= 2000 + 271 for size in sizes)
    assert Counter(row.value for row in all_of(batches)) == Counter(f"v{n}" for n in range(6000))


def test_current_starts_with_what_is_written_after_the_first_start(spark, a_map, tmp_path) -> None:
    source = a_map.options(startingSequence="current")
    a_map.put_all(dict.fromkeys(map(str, range(100)), "before"))
    assert all_of(run(spark, source, tmp_path)) == []
    a_map.put_all(dict.fromkeys(map(str, range(100)), "after"))
    found = all_of(run(spark, source, tmp_path))
    assert Counter((row.event, row.value) for row in found) == {("UPDATED", "after"): 100}


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
    a_map, broker, make_topic, spark, crash_points, tmp_path, point
) -> None:
    job = map_copy(broker, make_topic, tmp_path, a_map.options())
    values = write(a_map, 0, 300)
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    values += write(a_map, 300, 300)
    job.run(spark)
    assert_exactly_once(job, values)


@pytest.mark.full
def test_a_task_that_is_killed_while_it_reads_is_retried_and_repeats_nothing(
    a_map, broker, make_topic, spark, crash_points, tmp_path
) -> None:
    job = map_copy(broker, make_topic, tmp_path, a_map.options())
    values = write(a_map, 0, 300)
    crash_points.arm("source.while_reading_map", "kill")
    job.run(spark)
    assert crash_points.reached("source.while_reading_map")
    assert_exactly_once(job, values)


def test_a_batch_has_each_entry_once(spark, a_map) -> None:
    a_map.put_all({f"{number}": "old" for number in range(3000)})
    a_map.put_all({f"{number}": f'{{"n": {number}}}' for number in range(1000, 3000)})
    for number in range(2500, 3000):
        a_map.remove(f"{number}")
    expected = Counter({(f"{number}", "old"): 1 for number in range(1000)})
    expected.update((f"{number}", f'{{"n": {number}}}') for number in range(1000, 2500))
    rows = spark.read.format("eo-map").options(**a_map.options()).load()
    found = rows.collect()
    assert Counter((row.key, row.value) for row in found) == expected
    assert {(row.event, row.old_value) for row in found} == {(None, None)}


def test_typed_columns(spark, a_map) -> None:
    more = {"value.format": "json", "value.schema": "id BIGINT, tags ARRAY<STRING>"}
    a_map.put_all({"a": '{"id": 1, "tags": ["x", "y"]}', "b": '{"id": 2}'})
    rows = spark.read.format("eo-map").options(**a_map.options(**more)).load()
    found = rows.select("key", "value.id", "value.tags").orderBy("key").collect()
    assert [tuple(row) for row in found] == [("a", 1, ["x", "y"]), ("b", 2, None)]


@KAFKA_IN_FULL
def test_a_value_that_is_not_of_its_schema_stops_the_query(spark, a_map) -> None:
    a_map.put_all({"c": '{"id": "three"}'})
    more = {"value.format": "json", "value.schema": "id BIGINT"}
    with pytest.raises(Exception, match="not of its schema"):
        spark.read.format("eo-map").options(**a_map.options(**more)).load().collect()
