"""Typed keys and values by options, and what becomes of records that are not of their format."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timezone

import pytest
from confluent_kafka.admin import AdminClient

import protobuf_files
from eo_kafka.formats.protobuf.codec import codec
from eo_kafka.formats.protobuf.descriptors import pruned
from eo_kafka.state.ledger.job_topics import MAIN_SINK
from harness import (
    Copy,
    committed,
    committed_messages,
    fail_at,
    kill_driver_at,
    make_copy,
    produce,
    read_ledger,
)

SCHEMA = "id BIGINT, at TIMESTAMP, tags ARRAY<STRING>"
GOOD = [b'{"id":%d,"at":"2026-11-21T00:00:00.000Z","tags":["a"]}' % n for n in range(400)]
BAD = [b"not json %d" % n for n in range(20)] + [b'{"id":"%d"}' % n for n in range(20)]


@dataclass(frozen=True)
class Values:
    """Of one format: what is written as it was read, and what is not of the format."""

    good: list[bytes]
    bad: list[bytes]
    read: dict[str, str]
    write: dict[str, str]


def of_protobuf() -> Values:
    """Shop orders, among them the one that is all defaults; bytes that are none, and bytes of
    another wire type."""
    options = {
        "value.format": "protobuf",
        "value.schema": protobuf_files.base64_of(protobuf_files.orders()),
        "value.message": "shop.Order",
    }
    encode = codec(pruned(options["value.schema"], "shop.Order"), "shop.Order").encode
    at = datetime(2026, 11, 21, tzinfo=timezone.utc)
    lines = [{"sku": "x", "count": 2**32 - 1}, {"sku": "", "count": 0}]
    tags = [("a", 0.5), ("b", 0.0)]
    order = {"name": "", "at": at, "lines": lines, "tags": tags, "kind": "PAID"}
    good = [encode({"id": 0}), *(encode({"id": n, **order}) for n in range(1, 400))]
    bad = [b"\xffno protobuf %d" % n for n in range(20)] + [b"\x10%c" % n for n in range(20)]
    return Values(good, bad, options, options)


FORMATS = {
    "json": Values(
        GOOD, BAD, {"value.format": "json", "value.schema": SCHEMA}, {"value.format": "json"}
    ),
    "protobuf": of_protobuf(),
}


def reader(spark, broker, topic, **options):
    rows = spark.read.format("eo-kafka").option("subscribe", topic)
    rows = rows.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    for name, value in options.items():
        rows = rows.option(name.replace("_", "."), value)
    return rows.load()


@pytest.mark.smoke
def test_json_becomes_columns_and_goes_back(spark, broker, make_topic):
    source, target = make_topic("in"), make_topic("out")
    produce(broker.bootstrap_servers, source, GOOD[:3])
    found = reader(
        spark, broker, source, value_format="json", value_schema=SCHEMA, key_format="string"
    )
    assert dict(found.dtypes)["value"] == "struct<id:bigint,at:timestamp,tags:array<string>>"
    assert dict(found.dtypes)["key"] == "string"
    assert found.where("value.id > 0").selectExpr("sum(value.id)").head()[0] == 3
    first = found.where("value.id = 1").head()
    assert first.key == GOOD[1].decode()
    assert first.value.at.astimezone(timezone.utc) == datetime(2026, 11, 21, tzinfo=timezone.utc)

    writer = found.select("key", "value").write.format("eo-kafka").mode("append")
    writer = writer.option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer.option("topic", target).option("value.format", "json").save()
    assert committed(broker.bootstrap_servers, target) == Counter(GOOD[:3])


def test_a_schema_as_spark_prints_it(spark, broker, make_topic):
    source = make_topic("in")
    produce(broker.bootstrap_servers, source, GOOD[:2])
    schema = spark.createDataFrame([], SCHEMA).schema.json()
    found = reader(spark, broker, source, value_format="json", value_schema=schema)
    assert sorted(row.id for row in found.select("value.id").collect()) == [0, 1]


def test_a_bad_record_fails_the_query_or_is_shown(spark, broker, make_topic):
    source = make_topic("in")
    produce(broker.bootstrap_servers, source, [*GOOD[:2], BAD[0]])
    options = {"value_format": "json", "value_schema": SCHEMA}
    with pytest.raises(Exception, match=r"at offset 2 is not of its format: value: it is no JSON"):
        reader(spark, broker, source, **options).collect()
    found = reader(spark, broker, source, mode="PERMISSIVE", **options)
    (bad,) = found.where("_bad_record IS NOT NULL").collect()
    assert (bad.value, bytes(bad._bad_record.value), bad.offset) == (None, BAD[0], 2)
    assert bad._bad_record.reason.startswith("value: it is no JSON")
    assert found.where("_bad_record IS NULL").count() == 2


def test_what_is_wrong_is_said_with_what_else_is_wrong(spark, broker):
    with pytest.raises(Exception) as raised:
        reader(spark, broker, "t", value_format="json", startingOffsets="soon")
    assert "needs 'value.schema'" in str(raised.value)
    assert "startingOffsets" in str(raised.value)


# --- dead letters -------------------------------------------------------------------------------


@pytest.fixture
def kind() -> str:
    """The format, for tests that are about none."""
    return "json"


@pytest.fixture
def job(broker, make_topic, tmp_path, kind) -> Copy:
    """Good and bad records, mixed, in four batches; the bad ones go to a topic of their own."""
    of = FORMATS[kind]
    values = [
        value for at in range(0, 400, 10) for value in [*of.good[at : at + 10], of.bad[at // 10]]
    ]
    made = make_copy(broker.bootstrap_servers, make_topic, tmp_path, values, per_batch=110)
    made.source_extra = {
        **of.read,
        "mode": "DEADLETTER",
        "deadLetterTopic": make_topic("bad", partitions=2),
    }
    made.sink_extra = dict(of.write)
    return made


def assert_each_is_once_where_it_belongs(job: Copy, kind: str) -> None:
    assert committed(job.servers, job.sink_topic) == Counter(FORMATS[kind].good)
    bad = committed(job.servers, job.source_extra["deadLetterTopic"])
    assert bad == Counter(FORMATS[kind].bad)


@pytest.mark.parametrize("point", ["S6.before_decision", "S7.after_first_end_txn"])
def test_dead_letters_are_neither_lost_nor_repeated(job, kind, spark, crash_points, point):
    fail_at(job, spark, crash_points, point)
    job.run(spark)
    assert_each_is_once_where_it_belongs(job, kind)
    assert max(read_ledger(job).of_sink(MAIN_SINK)) >= 3


def test_a_dead_letter_topic_that_is_not_there_is_refused_at_the_start(job, spark):
    """Before a record is read, and before the ledger is made."""
    missing = f"{job.source_extra['deadLetterTopic']}-missing"
    job.source_extra["deadLetterTopic"] = missing
    with pytest.raises(Exception, match=f"'{missing}' does not exist.*'deadLetterTopic'") as stop:
        job.run(spark)
    assert f"eo_kafka.errors.EnvironmentRefused: Topic '{missing}'" in str(stop.value)
    assert "PicklingError" not in str(stop.value)  # of Spark's serializer, in which S1 runs
    admin = AdminClient({"bootstrap.servers": job.servers})
    assert not {missing, job.ledger} & set(admin.list_topics(timeout=30).topics)
    assert committed(job.servers, job.sink_topic) == Counter()


def test_a_task_that_is_killed_repeats_no_dead_letter(job, kind, spark, crash_points):
    crash_points.arm("S5.prepared", "kill")
    job.run(spark)
    assert crash_points.reached("S5.prepared")
    assert_each_is_once_where_it_belongs(job, kind)


@pytest.mark.parametrize(
    ("kind", "source"),
    [
        pytest.param("json", "eo-kafka", marks=pytest.mark.full),
        ("protobuf", "eo-kafka"),
        pytest.param("protobuf", "direct", marks=pytest.mark.full),
    ],
)
def test_a_driver_that_is_killed_repeats_no_dead_letter(
    job, kind, source, spark, crash_points, tmp_path
):
    job.source, job.per_batch = source, 220
    kill_driver_at(job, crash_points, "S7.after_first_end_txn", tmp_path / "log")
    job.run(spark)
    assert_each_is_once_where_it_belongs(job, kind)


def test_a_dead_letter_says_where_it_comes_from(job, spark):
    job.run(spark)
    letters = committed_messages(job.servers, job.source_extra["deadLetterTopic"])
    origins = set()
    for letter in letters:
        assert letter.key() == letter.value()  # as it was
        said = {name.rpartition(".")[2]: value.decode() for name, value in letter.headers()}
        assert said["topic"] == job.source_topic
        assert "is no" in said["reason"]
        origins.add((int(said["partition"]), int(said["offset"])))
    assert len(origins) == len(BAD)
    messages = committed_messages(job.servers, job.source_topic)
    at = {(message.partition(), message.offset()): message.value() for message in messages}
    assert Counter(at[origin] for origin in origins) == Counter(BAD)
