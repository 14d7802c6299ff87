"""Formats of keys and values: options, columns, bad records and their way to the sink."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from eo_kafka.errors import OptionsError, SinkError, SourceError
from eo_kafka.formats import bad_records, reading
from eo_kafka.formats.avro import codec as avro_codec
from eo_kafka.formats.avro import types as avro_types
from eo_kafka.formats.options import FormatOptions
from eo_kafka.formats.reading import Reading
from eo_kafka.formats.shared import registry
from eo_kafka.formats.shared.registry import Registry, UnknownSchema
from eo_kafka.formats.writing import Writing
from eo_kafka.sinks.rows.columns_needed import column_problems
from eo_kafka.sources.settings.options import SourceOptions

SUBSCRIBED = {"kafka.bootstrap.servers": "b:9092", "subscribe": "orders"}
URL = {"schema.registry.url": "http://registry"}
ORDER = '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'
JSON_ORDERS = {"value.format": "json", "value.schema": "id BIGINT, name STRING"}


def raw(headers: bool = False) -> t.StructType:
    given = {**SUBSCRIBED, "includeHeaders": str(headers).lower()}
    return SourceOptions.parse(given, streaming=True).schema()


def of_reader(**given: str) -> FormatOptions:
    return FormatOptions.of_reader({"subscribe": "orders", **dotted(given)})


def dotted(given: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", ".").lower(): value for name, value in given.items()}


def problems(**given: str) -> list[str]:
    with pytest.raises(OptionsError) as raised:
        of_reader(**given)
    return raised.value.problems


# --- options ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"value_format": "xml"}, "must be one of raw, string, json, avro, protobuf"),
        ({"value_format": "protobuf"}, "needs 'value.message'"),
        ({"value_format": "json"}, "needs 'value.schema'"),
        ({"value_format": "avro"}, "needs 'schema.registry.url' or 'value.schema'"),
        ({"value_schema": ORDER}, "'value.format' is 'raw', which has no schema"),
        ({"key_subject": "x"}, "'key.format' is 'raw', which has no schema"),
        ({"mode": "PERMISSIVE"}, "without 'key.format' or 'value.format' there are none"),
        ({"value_format": "string", "mode": "DROP"}, "must be one of failfast"),
        ({"value_format": "string", "mode": "DEADLETTER"}, "go together"),
        ({"value_format": "string", "deadLetterTopic": "bad"}, "go together"),
        (URL, "neither keys nor values are 'avro'"),
        (
            {"value_format": "avro", "schema_registry_basic": "x"},
            "'schema.registry.url' is missing",
        ),
        ({"value_format": "avro", **URL, "subscribe": "a,b"}, "there is no one topic"),
        ({"value_fromat": "avro"}, "did you mean 'value.format'"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, str], sentence: str) -> None:
    assert sentence in " ".join(problems(**given))


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert len(problems(value_format="json", key_format="avro", mode="DEADLETTER")) == 3


def test_subjects_are_named_after_the_topic() -> None:
    options = of_reader(value_format="avro", key_format="AVRO", **URL)
    assert [column.subject for column in options.columns] == ["orders-key", "orders-value"]


def test_the_registrys_secrets_stay_out_of_reprs_and_messages() -> None:
    secret = {"schema_registry_basic_auth_user_info": "me:hunter2"}
    assert "hunter2" not in repr(of_reader(value_format="avro", **URL, **secret))
    assert "hunter2" not in " ".join(problems(value_format="avro", **secret))


# --- columns ----------------------------------------------------------------------------------


def spark_schema(options: FormatOptions, value: t.DataType, headers: bool = False) -> t.StructType:
    """What Spark makes of `reading.schema`, where that is a text."""
    found = reading.schema(options, raw(headers))
    if isinstance(found, t.StructType):
        return found
    made = t.StructType()
    kinds = {column.name: t.StringType() for column in options.columns if column.schema is None}
    for field in raw(headers).fields:
        kind = kinds.get(field.name, field.dataType)
        made.add(field.name, value if field.name == "value" else kind)
    return made.add("_bad_record", bad_records.spark_type()) if options.shows_bad_records else made


def test_without_formats_the_columns_are_the_jvm_connectors() -> None:
    assert reading.schema(of_reader(), raw()) == raw()


def test_columns_given_as_in_sql_are_left_to_spark() -> None:
    text = reading.schema(of_reader(**JSON_ORDERS, mode="permissive"), raw())
    assert isinstance(text, str)
    assert text.startswith("`key` binary, `value` STRUCT<id BIGINT, name STRING>, `topic` string")
    assert text.endswith(f", `_bad_record` {bad_records.TYPE}")
    assert "`timestamp` timestamp_ltz" in text, "whatever spark.sql.timestampType says"


def test_types_in_sparks_words_are_read_as_they_were() -> None:
    times = t.ArrayType(t.TimestampType())
    inner = t.StructType().add("timestamp", t.TimestampType()).add("a `b`", times)
    inner = inner.add("at", t.TimestampNTZType()).add("n", t.DecimalType(9, 2))
    kind = t.MapType(t.StringType(), inner)
    assert reading.words(kind) == (
        "map<string,struct<timestamp:timestamp_ltz,`a ``b```:array<timestamp_ltz>,"
        "at:timestamp_ntz,n:decimal(9,2)>>"
    )
    assert bad_records.spark_type().simpleString() == bad_records.TYPE


def test_columns_by_avro_and_by_sparks_own_json() -> None:
    kind = t.StructType().add("id", t.LongType(), nullable=False)
    avro = reading.schema(of_reader(value_format="avro", value_schema=ORDER), raw())
    assert isinstance(avro, t.StructType)
    assert avro["value"].dataType == kind
    by_json = of_reader(value_format="json", value_schema=kind.json())
    found = reading.schema(by_json, raw())
    assert isinstance(found, t.StructType)
    assert found["value"].dataType == kind


def test_another_schema_than_the_formats_is_refused() -> None:
    options = of_reader(value_format="avro", value_schema=ORDER)
    for other in (raw(), raw().add("more", "string")):
        with pytest.raises(OptionsError, match="fixed schema.*call load.. again"):
            Reading(options, raw(), other)


def fetched(values: list[bytes | None], keys: list[bytes | None] | None = None) -> pa.RecordBatch:
    count = len(values)
    shape = to_arrow_schema(raw(headers=True), timezone="UTC")
    header = [{"key": "h", "value": b"1"}]
    columns = [
        keys or [None] * count,
        values,
        ["orders"] * count,
        [3] * count,
        list(range(100, 100 + count)),
        [0] * count,
        [0] * count,
        [header] + [None] * (count - 1),
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, shape, strict=True)],
        schema=shape,
    )


def typed(options: FormatOptions, value: t.DataType, batch: pa.RecordBatch) -> pa.RecordBatch:
    made = Reading(options, raw(), spark_schema(options, value))
    (found,) = pickle.loads(pickle.dumps(made)).batches(iter([batch]))
    assert isinstance(found, pa.RecordBatch)
    return found


ORDER_TYPE = t.StructType().add("id", t.LongType()).add("name", t.StringType())


def test_values_become_columns_and_null_stays_null() -> None:
    batch = fetched([b'{"id":1,"name":"a"}', None, b'{"name":null,"x":1}', b"null"])
    found = typed(of_reader(**JSON_ORDERS), ORDER_TYPE, batch)
    assert found.column("value").to_pylist() == [
        {"id": 1, "name": "a"}, None, {"id": None, "name": None}, None,
    ]  # fmt: skip
    assert found.column("offset").to_pylist() == [100, 101, 102, 103]


def test_failfast_names_the_record_and_the_way_on() -> None:
    batch = fetched([b'{"id":1}', b'{"id":"1"}'])
    with pytest.raises(SourceError) as raised:
        typed(of_reader(**JSON_ORDERS), ORDER_TYPE, batch)
    assert str(raised.value) == (
        "The record of orders-3 at offset 101 is not of its format: value: $.id is no bigint: "
        "\"1\". To go on past such records, set option 'mode' to PERMISSIVE (null, and the bytes "
        "in a column) or DEADLETTER (they are sent to a topic)."
    )


def test_the_column_names_its_dead_letter_topic_for_the_sink() -> None:
    dead_letters = {"mode": "DEADLETTER", "deadLetterTopic": "orders.bad"}
    as_json = t.StructType().add("id", "long").json()
    options = FormatOptions.of_reader({**SUBSCRIBED, **JSON_ORDERS, **dead_letters})
    text = reading.schema(options, raw())
    assert isinstance(text, str)
    assert text.endswith(f" COMMENT '{bad_records.comment('orders.bad')}'")
    given = {**SUBSCRIBED, "value.format": "json", "value.schema": as_json}
    made = reading.schema(FormatOptions.of_reader({**given, **dead_letters}), raw())
    assert isinstance(made, t.StructType)
    assert bad_records.goes_to(made) == "orders.bad"
    permissive = reading.schema(FormatOptions.of_reader({**given, "mode": "PERMISSIVE"}), raw())
    assert isinstance(permissive, t.StructType)
    assert bad_records.goes_to(permissive) is None


def test_a_bad_record_is_shown_whole_and_its_neighbours_are_not_touched() -> None:
    options = of_reader(**JSON_ORDERS, key_format="string", mode="PERMISSIVE")
    batch = fetched([b"{", b'{"id":2}', b"\xff"], [b"\xff", b"k", None])
    found = typed(options, ORDER_TYPE, with_string_key := batch)
    assert found.column("value").to_pylist() == [None, {"id": 2, "name": None}, None]
    assert found.column("key").to_pylist() == [None, "k", None]
    first, second, third = found.column("_bad_record").to_pylist()
    assert second is None
    assert (first["topic"], first["key"], first["value"]) == (None, b"\xff", b"{")
    assert "key: it is not UTF-8 (byte 0); value: it is no JSON" in first["reason"]
    assert [header["key"] for header in first["headers"]] == [
        "h",
        "eo_kafka.bad_record.reason",
        "eo_kafka.bad_record.topic",
        "eo_kafka.bad_record.partition",
        "eo_kafka.bad_record.offset",
    ]
    assert [header["value"] for header in third["headers"]][1:] == [b"orders", b"3", b"102"]
    assert with_string_key.num_rows == 3


def test_a_reason_is_the_same_in_each_process() -> None:
    """It is a header of a dead letter, which a task that runs again must write the same."""

    class Refuses:
        def decode(self, value: bytes) -> Any:
            raise EOFError(f"cannot read double from {io.BytesIO(value)}")

        def column(self, values: pa.Array, kind: pa.DataType) -> None:
            return None

    reasons: dict[int, str] = {}
    reading._decoded(pa.array([b"x"]), Refuses(), pa.float64(), "value", reasons)
    assert reasons == {0: "value: cannot read double from <_io.BytesIO object>"}


def test_what_a_record_says_of_itself_is_not_taken_for_ours() -> None:
    """Forged, or of an earlier dead letter that was written into the input again."""
    mine = "eo_kafka.bad_record."
    own = [(f"{mine}reason", b"forged"), ("h", b"1"), (f"{mine}offset", None)]
    own += [(f"{mine}reason", b"again"), (f"{mine}reason.earlier", b"old")]
    batch = fetched([b"{"])
    at, kind = batch.schema.get_field_index("headers"), batch.schema.field("headers").type
    given = [[{"key": key, "value": value} for key, value in own]]
    batch = batch.set_column(at, batch.schema.field("headers"), pa.array(given, kind))
    options = of_reader(**JSON_ORDERS, mode="PERMISSIVE")
    (bad,) = typed(options, ORDER_TYPE, batch).column("_bad_record").to_pylist()
    names = [one["key"] for one in bad["headers"]]
    assert names == [
        *(f"{mine}reason.earlier", "h", f"{mine}offset.earlier"),
        *(f"{mine}reason.earlier", f"{mine}reason.earlier"),
        *(f"{mine}{name}" for name in ("reason", "topic", "partition", "offset")),
    ]
    values = [one["value"] for one in bad["headers"]]
    assert values[:5] == [value for _, value in own], "none is lost"
    assert b"no JSON" in values[5] and values[8] == b"100"


def test_headers_are_fetched_for_every_mode_that_shows_bad_records() -> None:
    """They are a part of the record, asked for or not."""
    shown = {"permissive": {}, "deadletter": {"deadLetterTopic": "bad"}, "failfast": {}}
    for mode, more in shown.items():
        options = of_reader(value_format="string", mode=mode, **more)
        schema = spark_schema(options, t.StringType())
        assert bool(Reading(options, raw(), schema).unread) == (mode != "failfast")


def test_a_value_that_no_column_can_hold_is_a_bad_record() -> None:
    """The decoder takes it, and Arrow does not."""
    schema = '{"type":"record","name":"R","fields":[{"name":"at","type":' + (
        '{"type":"bytes","logicalType":"decimal","precision":4,"scale":0}}]}'
    )
    parsed = fastavro.parse_schema(json.loads(schema.replace('"precision":4', '"precision":9')))
    values = []
    for number in (Decimal(1), Decimal(10_000_000)):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, {"at": number})
        values.append(stream.getvalue())
    options = of_reader(value_format="avro", value_schema=schema, mode="PERMISSIVE")
    found = typed(options, t.NullType(), fetched(list(values)))
    good, bad = found.column("_bad_record").to_pylist()
    assert good is None
    assert bad["value"] == values[1]
    assert found.column("value").null_count == 1


class Answers:
    """In place of the registry's client."""

    asked = 0

    def get_schema(self, number: int) -> Any:
        from confluent_kafka.schema_registry import Schema, SchemaRegistryError

        Answers.asked += 1
        if number == 1:
            return Schema(ORDER, "AVRO")
        if number == 2:
            return Schema('syntax = "proto3";', "PROTOBUF")
        if number in (0, 3):
            raise SchemaRegistryError(404, 40403, f"Schema {number} not found")
        raise ConnectionError("nobody there")


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> type[Answers]:
    Answers.asked = 0
    monkeypatch.setattr(Registry, "_client", Answers())
    return Answers


