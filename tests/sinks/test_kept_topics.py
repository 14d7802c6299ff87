"""Topics in which a job's guarantee is kept: no row, and no option, sends records there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import types as t

from eo_kafka.connectors.kafka_sink import KafkaStreamWriter
from eo_kafka.core import librdkafka
from eo_kafka.core.errors import OptionsError, SinkError
from eo_kafka.formats import bad_records
from eo_kafka.formats.options import FormatOptions
from eo_kafka.sinks.maps.options import read_topic
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.rows import fast, plain
from eo_kafka.sinks.rows.columns import by_topic
from eo_kafka.sources.queues.options import QueueOptions

KAFKA = {"kafka.bootstrap.servers": "nowhere:1", "jobName": "j"}
INTERNAL = ["__eo_kafka.j.ledger", "__eo_kafka.other.control", "__consumer_offsets"]
TWINS = pytest.mark.parametrize("twin", [by_topic, plain.batch_rows])


def rows(*topics: str) -> pa.RecordBatch:
    return pa.record_batch({"topic": list(topics), "value": [b"v"] * len(topics)})


@TWINS
@pytest.mark.parametrize("topic", INTERNAL)
def test_a_row_names_no_topic_of_a_jobs_own(twin: Callable[..., Any], topic: str) -> None:
    with pytest.raises(SinkError) as refused:
        next(iter(twin(rows("out", "out", topic), None)))
    assert f"A row names topic '{topic}' in column 'topic'" in str(refused.value)
    assert "was not written" in str(refused.value)
    assert len(list(twin(rows("out", topic), "given"))) > 0, "the option goes before the column"


@TWINS
def test_nor_the_sinks_own_by_another_name(twin: Callable[..., Any]) -> None:
    assert list(twin(rows("out", "mine"), None))
    with pytest.raises(SinkError, match="A row names topic 'mine'"):
        next(iter(twin(rows("out", "mine"), None, {"mine"})))


@pytest.mark.parametrize("path", ["fast", "plain"])
def test_a_sinks_tasks_know_its_own_topics(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import confluent_kafka

    if path == "plain":
        monkeypatch.setattr(librdkafka, "available", lambda: "a test says so")
    given = {**KAFKA, "ledgerTopic": "books", "stateTopic": "more-books"}
    options = SinkOptions.parse(given, streaming=True)
    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    sender = fast.arrow_producer(producer, options.topic, options.own_topics)
    for topic in ("books", "more-books", "__eo_kafka.j.ledger"):
        with pytest.raises(SinkError, match=f"'{topic}'"):
            sender.send(rows("out", topic))
    assert (sender.rows, len(producer)) == (0, 0)


def problems(make: Callable[[], object]) -> str:
    with pytest.raises(OptionsError) as refused:
        make()
    return str(refused.value)


@pytest.mark.parametrize("topic", INTERNAL)
@pytest.mark.parametrize("guarantee", ["exactly-once", "none"])
def test_no_option_names_one(topic: str, guarantee: str) -> None:
    given = {**KAFKA, "jobName": "another", "guarantee": guarantee, "topic": topic}
    said = problems(lambda: SinkOptions.parse(given, streaming=True))
    assert f"Option 'topic' (of an eo-map: 'map') is '{topic}'" in said

    columns = [("key", "string"), ("value", "string")]
    as_map, _, wrong = read_topic({**KAFKA, "map": topic, "backend": "kafka"}, columns)
    del as_map["jobName"]
    assert not wrong and topic in problems(lambda: SinkOptions.parse(as_map, streaming=False))

    letters = {"value.format": "string", "mode": "DEADLETTER", "deadLetterTopic": topic}
    said = problems(lambda: FormatOptions.of_reader({"subscribe": "t", **letters}))
    assert f"Option 'deadLetterTopic' is '{topic}'" in said

    queue = {"kafka.bootstrap.servers": "nowhere:1", "url": "amqp://h/v", "queue": "q"}
    said = problems(lambda: QueueOptions.parse({**queue, "inbox": topic}))
    assert f"Option 'inbox' is '{topic}'" in said
    said = problems(lambda: QueueOptions.parse({**queue, "inbox": "i", "poisonTopic": topic}))
    assert f"Option 'poisonTopic' is '{topic}'" in said


def test_dead_letters_do_not_go_to_the_sinks_ledger(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text('{"id":"1"}')
    schema = t.StructType().add("value", "string")
    said = {"comment": bad_records.comment("books")}
    schema.add(bad_records.COLUMN, bad_records.spark_type(), metadata=said)
    given = {**KAFKA, "topic": "out", "checkpointlocation": str(tmp_path)}
    KafkaStreamWriter(given, schema, overwrite=False)
    found = problems(
        lambda: KafkaStreamWriter({**given, "ledgerTopic": "books"}, schema, overwrite=False)
    )
    assert "Dead letter topic 'books'" in found
