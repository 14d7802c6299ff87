"""Bad records: the column that carries them, and their way to the dead letter topic.

Column `_bad_record` holds a whole record as it was, and where it goes. The sink swaps it in for the
row, so that it is written in the transaction of the batch like any other, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..core.bad_record_headers import OFFSET, PARTITION, REASON, TOPIC
from ..core.errors import OptionsError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

COLUMN = "_bad_record"
UNREAD = "_unread"  # the column in which the source says what it could not read of a record
HEADERS_TYPE = "array<struct<key:string,value:binary>>"
TYPE = f"struct<topic:string,key:binary,value:binary,headers:{HEADERS_TYPE},reason:string>"
_GOES_TO = "Records that cannot be read; the sink sends them to topic "
# What a dead letter's headers say of it, behind its own. Each is there once: a header of its own of
# such a name (it was a dead letter before, or somebody forges one) gets _EARLIER behind the name.
_OURS = (REASON, TOPIC, PARTITION, OFFSET)
_EARLIER = ".earlier"


@dataclass(frozen=True)
class BadRecord:
    """A row of a batch that was read, and why it is bad."""

    row: int
    reason: str


def spark_type() -> StructType:
    """The column's type."""
    from pyspark.sql.types import ArrayType, BinaryType, StringType, StructType

    header = StructType().add("key", StringType()).add("value", BinaryType())
    return (
        StructType()
        .add("topic", StringType())
        .add("key", BinaryType())
        .add("value", BinaryType())
        .add("headers", ArrayType(header))
        .add("reason", StringType())
    )


def comment(goes_to: str) -> str:
    """Of the column, where the records go to a dead letter topic. Spark hands it on with the column
    to the sink (not through `dropDuplicates`), so that the sink can look for the topic at once."""
    return f"{_GOES_TO}{goes_to}"


def goes_to(schema: StructType) -> str | None:
    """The dead letter topic that the column's comment names, if it has one."""
    for field in schema.fields:
        said = str(field.metadata.get("comment"))
        if field.name == COLUMN and said.startswith(_GOES_TO):
            return said.removeprefix(_GOES_TO)
    return None


def lost_in(sink: str, schema: StructType, nulls: bool = False) -> str | None:
    """What becomes of the bad records among rows of `schema` in format `sink`; None: no harm that
    is known. Whoever left the column out, or gave it another name, has seen it, unless `nulls`: bad
    records are there without it."""
    topic = goes_to(schema)
    if topic is not None and sink != "eo-kafka":
        return (
            f"Mode DEADLETTER of the source wants records that cannot be read in topic '{topic}', "
            f"and format '{sink}' sends no dead letters: the records in column '{COLUMN}' would be "
            "lost."
        )
    removes = {"eo-map": "a map", "eo-kafka": "a compacted topic"}.get(sink)
    if topic is None and removes is not None and (nulls or COLUMN in schema.names):
        return (
            f"The value of a record that cannot be read (column '{COLUMN}') is null, which removes "
            f"its key from {removes}."
        )
    return None


def refuse_lost(sink: str, schema: StructType) -> None:
    """Raises OptionsError where a sink that sends no dead letters would lose bad records."""
    if (lost := lost_in(sink, schema)) is not None:
        raise OptionsError(
            [
                f'{lost} Leave such records out, with where("{COLUMN} IS NULL"), and then drop the '
                "column. To keep them, write them into topics with an eo_kafka.foreach_batch of "
                "their own, in the same foreachBatch: docs/how-to/dead-letters.md."
            ]
        )


def arrow_type() -> pa.DataType:
    """The same for Arrow."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.struct(
        [
            ("topic", pa.string()),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(pa.field("element", header))),
            ("reason", pa.string()),
        ]
    )


def column_of(batch: pa.RecordBatch, bad: Sequence[BadRecord], goes_to: str | None) -> pa.Array:
    """The column for a batch as it was read; null where the record is good. `goes_to` is the dead
    letter topic; without one a record stays where it is."""
    import pyarrow as pa

    values: list[dict[str, object] | None] = [None] * batch.num_rows
    own = batch.column("headers") if "headers" in batch.schema.names else None
    for one in bad:
        at = {name: batch.column(name)[one.row].as_py() for name in batch.schema.names[:5]}
        headers = [
            {**header, "key": f"{header['key']}{_EARLIER}"} if header["key"] in _OURS else header
            for header in (own[one.row].as_py() if own is not None else None) or ()
        ]
        headers += [
            {"key": REASON, "value": one.reason.encode()},
            {"key": TOPIC, "value": at["topic"].encode()},
            {"key": PARTITION, "value": b"%d" % at["partition"]},
            {"key": OFFSET, "value": b"%d" % at["offset"]},
        ]
        values[one.row] = {
            "topic": goes_to,
            "key": at["key"],
            "value": at["value"],
            "headers": headers,
            "reason": one.reason,
        }
    return pa.array(values, arrow_type())


def routed(batch: pa.RecordBatch, topic: str | None) -> pa.RecordBatch:
    """The batch, dead letters in their rows' places, each row with its topic. `topic` is the
    sink's option, which goes before a row's own."""
    import pyarrow as pa
    import pyarrow.compute as pc

    letters = batch.column(COLUMN)
    dead = pc.is_valid(pc.struct_field(letters, "topic"))
    names = batch.schema.names
    columns: dict[str, pa.Array] = {}
    for name in ("key", "value", "headers"):
        instead = pc.struct_field(letters, name)
        kind = instead.type
        given = batch.column(name).cast(kind) if name in names else pa.nulls(len(batch), kind)
        columns[name] = pc.if_else(dead, instead, given)
    if topic is not None:
        own = pa.array([topic] * len(batch), pa.string())
    else:
        own = batch.column("topic").cast(pa.string()) if "topic" in names else None
    if own is None:
        own = pa.nulls(len(batch), pa.string())
    columns["topic"] = pc.if_else(dead, pc.struct_field(letters, "topic"), own)
    if "partition" in names:
        nowhere = pa.scalar(None, pa.int32())
        columns["partition"] = pc.if_else(dead, nowhere, batch.column("partition"))
    return pa.RecordBatch.from_pydict(columns)