def test_a_schema_that_the_registry_does_not_know_is_the_records_fault(
    answers: type[Answers],
) -> None:
    with pytest.raises(UnknownSchema, match="no schema 3"):
        Registry({"url": "u"}).schema(3)
    with pytest.raises(UnknownSchema, match="is of type PROTOBUF"):
        Registry({"url": "u"}).schema(2)
    with pytest.raises(SourceError, match="did not answer: ConnectionError"):
        Registry({"url": "u"}).schema(4)

    options = of_reader(value_format="avro", value_schema=ORDER, mode="PERMISSIVE", **URL)
    good = registry.pack(1, b"\x0e")
    bad = [b"\0\0\0\0", b"", registry.pack(3, b"\x0e"), registry.pack(2, b""), good + b"x"]
    answers.asked = 0
    found = typed(options, t.NullType(), fetched([good, *bad, *bad, good]))
    assert found.column("value").to_pylist() == [{"id": 7}, *[None] * 10, {"id": 7}]
    assert answers.asked == 1 + 3, "each number is asked for once"
    reasons = [one and one["reason"] for one in found.column("_bad_record").to_pylist()]
    assert reasons[1:4] == [
        "value: it does not begin with a zero byte and a schema's number",
        "value: it does not begin with a zero byte and a schema's number",
        "value: the registry has no schema 3",
    ]


