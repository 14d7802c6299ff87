"""What a user reads of an error of ours: in the first line, after Spark's words, the sentence,
once, and no traceback of Python's. And the refusals of Spark's own that the docs explain."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import eo_kafka
from eo_kafka.errors import OptionsError
from harness import produce

TROUBLESHOOTING = Path(__file__).parents[2] / "docs" / "troubleshooting.md"
NOWHERE = {"kafka.bootstrap.servers": "127.0.0.1:1"}


def first_line(run) -> str:
    """Of the error that `run` raises."""
    with pytest.raises(Exception) as raised:
        run()
    said = str(raised.value)
    assert "Traceback" not in said
    first = said.splitlines()[0]
    sentence = first.partition("eo_kafka.")[2]
    assert sentence and said.count(sentence) == 1, said
    return first


@pytest.fixture
def rows(spark):
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()


@pytest.fixture
def sink(tmp_path):
    """A writer of a stream, not started."""

    def of(frame, **options):
        writer = frame.writeStream.format("eo-kafka").options(**NOWHERE, topic="t", **options)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.queryName("told").trigger(availableNow=True)

    return of


def test_what_is_refused_at_load(spark):
    source = spark.read.format("eo-kafka").options(**NOWHERE)
    said = first_line(source.load)
    assert re.fullmatch(
        r"\[PYTHON_DATA_SOURCE_ERROR\] [\w ]+: eo_kafka\.errors\.OptionsError: One of the "
        r"following options must be specified for Kafka source: .*",
        said,
    )
    typed = source.options(**{"subscribe": "t", "value.format": "json"})
    said = first_line(typed.option("value.schema", "id BIGNT, name STRING").load)
    assert "Option 'value.schema' gives column 'id' the type 'BIGNT'" in said


def test_what_is_refused_at_start(spark, rows, sink, tmp_path):
    source = spark.readStream.format("eo-kafka").options(**NOWHERE, subscribe="t")
    frame = source.option("endingOffsets", "latest").load()
    reader = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "noop"))
    said = first_line(lambda: reader.start().awaitTermination(60))
    assert "OptionsError: Option 'endingOffsets': ending offset not valid in streaming" in said
    frame = rows.selectExpr("named_struct('a', 1) AS value")
    said = first_line(lambda: sink(frame).start().awaitTermination(60))
    assert "set option 'value.format' to 'json', 'avro' or 'protobuf'" in said
    wrong = sink(frame, **{"value.format": "xml"})
    said = first_line(lambda: wrong.start().awaitTermination(60))
    assert "Option 'value.format'" in said
    assert "attribute unsupported type" not in said


def test_what_a_task_refuses(spark, broker, make_topic):
    topic = make_topic("told")
    produce(broker.bootstrap_servers, topic, [b"{no json"])
    source = spark.read.format("eo-kafka").option("subscribe", topic)
    source = source.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    frame = source.options(**{"value.format": "json", "value.schema": "id INT"}).load()
    with pytest.raises(
        Exception, match=f"SourceError: The record of {topic}-0 at offset 0"
    ) as told:
        frame.collect()
    assert "Traceback (most" not in str(told.value)


def test_the_topic_of_a_map_is_named_by_its_own_option(spark, broker):
    source = spark.read.format("eo-map").options(backend="kafka", map="told-nowhere")
    source = source.options(**{"fetchOffset.numRetries": "1"})
    frame = source.option("kafka.bootstrap.servers", broker.bootstrap_servers).load()
    said = first_line(frame.collect)
    assert "'told-nowhere' does not exist" in said
    assert "correct option 'map'" in said


def test_update_mode_is_refused_with_the_way_round(spark, rows, sink):
    frame = rows.selectExpr("CAST(value AS STRING) AS value")
    with pytest.raises(OptionsError, match=r"foreachBatch\(eo_kafka\.foreach_batch"):
        eo_kafka.start(sink(frame).outputMode("update"))
    with pytest.raises(Exception) as raised:
        sink(frame).outputMode("update").start().awaitTermination(60)
    spark_says = "eo-kafka does not support Update mode"
    assert spark_says in str(raised.value)
    assert spark_says in TROUBLESHOOTING.read_text()
