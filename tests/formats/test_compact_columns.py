"""Compact values to Arrow, against the client's own serializers and readers."""

from __future__ import annotations

import datetime
import struct
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t
from serialized_values import FIXED, SINGLE, CompactService, Inner, Record, RecordSerializer

from eo_kafka.clients.hazelcast.internals import CompactSchema
from eo_kafka.errors import OptionsError, SourceError
from eo_kafka.formats.hazelcast.columns import CompactColumn

NAMES = st.text("abcXYZ_09äß", min_size=1, max_size=4)


@st.composite
def kinds(draw):
    """The client's word for a kind, Spark's type, and values."""
    name = draw(st.sampled_from(sorted(SINGLE)))
    kind, values = SINGLE[name]
    nullable = name not in FIXED or draw(st.booleans())
    word = f"nullable_{name}" if nullable and name in FIXED else name
    items = st.none() | values if nullable else values
    if draw(st.booleans()):
        return word, kind, items
    return f"array_of_{word}", t.ArrayType(kind), st.none() | st.lists(items, max_size=20)


SCHEMAS = st.dictionaries(NAMES, kinds(), min_size=1, max_size=8)


def schema_of(fields: dict) -> dict[str, str]:
    return {name: word for name, (word, _, _) in fields.items()}


def struct_of(fields: dict) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, (_, kind, _) in fields.items()])


def values_of(draw, fields: dict, made: type[Record] = Record) -> Record:
    return made({name: (word, draw(values)) for name, (word, _, values) in fields.items()})


def read(service: CompactService, pieces: list[bytes | None], kind: t.StructType) -> list:
    column = CompactColumn(kind)(pa.array(pieces, pa.binary()), service.schema_of)
    column.validate(full=True)
    return column.to_pylist()


@given(st.data(), SCHEMAS)
def test_fields_of_any_kind_are_what_the_clients_reader_says(data, fields) -> None:
    service = CompactService(RecordSerializer(Record, schema_of(fields), "outer"))
    values = [values_of(data.draw, fields) for _ in range(data.draw(st.integers(0, 4)))]
    pieces = [service.to_data(value) for value in values]
    read_by_client = [service.to_object(piece).as_row() for piece in pieces]
    assert read(service, [*pieces, None], struct_of(fields)) == [*read_by_client, None]


@given(st.data(), SCHEMAS)
def test_values_in_values_and_arrays_of_them(data, fields) -> None:
    outer = {"a": "int8", "items": "array_of_compact", "one": "compact", "z": "boolean"}
    service = CompactService(
        RecordSerializer(Record, outer, "outer"),
        RecordSerializer(Inner, schema_of(fields), "inner"),
    )

    def inner() -> Inner | None:
        return values_of(data.draw, fields, Inner) if data.draw(st.booleans()) else None

    values = [
        Record(
            {
                "a": ("int8", 1),
                "items": ("array_of_compact", items),
                "one": ("compact", inner()),
                "z": ("boolean", True),
            }
        )
        for items in data.draw(st.lists(st.none() | st.lists(st.none(), max_size=3), max_size=3))
    ]
    for value in values:
        kind, items = value.fields["items"]
        value.fields["items"] = (kind, None if items is None else [inner() for _ in items])
    kind = struct_of(fields)
    wanted = t.StructType().add("items", t.ArrayType(kind)).add("one", kind).add("z", "boolean")
    pieces = [service.to_data(value) for value in values]
    expected = [service.to_object(piece).as_row() for piece in pieces]
    found = read(service, pieces, wanted)
    assert found == [{name: row[name] for name in ("items", "one", "z")} for row in expected]


@pytest.mark.parametrize("size", [0, 100, 240, 260, 60_000, 70_000])
def test_positions_are_of_one_two_or_four_bytes(size) -> None:
    kinds = {"text": "string", "texts": "array_of_string", "none": "string"}
    service = CompactService(RecordSerializer(Record, kinds, "sized"))
    rows = [
        {"text": "x" * size, "texts": ["a", None, "y" * size], "none": None},
        {"text": "short", "texts": [], "none": None},
    ]
    pieces = [
        service.to_data(Record({name: (kinds[name], row[name]) for name in kinds})) for row in rows
    ]
    wanted = t.StructType(
        [
            t.StructField("texts", t.ArrayType(t.StringType())),
            *(t.StructField(name, t.StringType()) for name in ("text", "none")),
        ]
    )
    assert read(service, pieces, wanted) == rows