@pytest.mark.parametrize("mode", ["FAILFAST", "PERMISSIVE"])
def test_a_registry_that_does_not_answer_makes_no_record_bad(
    answers: type[Answers], mode: str
) -> None:
    options = of_reader(value_format="avro", value_schema=ORDER, mode=mode, **URL)
    with pytest.raises(SourceError, match="did not answer"):
        typed(options, t.NullType(), fetched([registry.pack(4, b"\x0e")]))


# --- the sink ---------------------------------------------------------------------------------


def writing(schema: t.StructType, **given: str) -> Writing:
    return Writing.of(FormatOptions.of_writer(dotted(given)), schema).prepared(schema)


def test_typed_columns_are_encoded() -> None:
    schema = t.StructType().add("key", t.LongType()).add("value", ORDER_TYPE)
    made = writing(schema, value_format="json", key_format="avro", key_schema="long", topic="t")
    assert made.changes_rows
    rows = pa.RecordBatch.from_pylist(
        [{"key": 7, "value": {"id": 1, "name": None}}, {"key": None, "value": None}],
        to_arrow_schema(schema, timezone="UTC"),
    )
    (found,) = pickle.loads(pickle.dumps(made)).batches(iter([rows]), "t")
    assert found.to_pylist() == [
        {"key": b"\x0e", "value": b'{"id":1}'},
        {"key": None, "value": None},
    ]
    assert not writing(schema, topic="t").changes_rows


