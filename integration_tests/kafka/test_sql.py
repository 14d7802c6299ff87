"""`eo-kafka` in SQL, as far as Spark lets a Python source."""

from __future__ import annotations

from collections import Counter

import pytest

from harness import committed, produce


@pytest.fixture
def tables(spark, broker, make_topic):
    source, sink = make_topic("sql-in"), make_topic("sql-out")
    produce(broker.bootstrap_servers, source, [b"a", b"b", b"b"])
    servers = broker.bootstrap_servers
    spark.sql(
        f"CREATE TEMPORARY VIEW orders USING `eo-kafka` OPTIONS "
        f"('kafka.bootstrap.servers' '{servers}', 'subscribe' '{source}')"
    )
    spark.sql(
        f"CREATE TABLE shouted USING `eo-kafka` OPTIONS "
        f"('kafka.bootstrap.servers' '{servers}', 'topic' '{sink}', 'subscribe' '{sink}')"
    )
    yield servers, sink
    spark.sql("DROP VIEW orders")
    spark.sql("DROP TABLE shouted")


def test_a_view_has_its_options_with_it(spark, tables):
    rows = spark.sql("SELECT CAST(value AS STRING) v, count(*) n FROM orders GROUP BY 1").collect()
    assert {row["v"]: row["n"] for row in rows} == {"a": 1, "b": 2}


def test_a_table_is_written_and_read_with_options_of_the_statement(spark, tables):
    """Spark asks for a table's columns with the table's options, and forgets them afterwards."""
    servers, sink = tables
    to = f"`kafka.bootstrap.servers` '{servers}'"
    shouted = "CAST(upper(CAST(value AS STRING)) AS BINARY)"
    with pytest.raises(Exception, match=r"'kafka\.bootstrap\.servers' must be specified"):
        spark.sql(f"INSERT INTO shouted (value) SELECT {shouted} FROM orders")
    into = f"shouted WITH ({to}, topic '{sink}') (value)"
    spark.sql(f"INSERT INTO {into} SELECT {shouted} FROM orders")
    assert committed(servers, sink) == Counter({b"A": 1, b"B": 2})
    assert spark.sql(f"SELECT * FROM shouted WITH ({to}, subscribe '{sink}')").count() == 3


def test_a_stream_from_a_table_to_a_table(spark, tables, tmp_path):
    servers, sink = tables
    source = spark.sql("SELECT first(topic) FROM orders").head()[0]
    rows = (
        spark.readStream.option("kafka.bootstrap.servers", servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .table("shouted")
    )
    query = (
        rows.writeStream.option("kafka.bootstrap.servers", servers)
        .option("jobName", f"table-{sink}")
        .option("topic", sink)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .toTable("shouted")
    )
    assert query.awaitTermination(120)
    assert committed(servers, sink) == Counter({b"a": 1, b"b": 2})