def one(word: str, value: object) -> tuple[CompactService, bytes]:
    service = CompactService(RecordSerializer(Record, {"f": word}, "one"))
    return service, service.to_data(Record({"f": (word, value)}))


DAY = datetime.datetime(2024, 2, 29, 1, 2, 3, 4)
ZONED = DAY.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2)))
FITTING = [
    ("int64", 5, t.ByteType(), 5),
    ("int8", -5, t.LongType(), -5),
    ("int32", 5, t.DoubleType(), 5.0),
    ("int32", 5, t.DecimalType(5, 2), Decimal("5.00")),
    ("float64", 1.5, t.FloatType(), 1.5),
    ("float64", float("inf"), t.FloatType(), float("inf")),
    ("float64", float("nan"), t.FloatType(), pytest.approx(float("nan"), nan_ok=True)),
    ("decimal", Decimal("1.0"), t.DecimalType(5, 2), Decimal("1.00")),
    ("decimal", Decimal("1.500"), t.DecimalType(5, 2), Decimal("1.50")),
    ("decimal", Decimal("-1E+3"), t.DecimalType(5, 0), Decimal(-1000)),
    ("timestamp", DAY, t.TimestampType(), DAY.replace(tzinfo=datetime.timezone.utc)),
    ("timestamp_with_timezone", ZONED, t.TimestampType(), ZONED),
    ("array_of_int8", [1, -1], t.BinaryType(), b"\x01\xff"),
    ("array_of_nullable_int8", [1, -1], t.BinaryType(), b"\x01\xff"),
    ("boolean", True, t.StringType(), "true"),
    ("int64", 2**40, t.StringType(), str(2**40)),
    ("float64", 1e22, t.StringType(), "1e+22"),
    ("decimal", Decimal("1.50"), t.StringType(), "1.50"),
    ("date", DAY.date(), t.StringType(), "2024-02-29"),
    ("time", DAY.time(), t.StringType(), "01:02:03.000004"),
    ("timestamp", DAY, t.StringType(), DAY.isoformat()),
    ("timestamp_with_timezone", ZONED, t.StringType(), ZONED.isoformat()),
    ("array_of_time", [DAY.time()], t.ArrayType(t.StringType()), ["01:02:03.000004"]),
]
if hasattr(t, "TimeType"):
    FITTING.append(("time", DAY.time(), t.TimeType(6), DAY.time()))


@pytest.mark.parametrize(("word", "value", "kind", "expected"), FITTING)
def test_a_field_fits_other_types_that_hold_it(word, value, kind, expected) -> None:
    service, piece = one(word, value)
    assert read(service, [piece], t.StructType().add("f", kind)) == [{"f": expected}]


@pytest.mark.parametrize(
    ("word", "value", "kind", "why"),
    [
        ("int64", 300, t.ByteType(), r"\$.f does not fit tinyint.*300 not in range"),
        ("int64", 2**53 + 1, t.DoubleType(), r"\$.f does not fit double"),
        ("float64", 1e300, t.FloatType(), r"\$.f does not fit float.*too large"),
        ("float64", 1.1, t.FloatType(), r"\$.f does not fit float: it would be rounded"),
        ("decimal", Decimal("1.005"), t.DecimalType(5, 2), r"decimal\(5,2\): it would be rounded"),
        ("float64", 1.0, t.LongType(), r"\$.f is float64, which is not read as bigint"),
        ("string", "1", t.LongType(), r"\$.f is string, which is not read as bigint"),
        ("decimal", Decimal("12345"), t.DecimalType(4, 0), r"\$.f does not fit decimal\(4,0\)"),
        ("timestamp_with_timezone", ZONED, t.TimestampNTZType(), "timestamp with timezone, which"),
        ("string", "x", t.ArrayType(t.StringType()), "is string, which is not read as array"),
        ("array_of_string", ["x"], t.StringType(), "an array of string, which is not read"),
        ("array_of_int16", [1], t.BinaryType(), "an array of int16, which is not read as binary"),
        ("array_of_nullable_int8", [None], t.BinaryType(), "has items that are null"),
    ],
)
def test_what_does_not_fit_is_told_with_the_field(word, value, kind, why) -> None:
    service, piece = one(word, value)
    with pytest.raises(SourceError, match=f"It is not of its schema: .*{why}"):
        read(service, [piece], t.StructType().add("f", kind))


