"""The direct lane into tables: nothing lost and nothing twice whoever dies, and types."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal

import psycopg
import pytest

import eo_kafka
from harness import kill_driver_at, produce
from lane_copies import LaneCopy, assert_done, die_twice, lane_copy
from table_job import new_table

FULL = pytest.mark.full
PLACES = ("S6.before_decision", "S6.after_decision", "S7.applied", "S8.after_done", "S5.prepared")


@pytest.fixture
def made(eo_postgres):
    """Makes a table of columns."""

    def make(columns: str) -> str:
        name = new_table(eo_postgres.url)
        with psycopg.connect(eo_postgres.url, autocommit=True) as connection:
            connection.execute(f"DROP TABLE {name}; CREATE TABLE {name} ({columns})")
        return name

    return make


@pytest.fixture
def copy(eo_postgres, made, broker, make_topic, tmp_path) -> LaneCopy:
    table = made("key bytea, value bytea")
    into = {"url": eo_postgres.url, "table": table}
    return lane_copy(broker, make_topic, tmp_path, into)


def rows(url: str, table: str, columns: str = "value") -> list[tuple]:
    with psycopg.connect(url) as connection:
        connection.execute("SET timezone = 'UTC'")
        return connection.execute(f"SELECT {columns} FROM {table}").fetchall()


def values_in(copy: LaneCopy) -> Counter:
    return Counter(bytes(one) for (one,) in rows(copy.into["url"], copy.into["table"]))


@pytest.mark.parametrize(
    "place", ["S7.in_table", *(pytest.param(p, marks=FULL) for p in ("S7.in_commits", *PLACES))]
)
def test_a_task_that_dies_and_a_driver_that_dies_leave_each_row_once(
    copy, spark, crash_points, tmp_path, place
) -> None:
    if place == "S7.in_commits":
        copy.into["commit"] = "two-phase"
    die_twice(copy, crash_points, "postgres.while_staging", place, tmp_path / "log")
    copy.run(spark)
    assert_done(copy, values_in(copy))


@FULL
def test_a_checkpoint_goes_to_and_fro_between_rows_and_the_lane(copy, spark, tmp_path) -> None:
    """And a lost one is restored."""
    copy.sink_extra = {"snapshots": "true"}
    for source in ("direct", "eo-kafka", "direct"):
        copy.source = source
        copy.sink = "eo-kafka" if source == "direct" else "eo-postgres"
        copy.run(spark)
        produce(copy.servers, copy.source_topic, [source.encode()])
    copy.checkpoint.rename(tmp_path / "lost")
    copy.run(spark)
    found = values_in(copy)
    assert found.total() == 1003 and set(found.values()) == {1, 2}  # b"direct" was sent twice


def orders_of():
    """What a shop would write: typed, filtered, with a column of its own. Spark pickles what a
    function here makes, and would not find a function of this module."""

    def transform(frames):
        import pandas as pd
        import pyarrow as pa

        for frame in frames:
            order = frame["value"].struct
            made = pd.DataFrame(
                {
                    "id": order.field("id"),
                    "price": order.field("price").astype(pd.ArrowDtype(pa.decimal128(10, 2))),
                    "at": order.field("at"),
                    "count": order.field("count"),
                    "place": frame["partition"],
                    "raw": frame["key"],
                }
            )
            yield made[made["id"] != 7]

    return eo_kafka.pandas_frames(transform)


def test_typed_columns_arrive_as_they_are_by_frames_of_pandas(
    spark, eo_postgres, made, broker, make_topic, tmp_path
) -> None:
    """Large numbers beside nulls, too; and a batch with a number is written once."""
    table = made(
        'id bigint, price numeric(10,2), at timestamptz, "count" int, place int, raw bytea'
    )
    topic = make_topic("in", partitions=2)
    first = 2**53
    orders = [
        {"id": first + n, "price": n + 0.5, "at": "2026-11-25T10:00:00.123456+02:00", "count": n}
        for n in range(40)
    ]
    orders += [{"id": first + 40}, {"id": 7, "price": 1, "at": None, "count": 1}]
    produce(broker.bootstrap_servers, topic, [json.dumps(one).encode() for one in orders])
    kafka = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    source = {
        **kafka,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "value.format": "json",
        "value.schema": "id BIGINT, price DECIMAL(12,4), at TIMESTAMP, count INT",
    }
    sink = {**kafka, "url": eo_postgres.url, "table": table, "jobName": f"job-{table}"}
    columns = "id BIGINT, price DECIMAL(10,2), at TIMESTAMP, count INT, place INT, raw BINARY"
    query = eo_kafka.direct(spark, source, sink, orders_of(), columns)
    query = query.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    query = query.start()
    assert query.awaitTermination(120)
    told = eo_kafka.progress(query).sinks[0]
    assert (told.numInputRecords, told.numOutputRows) == (42, 41)
    found = sorted(rows(eo_postgres.url, table, 'id, price, at::text, "count", raw'))
    assert found[0][:4] == (first, Decimal("0.50"), "2026-11-25 08:00:00.123456+00", 0)
    assert [one[0] for one in found] == [first + n for n in range(41)]
    assert found[40][1:4] == (None, None, None)
    assert json.loads(bytes(found[3][4]))["count"] == 3
    for _ in range(2):  # as a scheduler that did not get the answer
        eo_kafka.direct_batch(
            spark,
            {name: value for name, value in source.items() if name != "startingOffsets"},
            {**sink, "jobName": f"batch-{table}", "batchId": 5},
            orders_of(),
            columns,
        ).save()
    assert Counter(one[0] for one in rows(eo_postgres.url, table, "id")).total() == 82


@FULL
def test_a_driver_that_dies_before_any_task_leaves_nothing(copy, spark, crash_points, tmp_path):
    kill_driver_at(copy, crash_points, "S1.after_generation", tmp_path / "log")
    assert not values_in(copy)
    copy.run(spark)
    assert_done(copy, values_in(copy))
