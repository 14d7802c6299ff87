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


def test_a_view_reads_and_a_table_is_written_and_read(spark, tables):
    servers, sink = tables
    rows = spark.sql("SELECT CAST(value AS STRING) v, count(*) n FROM orders GROUP BY 1").collect()
    assert {row["v"]: row["n"] for row in rows} == {"a": 1, "b": 2}
    spark.sql(
        "INSERT INTO shouted SELECT key, CAST(upper(CAST(value AS STRING)) AS BINARY), topic, "
        "partition, offset, timestamp, timestampType FROM orders"
    )
    assert committed(servers, sink) == Counter({b"A": 1, b"B": 2})
    assert spark.sql("SELECT * FROM shouted").count() == 3