def test_a_row_that_is_not_of_the_schema_stops_the_batch() -> None:
    schema = t.StructType().add("value", ORDER_TYPE)
    made = writing(schema, value_format="avro", value_schema=ORDER, topic="t")
    rows = pa.RecordBatch.from_pylist(
        [{"value": {"id": None, "name": "x"}}], to_arrow_schema(schema, timezone="UTC")
    )
    with pytest.raises(SinkError, match="cannot be written as avro"):
        list(made.batches(iter([rows]), "t"))


@pytest.mark.parametrize(
    ("columns", "encoded", "count"),
    [
        ([("value", "struct<a:int>")], ["value"], 0),
        ([("value", "struct<a:int>")], [], 1),
        ([("key", "int"), ("value", "string")], ["value"], 1),
        ([("key", "int")], ["value"], 2),
    ],
)
def test_columns_that_are_encoded_may_be_of_any_type(
    columns: list[tuple[str, str]], encoded: list[str], count: int
) -> None:
    assert len(column_problems(columns, topic_option=True, encoded=encoded)) == count


def test_the_schema_made_of_a_type_is_read_as_that_type() -> None:
    inner = t.StructType().add("x", t.DoubleType(), nullable=False)
    kind = (
        t.StructType()
        .add("id", t.LongType(), nullable=False)
        .add("name", t.StringType())
        .add("price", t.DecimalType(10, 2))
        .add("at", t.TimestampType())
        .add("day", t.DateType())
        .add("one", inner)
        .add("other", inner)
        .add("nested", t.StructType().add("a", t.StructType().add("b", inner)))
        .add("nested_a", t.StructType().add("b", inner))
        .add("nested_a_b", inner)
        .add("list", t.ArrayType(inner, containsNull=True))
        .add("map", t.MapType(t.StringType(), t.IntegerType(), valueContainsNull=False))
    )
    schema = avro_codec.parsed(avro_types.avro_schema(kind))
    assert avro_types.spark_type(schema) == (kind, False)