@pytest.mark.parametrize(
    ("word", "value", "kind", "may_be_null"),
    [
        ("nullable_int32", None, t.IntegerType(), False),
        ("string", None, t.StringType(), False),
        ("array_of_string", ["x", None], t.ArrayType(t.StringType(), containsNull=False), True),
    ],
)
def test_a_null_where_the_schema_says_not_null_is_refused(word, value, kind, may_be_null) -> None:
    service, piece = one(word, value)
    wanted = t.StructType().add("f", kind, nullable=may_be_null)
    with pytest.raises(SourceError, match=r"\$\.f(\[\])? is null or missing, and is NOT NULL"):
        read(service, [piece], wanted)


def test_a_field_that_no_value_has_is_not_shown_as_zero_where_it_may_not_be_null() -> None:
    inner = t.StructType().add("there", "integer", nullable=False)
    service, piece = one("int32", 7)
    assert read(service, [piece], t.StructType().add("other", inner)) == [{"other": None}]
    with pytest.raises(SourceError, match=r"\$\.missing is null or missing"):
        read(service, [piece], t.StructType().add("missing", "integer", nullable=False))


def test_versions_of_a_type_and_other_types_are_read_side_by_side() -> None:
    first = CompactService(RecordSerializer(Record, {"id": "int32"}, "order"))
    later = CompactService(
        RecordSerializer(Record, {"id": "int64", "name": "string", "new": "boolean"}, "order")
    )
    pieces = [
        first.to_data(Record({"id": ("int32", 1)})),
        later.to_data(
            Record({"id": ("int64", 2), "name": ("string", "b"), "new": ("boolean", True)})
        ),
        first.to_data(Record({"id": ("int32", 3)})),
    ]
    later.schemas.update(first.schemas)
    wanted = t.StructType().add("name", "string").add("id", "long").add("nobody has it", "date")
    assert read(later, pieces, wanted) == [
        {"name": name, "id": number, "nobody has it": None}
        for number, name in ((1, None), (2, "b"), (3, None))
    ]


@pytest.mark.parametrize(
    "kind",
    [
        t.MapType(t.StringType(), t.LongType()),
        t.ArrayType(t.ArrayType(t.LongType())),
        t.StructType().add("x", t.DayTimeIntervalType()),
    ],
)
def test_types_that_no_field_has_are_refused_at_once(kind) -> None:
    with pytest.raises(OptionsError, match=r"Compact has no fields that are .* \(at \$\.f"):
        CompactColumn(t.StructType().add("f", kind))
    with pytest.raises(OptionsError, match="is columns, not bigint"):
        CompactColumn(t.LongType())


def test_a_value_of_another_type_and_a_kind_that_is_not_compacts() -> None:
    service, piece = one("int8", 1)
    wanted = t.StructType().add("f", "byte")
    text = struct.pack(">iii", 0, -11, 1) + b"x"
    with pytest.raises(SourceError, match="of Hazelcast's type -11, and Compact is -55: read"):
        read(service, [piece, text], wanted)
    service.schemas = dict.fromkeys(service.schemas, CompactSchema("one", (("f", 31),)))
    with pytest.raises(SourceError, match=r"'f' is of a kind that Compact does not have \(31\)"):
        read(service, [piece], wanted)


@given(st.data(), SCHEMAS)
def test_damage_is_told_in_a_sentence(data, fields) -> None:
    """Or is not seen: then the columns are whole, and each row but the damaged one is as it was."""
    service = CompactService(RecordSerializer(Record, schema_of(fields), "outer"))
    good = service.to_data(values_of(data.draw, fields))
    noise = data.draw(st.binary(min_size=1, max_size=8))
    at = data.draw(st.integers(16, len(good)))
    damaged = good[:at] + noise + good[at + len(noise) :]
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    try:
        found = read(service, [good, damaged, good], struct_of(fields))
    except SourceError as error:
        assert str(error).startswith("It is not ")
    else:
        assert found[0] == found[2] == service.to_object(good).as_row()
