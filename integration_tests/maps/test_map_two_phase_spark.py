"""`commit=two-phase` into an IMap by Spark: drivers and tasks killed, update mode, snapshots."""

from __future__ import annotations

from collections import Counter

import pytest

import eo_kafka
from harness import committed_messages, kill_driver_at, read_ledger
from map_backends import IMap, IntoMap, entries_of
from map_two_phase_job import journal_of
from test_map_sink import change

# Every other one: test_map_two_phase.py
POINTS = ("S6.before_decision", "S6.after_decision", "S7.after_chunk", "S8.after_done")


@pytest.fixture
def source(grid, hazelcast_client) -> IMap:
    return IMap(grid, hazelcast_client)


@pytest.fixture
def copy(source, written_map, broker, tmp_path) -> IntoMap:
    """The changes of one map, into another, in batches of 500."""
    return IntoMap(
        servers=broker.bootstrap_servers,
        source_topic="none",
        sink_topic="none",
        checkpoint=tmp_path / "checkpoint",
        job_name=f"job-{written_map.name}",
        map_options=source.options(maxEventsPerTrigger="500"),
        target={
            **source.options(map=written_map.name, commit="two-phase"),
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "jobName": f"job-{written_map.name}",
        },
    )


@pytest.mark.full
def test_a_driver_that_is_killed_again_and_again_leaves_the_same_map(
    copy, source, written_map, spark, crash_points, tmp_path
) -> None:
    for number, point in enumerate(POINTS):
        change(source, 600 * number, 600)
        kill_driver_at(copy, crash_points, point, tmp_path / "log")
    copy.run(spark)
    assert dict(written_map.entry_set()) == entries_of(spark, source)


def test_a_task_that_is_killed_while_it_stages_repeats_nothing(
    copy, source, written_map, spark, crash_points, hazelcast_client
) -> None:
    change(source, 0, 250)  # of each key one value, and a few are removed again
    crash_points.arm("map.while_staging", "kill")
    copy.run(spark)
    assert crash_points.reached("map.while_staging")
    found = entries_of(spark, source)
    assert dict(written_map.entry_set()) == found
    assert journal_of(hazelcast_client, written_map) == Counter(found.items())
    ledger = read_ledger(copy)
    assert {found.state.value for found in ledger.decisions.values()} == {"DONE"}


@pytest.mark.full
def test_counts_in_update_mode_go_to_a_map_and_a_topic_at_once(
    source, written_map, spark, crash_points, broker, make_topic, tmp_path, hazelcast_client
) -> None:
    topic = make_topic("counts")
    for number in range(300):
        source.put_all({f"{number % 7}": f"{number}"})
    write = eo_kafka.foreach_batch(
        {
            **source.options(map=written_map.name, commit="two-phase", topic=topic),
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "jobName": written_map.name,
        }
    )

    def run_once() -> None:
        changes = spark.readStream.format("eo-map").options(
            **source.options(maxEventsPerTrigger="150")
        )
        counts = changes.load().groupBy("key").count()
        query = (
            counts.selectExpr("key", "cast(count as string) as value")
            .writeStream.outputMode("update")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(write)
            .start()
        )
        try:
            assert query.awaitTermination(180)
        finally:
            query.stop()

    crash_points.arm("S7.after_last_end_txn", "raise")
    with pytest.raises(Exception, match="CrashPointReached"):
        run_once()
    run_once()
    expected = {str(key): str(len(range(key, 300, 7))) for key in range(7)}
    assert dict(written_map.entry_set()) == expected
    sent = Counter(
        (one.key().decode(), one.value().decode())
        for one in committed_messages(broker.bootstrap_servers, topic)
    )
    assert sent == journal_of(hazelcast_client, written_map)
    assert all(times == 1 for times in sent.values())


@pytest.mark.full
def test_a_query_whose_checkpoint_is_lost_goes_on_from_its_snapshot(
    copy, source, written_map, spark, hazelcast_client, tmp_path
) -> None:
    copy.sink_extra = {"snapshots": "true"}
    change(source, 0, 250)
    copy.run(spark)
    copy.checkpoint.rename(tmp_path / "lost")
    change(source, 250, 49)
    copy.run(spark)
    found = entries_of(spark, source)
    assert dict(written_map.entry_set()) == found
    assert journal_of(hazelcast_client, written_map) == Counter(found.items())
