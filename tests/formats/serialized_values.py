"""Compact and Portable values of any fields, written and read by Hazelcast's own client."""

from __future__ import annotations

import datetime
from typing import Any

from hazelcast.config import Config, IntType
from hazelcast.serialization.api import CompactSerializer, Portable
from hazelcast.serialization.compact import SchemaNotReplicatedError
from hazelcast.serialization.data import Data
from hazelcast.serialization.service import SerializationServiceV1
from hypothesis import strategies as st
from pyspark.sql import types as t

from eo_kafka.clients.hazelcast.internals import CompactSchema

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
UTC = datetime.timezone.utc
_TIMES = st.datetimes(datetime.datetime(2, 1, 2), datetime.datetime(9998, 1, 1))
_ZONES = st.integers(-18 * 3600, 18 * 3600).map(
    lambda seconds: datetime.timezone(datetime.timedelta(seconds=seconds))
)
# By the client's word for a kind: Spark's type, and its values
SINGLE: dict[str, tuple[t.DataType, st.SearchStrategy]] = {
    "boolean": (t.BooleanType(), st.booleans()),
    "int8": (t.ByteType(), st.integers(-(2**7), 2**7 - 1)),
    "int16": (t.ShortType(), st.integers(-(2**15), 2**15 - 1)),
    "int32": (t.IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (t.LongType(), st.integers(-(2**63), 2**63 - 1)),
    "float32": (t.FloatType(), st.floats(width=32, allow_nan=False)),
    "float64": (t.DoubleType(), st.floats(allow_nan=False)),
    "string": (t.StringType(), TEXTS),
    "decimal": (t.DecimalType(38, 4), st.decimals(-(10**30), 10**30, places=4)),
    "time": (t.StringType(), st.times()),
    "date": (t.DateType(), st.dates()),
    "timestamp": (t.TimestampNTZType(), _TIMES),
    "timestamp_with_timezone": (
        t.TimestampType(),
        st.datetimes(datetime.datetime(2, 1, 2), datetime.datetime(9998, 1, 1), timezones=_ZONES),
    ),
}
FIXED = ("boolean", "int8", "int16", "int32", "int64", "float32", "float64")


def expected(kind: str, value: Any) -> Any:
    """What Arrow gives for what the client's reader read."""
    if isinstance(value, list | tuple):
        return [expected(kind, one) for one in value]
    if "timestamp_with_timezone" in kind and value is not None:
        return value.astimezone(UTC)
    if isinstance(value, datetime.time):
        return value.isoformat()
    if isinstance(value, Record | PortableRecord):
        return value.as_row()
    return value


class Record:
    """A Compact value: name -> (kind, value)."""

    def __init__(self, fields: dict[str, tuple[str, Any]]) -> None:
        self.fields = fields

    def as_row(self) -> dict[str, Any]:
        return {name: expected(kind, value) for name, (kind, value) in self.fields.items()}


class Inner(Record):
    """One inside another."""


class RecordSerializer(CompactSerializer):
    """Of one schema: name -> kind."""

    def __init__(self, of: type[Record], kinds: dict[str, str], type_name: str) -> None:
        self._of, self._kinds, self._type_name = of, kinds, type_name

    def read(self, reader):
        return self._of(
            {
                name: (kind, getattr(reader, f"read_{kind}")(name))
                for name, kind in self._kinds.items()
            }
        )

    def write(self, writer, value):
        for name, kind in self._kinds.items():
            getattr(writer, f"write_{kind}")(name, value.fields[name][1])

    def get_class(self):
        return self._of

    def get_type_name(self):
        return self._type_name


class CompactService:
    """The client's serialization, without a cluster."""

    def __init__(self, *serializers: CompactSerializer) -> None:
        config = Config()
        config.compact_serializers = list(serializers)
        config.default_int_type = IntType.LONG
        self._service = SerializationServiceV1(config)
        self.schemas: dict[int, CompactSchema] = {}

    def to_data(self, value: object) -> bytes:
        while True:
            try:
                return bytes(self._service.to_data(value).buffer)
            except SchemaNotReplicatedError as error:
                found = error.schema
                self._service.compact_stream_serializer.register_schema_to_type(found, error.clazz)
                fields = tuple((one.name, int(one.kind)) for one in found.fields)
                self.schemas[found.schema_id] = CompactSchema(found.type_name, fields)

    def to_object(self, data: bytes) -> Any:
        return self._service.to_object(Data(data))

    def schema_of(self, number: int) -> CompactSchema:
        return self.schemas[number]


# By the client's word: Spark's type, and values
PORTABLE: dict[str, tuple[t.DataType, st.SearchStrategy]] = {
    "boolean": SINGLE["boolean"],
    "byte": (t.ByteType(), st.integers(0, 255)),  # the client writes them without a sign
    "char": (
        t.StringType(),
        st.characters(max_codepoint=0x7FFF),
    ),  # beyond, the client reads a sign
    "short": SINGLE["int16"],
    "int": SINGLE["int32"],
    "long": SINGLE["int64"],
    "float": SINGLE["float32"],
    "double": SINGLE["float64"],
    "string": SINGLE["string"],
    **{name: SINGLE[name] for name in ("decimal", "time", "date", "timestamp")},
    "timestamp_with_timezone": SINGLE["timestamp_with_timezone"],
}
PORTABLE_NULLABLE = ("string", "decimal", "time", "date", "timestamp", "timestamp_with_timezone")


class PortableRecord(Portable):
    """Of one class definition: name -> kind."""

    kinds: dict[str, str]
    number: int

    def __init__(self, fields: dict[str, Any] | None = None) -> None:
        self.fields = fields or {}

    def get_factory_id(self) -> int:
        return 7

    def get_class_id(self) -> int:
        return self.number

    def write_portable(self, writer) -> None:
        for name, kind in self.kinds.items():
            getattr(writer, f"write_{kind}")(name, self.fields[name])

    def read_portable(self, reader) -> None:
        self.fields = {
            name: getattr(reader, f"read_{kind}")(name) for name, kind in self.kinds.items()
        }

    def as_row(self) -> dict[str, Any]:
        return {name: expected(self.kinds[name], value) for name, value in self.fields.items()}


def portable_class(kinds: dict[str, str], number: int = 1) -> type[PortableRecord]:
    return type("Made", (PortableRecord,), {"kinds": kinds, "number": number})


def portable_service(*classes: type[PortableRecord]) -> SerializationServiceV1:
    config = Config()
    config.portable_factories = {7: {one.number: one for one in classes}}
    return SerializationServiceV1(config)
