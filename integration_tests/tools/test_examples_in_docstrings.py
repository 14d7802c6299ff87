"""The examples in the docstrings of `eo_kafka`'s public names do what they show."""

from __future__ import annotations

import doctest
from operator import attrgetter

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from pyspark.sql import Row, functions
from pyspark.sql.functions import struct

import eo_kafka
from harness import committed, produce
from jobs.stateful_job import settings

# Some go on with what others made.
ORDER = (
    *("register", "start", "snapshots", "restore", "export_snapshot", "verify_snapshot"),
    *("start_from", "delete_snapshot", "cancel_and_export", "repartition"),
    *("foreach_batch", "progress", "explain", "StateView", "ConsumerGroup", "SideInput"),
    *("QueryMetrics", "QueryTraces"),
    *("to_avro", "from_avro", "direct", "direct_batch", "Lookup"),
    *("pandas_frames", "polars_frames"),
)
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@pytest.fixture
def names(own, spark) -> dict[str, object]:
    """What docs/api.md says that the examples take for granted."""
    admin = AdminClient({"bootstrap.servers": own.bootstrap_servers})
    compacted = {"cleanup.policy": "compact"}
    topics = [
        NewTopic(name, 1)
        for name in ("orders", "firsts", "totals", "enriched", "loud", "copied", "known", "found")
    ]
    for made in admin.create_topics([*topics, NewTopic("customers", 1, config=compacted)]).values():
        made.result(timeout=30)
    produce(own.bootstrap_servers, "orders", [b"a", b"b", b"a"])
    produce(own.bootstrap_servers, "customers", [b"a"])
    kafka = {"kafka.bootstrap.servers": own.bootstrap_servers}
    read = spark.readStream.format("eo-kafka").options(**kafka)
    orders = read.options(subscribe="orders", startingOffsets="earliest").load()
    clicks = orders.selectExpr("string(key) as page", "timestamp as at", "timestamp")
    orders = orders.selectExpr("string(key) as key", "string(value) as value")
    return {"eo_kafka": eo_kafka, "spark": spark, "kafka": kafka, "orders": orders} | {
        "clicks": clicks,
        "F": functions,
        "Row": Row,
        "struct": struct,
    }


def test_each_example_does_what_it_shows(names, own, spark, tmp_path):
    assert sorted(ORDER) == sorted(eo_kafka._HOMES), "every public name has its example"
    with settings(spark, {"spark.sql.streaming.stateStore.providerClass": ROCKSDB}):
        for name in (*ORDER, *(f"windows.{one}" for one in eo_kafka.windows.__all__)):
            text = (attrgetter(name)(eo_kafka).__doc__ or "").replace("/data/", f"{tmp_path}/")
            text = text.replace("9404", "0")
            example = doctest.DocTestParser().get_doctest(text, names, name, None, None)
            assert example.examples, f"{name} has no example"
            said: list[str] = []
            doctest.DocTestRunner(verbose=False).run(example, out=said.append, clear_globs=False)
            assert not said, "".join(said)
            names.update(example.globs)
    assert committed(own.bootstrap_servers, "firsts") == {b"a": 1, b"b": 1}
    assert committed(own.bootstrap_servers, "totals") == {b"2": 1, b"1": 1}
    assert committed(own.bootstrap_servers, "loud") == {b"A": 2, b"B": 1}
    assert committed(own.bootstrap_servers, "copied") == {b"a": 2, b"b": 1}
    assert committed(own.bootstrap_servers, "known") == {b"a": 4, b"b": 2}  # by both libraries
    assert committed(own.bootstrap_servers, "found") == {b"a": 2}
    # concat() gives null for "b", which has no entry
    assert committed(own.bootstrap_servers, "enriched") == {b"a a": 2, None: 1}
