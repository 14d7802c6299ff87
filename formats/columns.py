"""`eo_kafka.from_avro` and `eo_kafka.to_avro`: decode and encode columns of Avro.

The types of a column are settled when the query is made, on the driver; which schema a value was
written with, each value says itself (with a registry). Runs on executors, in Arrow batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..core.errors import OptionsError, SourceError, cut
from .avro.codec import parsed
from .avro.pieces import encoder
from .avro.reader import AvroReader, as_json
from .avro.types import spark_type
from .declared import FAILFAST, PERMISSIVE
from .shared.arrow_types import arrow_type
from .shared.decoding import typed
from .shared.registry import Registry

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_GIVE_SCHEMA = "Correct 'subject', or give 'schema'."


def from_avro(
    column: Column | str,
    schema: str | None = None,
    *,
    registry: Mapping[str, str] | None = None,
    subject: str | None = None,
    mode: str = FAILFAST,
) -> Column:
    """Decode a column of Avro bytes into a column of Spark's types.

    Called on the driver, which asks the registry once; executors ask it once for each schema they
    meet. Works in batches and streams of any source. Needs Spark 4.1 and `eo-kafka[avro]`.

    Args:
        column: The column, or its name.
        schema: An Avro schema in JSON. Without a registry it is what the values were written with.
            With one it is what they are read as; by default the newest schema of `subject`.
        registry: Settings of confluent-kafka's SchemaRegistryClient, such as `url`. Values are then
            in Confluent's wire format, and each is read with the schema it was written with.
        subject: The subject whose newest schema is used where `schema` is not given. If it
            names a context (`:.ctx:orders-value`), the values' schemas are that context's.
        mode: `FAILFAST` fails the query at a value that cannot be read, `PERMISSIVE` gives null.

    Returns:
        The decoded column.

    Raises:
        OptionsError: Neither a schema nor a registry with a subject is given, or `mode` is unknown.
        SourceError: The registry refuses, or Spark has no type for the schema.

    Examples:
        >>> schema = '''{"type": "record", "name": "Order",
        ...     "fields": [{"name": "id", "type": "long"}]}'''
        >>> encoded = spark.range(2).select(eo_kafka.to_avro(struct("id"), schema).alias("value"))
        >>> orders_again = encoded.select(eo_kafka.from_avro("value", schema).alias("order"))
        >>> orders_again.select("order.id").collect()
        [Row(id=0), Row(id=1)]
    """
    _check(schema, registry, subject, mode)
    known = None if registry is None else Registry(registry)
    wanted = schema or (known.latest(str(subject), _GIVE_SCHEMA) if known else "")
    if known and schema:
        known.look()
    kind, _ = spark_type(parsed(json.loads(as_json(wanted))))
    shape = arrow_type(kind)
    reader = AvroReader(wanted, known, subject)

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
    """Encode a column as Avro bytes. Nulls stay null.

    Called on the driver, where the registry is asked once. Needs Spark 4.1 and `eo-kafka[avro]`.

    Args:
        column: The column, or its name.
        schema: The Avro schema in JSON to write with.
        registry: Settings of confluent-kafka's SchemaRegistryClient, such as `url`. Values are then
            written in Confluent's wire format, with the number that `schema` has under `subject`.
        subject: The schema's subject; needed with a registry.
        register: Whether a schema that the subject does not have is registered. Otherwise it is
            refused.

    Returns:
        The encoded column, binary.

    Raises:
        OptionsError: A registry is given without a subject.
        SourceError: The registry refuses the schema.

    Examples:
        >>> encoded = spark.range(1).select(eo_kafka.to_avro("id", '"long"').alias("value"))
        >>> bytes(encoded.first().value)
        b'\\x00'
    """
    from pyspark.sql.types import BinaryType

    _check(schema, registry, subject or "", FAILFAST)
    number = None
    if registry is not None:
        if not subject:
            raise OptionsError(["to_avro with a registry needs the 'subject' of the schema."])
        known = Registry(registry)
        number = (
            known.register(subject, schema)
            if register
            else known.number(subject, schema, "Register it first, or give register=True.")
        )
    text = as_json(schema)

    def encode(values: pa.Array) -> pa.Array:
        return encoder(text, values.type, number)(values)

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
