"""`eo_kafka.from_avro` and `eo_kafka.to_avro`: columns of Avro bytes, with a schema registry or
without one.

The types of a column are settled when the query is made, on the driver; which schema a value was
written with, each value says itself (with a registry). Runs on executors, in Arrow batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from eo_kafka.errors import OptionsError, SourceError, cut
from eo_kafka.formats.avro import registry as wire
from eo_kafka.formats.avro.codec import encoder, parsed
from eo_kafka.formats.avro.reader import AvroReader, as_json
from eo_kafka.formats.avro.registry import Registry
from eo_kafka.formats.avro.types import spark_type
from eo_kafka.formats.declared import FAILFAST, PERMISSIVE
from eo_kafka.formats.shared.arrow_types import arrow_type
from eo_kafka.formats.shared.decoding import typed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def from_avro(
    column: Column | str,
    schema: str | None = None,
    *,
    registry: Mapping[str, str] | None = None,
    subject: str | None = None,
    mode: str = FAILFAST,
) -> Column:
    """Avro bytes as a column of Spark's types.

    With `registry` (the settings of confluent-kafka's SchemaRegistryClient) values are in
    Confluent's wire format, each read with the schema it was written with, and seen as `schema`, or
    as the newest of `subject`; without, they are bare, and written with `schema`. `mode`: a value
    that cannot be read fails the query (`FAILFAST`) or is null (`PERMISSIVE`). Called on the
    driver, where the registry is asked once; executors ask it once for each schema.

    Raises OptionsError, and SourceError for what the registry refuses or Spark has no type for.
    """
    _check(schema, registry, subject, mode)
    known = None if registry is None else Registry(registry)
    wanted = schema or (known.latest(str(subject)) if known else "")
    kind, _ = spark_type(parsed(json.loads(as_json(wanted))))
    shape = arrow_type(kind)
    reader = AvroReader(wanted, known)

    def decode(values: pa.Array) -> pa.Array:
        def bad(row: int, error: Exception) -> None:
            if mode != PERMISSIVE:
                size = len(values[row].as_py())
                raise SourceError(
                    f"A value of {size} bytes cannot be read as Avro: {cut(error, 200)}. To have "
                    f"null in its place, use mode {PERMISSIVE}."
                ) from None

        return typed(values, reader, shape, bad)

    return _arrow_udf(decode, kind)(column)


def to_avro(
    column: Column | str,
    schema: str,
    *,
    registry: Mapping[str, str] | None = None,
    subject: str | None = None,
    register: bool = False,
) -> Column:
    """A column as Avro bytes, written with `schema`.

    With `registry` in Confluent's wire format, with the number that `schema` has under `subject`;
    `register` makes it if it is new, else it must be there. Nulls stay null. Called on the driver.
    Raises OptionsError, and SourceError if the registry refuses the schema.
    """
    from pyspark.sql.types import BinaryType

    _check(schema, registry, subject or "", FAILFAST)
    number = None
    if registry is not None:
        if not subject:
            raise OptionsError(["to_avro with a registry needs the 'subject' of the schema."])
        known = Registry(registry)
        number = known.register(subject, schema) if register else known.number(subject, schema)
    text = as_json(schema)

    def encode(values: pa.Array) -> pa.Array:
        import pyarrow as pa

        write = encoder(text).encode
        found = []
        for value in values:
            one = value.as_py()
            data = None if one is None else write(one)
            found.append(data if data is None or number is None else wire.pack(number, data))
        return pa.array(found, pa.binary())

    return _arrow_udf(encode, BinaryType())(column)


def _check(schema: str | None, registry: object, subject: str | None, mode: str) -> None:
    problems = []
    if schema is None and (registry is None or subject is None):
        problems.append("Avro needs a 'schema', or a 'registry' and a 'subject'.")
    if mode not in (FAILFAST, PERMISSIVE):
        problems.append(f"Avro's mode must be {FAILFAST} or {PERMISSIVE}; it is '{mode}'.")
    if problems:
        raise OptionsError(problems)


def _arrow_udf(
    function: Callable[[pa.Array], pa.Array], kind: DataType
) -> Callable[[Column | str], Column]:
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

    # The annotations are mere names in this module; Spark is told the kind of function instead.
    function.__annotations__.clear()
    made: Callable[[Column | str], Column] = arrow_udf(function, kind, ArrowUDFType.SCALAR)
    return made