def letters(*goes_to: str | None) -> pa.Array:
    """One a row; an empty text makes none."""
    return pa.array(
        [
            None
            if where == ""
            else {
                "topic": where,
                "key": b"old key",
                "value": b"old value",
                "headers": [{"key": "h", "value": b"1"}],
                "reason": "r",
            }
            for where in goes_to
        ],
        bad_records.arrow_type(),
    )


def test_dead_letters_take_their_rows_places() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array(["a", "b", None], pa.string()),
            "value": pa.array([None, "y", None], pa.string()),
            "partition": pa.array([1, 2, None], pa.int32()),
            "_bad_record": letters("bad", "", None),
            "other": pa.array([1, 2, 3]),
        }
    )
    found = bad_records.routed(rows, "good").to_pylist()
    assert found == [
        {
            "key": b"old key",
            "value": b"old value",
            "headers": [{"key": "h", "value": b"1"}],
            "topic": "bad",
            "partition": None,
        },
        {"key": b"b", "value": b"y", "headers": None, "topic": "good", "partition": 2},
        {"key": None, "value": None, "headers": None, "topic": "good", "partition": None},
    ]


def test_dead_letters_among_rows_that_name_their_topics() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([b"x", b"y", b"z"]),
            "topic": pa.array(["t1", "t2", None], pa.string()),
            "_bad_record": letters("", "bad", ""),
        }
    )
    assert bad_records.routed(rows, None).column("topic").to_pylist() == ["t1", "bad", None]
    assert bad_records.routed(rows, "t").column("topic").to_pylist() == ["t", "bad", "t"]
    sliced = bad_records.routed(rows.slice(1, 1), None)
    assert sliced.column("value").to_pylist() == [b"old value"]


def test_only_a_column_of_that_very_type_holds_dead_letters() -> None:
    mine = t.StructType().add("value", t.StringType()).add("_bad_record", t.StringType())
    assert not writing(mine, topic="t").routes
    ours = t.StructType().add("value", t.StringType()).add("_bad_record", bad_records.spark_type())
    assert writing(ours, topic="t").routes
