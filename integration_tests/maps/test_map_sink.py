"""`format("eo-map")` as a sink, on both backends: put, remove; drivers and tasks killed."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from pyspark.sql import functions as f

import eo_kafka
from harness import assert_settled, committed_messages, kill_driver_at
from map_backends import KAFKA_IN_FULL, IntoMap, entries_of, write

AT_EVERY_STEP = {
    "hazelcast": ("source.before_partitions", "map.before_put", "map.after_put", "map.committed"),
    "kafka": ("S3.while_writing", "S6.before_decision", "S6.after_decision", "S8.after_done"),
}


def save(rows, a_map, **more: str) -> None:
    rows.write.format("eo-map").options(**a_map.options(**more)).mode("append").save()


@pytest.mark.smoke
def test_put_replace_and_remove(spark, a_map) -> None:
    rows = spark.range(3000).selectExpr("concat('k', id) as key", "concat('v', id) as value")
    save(rows.repartition(2), a_map)
    assert entries_of(spark, a_map) == {f"k{n}": f"v{n}" for n in range(3000)}
    save(rows.limit(10).selectExpr("key", "if(key < 'k5', null, 'new') as value"), a_map)
    expected = {f"k{n}": f"v{n}" if n >= 10 else "new" for n in range(5, 3000)}
    assert entries_of(spark, a_map) == expected
    # what a stream of a map has besides does not disturb: not the partition, above all
    more = rows.where("key in ('k20', 'k21')").selectExpr(
        "key", "'x' as value", "key = 'k20' as gone", "0 as partition", "'t' as topic"
    )
    save(more, a_map, removeColumn="gone")
    del expected["k20"]
    assert entries_of(spark, a_map) == {**expected, "k21": "x"}
    save(rows.where("key = 'k21'").selectExpr("key", "'back where it was' as value"), a_map)
    assert entries_of(spark, a_map)["k21"] == "back where it was"


def test_values_of_structs_are_json_and_come_back_as_columns(spark, a_map) -> None:
    rows = spark.range(3).select(
        f.format_string("k%d", "id").alias("key"), f.struct("id").alias("value")
    )
    save(rows, a_map, **{"value.format": "json"})
    found = spark.read.format("eo-map").options(
        **a_map.options(**{"value.format": "json", "value.schema": "id BIGINT"})
    )
    assert sorted(row.id for row in found.load().select("value.id").collect()) == [0, 1, 2]
    assert entries_of(spark, a_map) == {f"k{n}": f'{{"id":{n}}}' for n in range(3)}


def test_bytes_stay_bytes(spark, a_map) -> None:
    save(spark.sql("select x'00ff' as key, x'fe' as value"), a_map)
    as_bytes = {"key.format": "bytes", "value.format": "bytes"}
    found = spark.read.format("eo-map").options(**a_map.options(**as_bytes)).load().collect()
    assert [(bytes(row.key), bytes(row.value)) for row in found] == [(b"\0\xff", b"\xfe")]


@pytest.fixture
def job(a_map, target, broker, tmp_path) -> IntoMap:
    """The changes of one map, into another of the same backend, in batches of 500."""
    return IntoMap(
        servers=broker.bootstrap_servers,
        source_topic="none",
        sink_topic=target.name,
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{target.name}",
        map_options=a_map.options(maxEventsPerTrigger="500"),
        target=target.options(),
    )


def change(a_map, first: int, count: int) -> None:
    """Puts, replacements and removals."""
    write(a_map, first, count)
    for number in range(first, first + count, 50):
        a_map.remove(f"key {number % 300}")


def assert_same(spark, job, a_map, target) -> None:
    """The copy is the map; and a topic has each change exactly once."""
    found = entries_of(spark, a_map)
    assert found
    assert entries_of(spark, target) == found
    if a_map.backend == "kafka":
        changes, copied = (
            Counter(
                (message.key(), message.value())
                for message in committed_messages(job.servers, one.name)
            )
            for one in (a_map, target)
        )
        assert copied == changes
        assert_settled(job)


@pytest.mark.full
def test_a_driver_that_is_killed_once_leaves_the_same_map(
    job, a_map, target, spark, crash_points, tmp_path
) -> None:
    change(a_map, 0, 600)
    point = {"hazelcast": "map.after_put", "kafka": "S6.after_decision"}[a_map.backend]
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    change(a_map, 600, 300)
    job.run(spark)
    assert_same(spark, job, a_map, target)


@pytest.mark.full
def test_a_driver_that_is_killed_at_every_step_leaves_the_same_map(
    job, a_map, target, spark, crash_points, tmp_path
) -> None:
    for number, point in enumerate(AT_EVERY_STEP[a_map.backend]):
        change(a_map, 600 * number, 600)
        kill_driver_at(job, crash_points, point, tmp_path / "log")
    job.run(spark)
    assert_same(spark, job, a_map, target)


@KAFKA_IN_FULL
def test_a_task_that_is_killed_while_it_writes_leaves_the_same_map(
    job, a_map, target, spark, crash_points
) -> None:
    change(a_map, 0, 600)
    point = {"hazelcast": "map.after_put", "kafka": "S3.while_writing"}[a_map.backend]
    crash_points.arm(point, "kill")
    job.run(spark)
    assert crash_points.reached(point)
    assert_same(spark, job, a_map, target)


@KAFKA_IN_FULL
def test_changes_counted_in_windows_are_the_same_on_both_backends(
    a_map, target, spark, crash_points, broker, tmp_path
) -> None:
    """Journal, window, count, map; interrupted while it writes."""
    expected: Counter = Counter()
    for number in range(400):
        second = (number % 4) * 10
        a_map.put_all({f"{number % 7}": json.dumps({"at": f"2024-01-01T00:00:{second:02}Z"})})
        expected[f"{number % 7} {second:02}"] += 1
    typed = {"value.format": "json", "value.schema": "at TIMESTAMP"}

    def run_once() -> None:
        changes = spark.readStream.format("eo-map").options(
            **a_map.options(maxEventsPerTrigger="150", **typed)
        )
        window = f.window("value.at", "10 seconds")
        counts = changes.load().groupBy("key", window).count()
        start = f.date_format("window.start", "ss")
        rows = counts.select(
            f.concat_ws(" ", "key", start).alias("key"),
            f.col("count").cast("string").alias("value"),
        )
        sink = target.options(**({"jobName": target.name} if target.backend == "kafka" else {}))
        query = (
            rows.writeStream.outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(eo_kafka.foreach_batch(sink))
            .start()
        )
        try:
            assert query.awaitTermination(180)
        finally:
            query.stop()

    point = {"hazelcast": "map.committed", "kafka": "S6.after_decision"}[a_map.backend]
    crash_points.arm(point, "raise")
    with pytest.raises(Exception, match="CrashPointReached"):
        run_once()
    run_once()
    assert entries_of(spark, target) == {key: str(count) for key, count in expected.items()}
