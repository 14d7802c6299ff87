"""Records that Arrow's columns or Kafka's C client cannot take, in every mode, by both paths.

Against librdkafka's own mock broker: one of Kafka's refuses some of these timestamps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest
from pyspark.sql import types as t

from eo_kafka.connectors import kafka_source
from eo_kafka.core import librdkafka
from eo_kafka.core.errors import SourceError
from eo_kafka.core.offsets import OffsetRange, TopicPartition
from eo_kafka.formats import bad_records
from eo_kafka.formats.options import FormatOptions
from eo_kafka.formats.reading import Reading
from eo_kafka.sources.settings.options import SourceOptions

MOST_HEADERS = 100_000  # librdkafka's own
TOO_FAR = (2**63 - 1) // 1000 + 1
# topic -> what is between two good records
EVIL: dict[str, dict[str, Any]] = {
    "before": {"timestamp": -TOO_FAR},
    "after": {"timestamp": TOO_FAR},
    "least": {"timestamp": -(2**63)},
    "most": {"timestamp": 2**63 - 1},
    "headers": {"headers": [("h", b"")] * (MOST_HEADERS + 1)},
    "bytes": {"timestamp": TOO_FAR, "value": b"\xff"},
    "both": {"headers": [("h", b"")] * (MOST_HEADERS + 1), "timestamp": TOO_FAR},
}
TIMES = [name for name in EVIL if name not in ("headers", "bytes")]
HEADERS = ["headers", "both"]


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    assert librdkafka.available() is None
    many = {"message.max.bytes": 10_000_000}
    host = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0, **many})
    for topic, evil in EVIL.items():
        brokers = host.list_topics(topic, timeout=20).brokers.values()
        for more in ({"headers": [("own", b"1")]}, evil, {}):
            host.produce(topic, **{"value": b"v", "key": b"k", "partition": 0, **more})
    assert host.flush(30) == 0
    yield ",".join(f"{one.host}:{one.port}" for one in brokers)
    del host


@pytest.fixture(params=["fast", "plain"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "plain":
        monkeypatch.setattr(librdkafka, "available", lambda: "a test says so")
    return str(request.param)


def read(servers: str, topic: str, **given: str) -> list[dict[str, Any]]:
    """As connectors/kafka_source.py reads."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    if "mode" in given:
        given = {"value.format": "string", **given}
    of_source = ("includeheaders", "kafka.")
    kafka = {name: value for name, value in given.items() if name.startswith(of_source)}
    source = SourceOptions.parse({**options, **kafka}, streaming=True)
    formats = FormatOptions.of_reader(
        {"subscribe": topic, **{name: given[name] for name in given if name not in kafka}}
    )
    schema = t.StructType()
    for field in source.schema().fields:
        is_text = field.name == "value" and formats.columns
        schema.add(field.name, t.StringType() if is_text else field.dataType)
    if formats.shows_bad_records:
        schema.add(bad_records.COLUMN, bad_records.spark_type())
    reading = Reading(formats, source.schema(), schema)
    ranges = (OffsetRange(TopicPartition(topic, 0), 0, 3),)
    batches = kafka_source._read(source, reading, ranges, {})
    # Times so far away are no datetime, and are looked at as numbers
    return [row for batch in batches for row in _numbers(batch).to_pylist()]


def _numbers(batch: pa.RecordBatch) -> pa.RecordBatch:
    at = batch.schema.get_field_index("timestamp")
    return batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DEADLETTER"])
@pytest.mark.parametrize("topic", TIMES)
def test_a_timestamp_that_no_column_holds_is_a_bad_record(
    servers: str, path: str, topic: str, mode: str
) -> None:
    letters = {"deadLetterTopic": "dead"} if mode == "DEADLETTER" else {}
    first, evil, last = read(servers, topic, mode=mode, **letters)
    assert (first["_bad_record"], last["_bad_record"]) == (None, None)
    assert first["timestamp"] and last["timestamp"] and evil["timestamp"] is None
    bad = evil["_bad_record"]
    assert (bad["topic"], bad["key"], bad["value"]) == (letters.get("deadLetterTopic"), b"k", b"v")
    assert f"timestamp is {EVIL[topic]['timestamp']} ms, which no" in bad["reason"]
    said = {one["key"]: one["value"] for one in bad["headers"]}
    assert said["eo_kafka.bad_record.reason"].decode() == bad["reason"]
    assert said["eo_kafka.bad_record.offset"] == b"1"


@pytest.mark.parametrize("topic", TIMES)
@pytest.mark.parametrize("given", [{}, {"mode": "FAILFAST"}])
def test_else_it_is_refused_with_a_way_out(
    servers: str, path: str, topic: str, given: dict[str, str]
) -> None:
    with pytest.raises(SourceError, match=re.escape(f"record of {topic}-0 at offset 1 ")) as told:
        read(servers, topic, **given)
    assert f"timestamp is {EVIL[topic]['timestamp']} ms" in str(told.value)
    assert "option 'mode' PERMISSIVE" in str(told.value)
    assert "kafka-delete-records" in str(told.value)


@pytest.mark.parametrize("topic", HEADERS)
@pytest.mark.parametrize("headers", ["true", "false"])
def test_headers_that_are_not_read_make_a_bad_record(
    servers: str, topic: str, headers: str
) -> None:
    dead = {"mode": "DEADLETTER", "deadLetterTopic": "dead", "includeheaders": headers}
    first, evil, last = read(servers, topic, **dead)
    assert (first["_bad_record"], last["_bad_record"]) == (None, None)
    bad = evil["_bad_record"]
    assert "Kafka's C client does not read its headers" in bad["reason"]
    assert ("no timestamp column" in bad["reason"]) == (topic == "both")
    assert all(one["key"].startswith("eo_kafka.bad_record.") for one in bad["headers"])
    if headers == "true":
        assert (first["headers"], evil["headers"]) == ([{"key": "own", "value": b"1"}], None)


def test_they_are_refused_where_no_mode_shows_bad_records(servers: str) -> None:
    for given in ({}, {"mode": "FAILFAST"}):
        with pytest.raises(SourceError, match="of headers-0 at offset 1 .*'mode'.*includeHeaders"):
            read(servers, "headers", includeheaders="true", **given)
    assert len(read(servers, "headers")) == 3


def test_what_source_and_format_say_of_a_record_is_told_together(servers: str) -> None:
    evil = read(servers, "bytes", mode="PERMISSIVE")[1]
    assert evil["value"] is None and evil["_bad_record"]["value"] == b"\xff"
    assert "no timestamp column can hold; value: it is not UTF-8" in evil["_bad_record"]["reason"]


def test_what_unpacks_to_more_than_is_allowed_is_refused_with_the_setting() -> None:
    packed = {"compression.type": "zstd", "message.max.bytes": 10_000_000}
    host = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0, **packed})
    brokers = host.list_topics("t", timeout=20).brokers.values()
    for value in (b"v", b"\0" * 5_000_000, b"v"):
        host.produce("t", value, partition=0)
        assert host.flush(30) == 0
    servers = ",".join(f"{one.host}:{one.port}" for one in brokers)
    small = {"receive.message.max.bytes": 2_000_000, "fetch.max.bytes": 1_000_000}
    small["message.max.bytes"] = 1_000_000
    with pytest.raises(SourceError, match=r"at offset 1: .*raise that") as told:
        read(servers, "t", **{f"kafka.{name}": str(value) for name, value in small.items()})
    assert "option 'kafka.receive.message.max.bytes' (100 MB by default)" in str(told.value)
    assert len(read(servers, "t")) == 3
