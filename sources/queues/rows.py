"""The columns of a queue's messages: the Kafka source's, and what their broker says. Executors.

Nothing reads the inbox but the Kafka source; here its batches get more columns, out of the header
that the receiver puts first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...core.errors import SourceError
from .message import MAY_SAY, META, SAID, VERSION, time_ms

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def with_messages(kafka: StructType) -> StructType:
    """The Kafka source's columns, `headers` among them, and the messages' own."""
    from pyspark.sql import types

    columns = types.StructType(list(kafka.fields))
    for name in ("messageId", "exchange", "routingKey"):
        columns = columns.add(name, types.StringType())
    return (
        columns.add("redelivered", types.BooleanType())
        .add("deliveries", types.LongType())
        .add("sent", types.TimestampType())
        .add("properties", types.MapType(types.StringType(), types.StringType()))
    )


def unpacked(batches: Iterator[pa.RecordBatch], shape: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Each batch of the inbox in the columns of `shape`. Raises SourceError for a record that the
    receiver did not write."""
    return (_unpacked(batch, shape) for batch in batches)


def _unpacked(batch: pa.RecordBatch, shape: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    columns: dict[str, Any] = {name: batch.column(name) for name in batch.schema.names}
    metas, columns["headers"] = _split(batch, shape.field("headers").type)
    columns["messageId"] = [
        meta.get("id", None if key is None else key.decode(errors="backslashreplace"))
        for meta, key in zip(metas, batch.column("key").to_pylist(), strict=True)
    ]
    for name in ("exchange", "routingKey", "redelivered", "deliveries"):
        columns[name] = [meta[name] for meta in metas]
    # The receiver of before kept times that no column can hold.
    sent = [None if meta["sent"] is None else time_ms(meta["sent"]) for meta in metas]
    columns["sent"] = [None if one is None else one * 1000 for one in sent]
    columns["properties"] = [list(meta["properties"].items()) for meta in metas]
    arrays = [
        columns[one.name]
        if isinstance(columns[one.name], pa.Array)
        else pa.array(columns[one.name], one.type)
        for one in shape
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=shape)


def _split(batch: pa.RecordBatch, kind: pa.DataType) -> tuple[list[dict[str, Any]], pa.Array]:
    """What the receiver wrote of each message, and the message's own headers."""
    import pyarrow as pa

    metas, headers = [], []
    for row, all_of_it in enumerate(batch.column("headers").to_pylist()):
        first = all_of_it[0] if all_of_it else {"key": None, "value": None}
        meta = _meta(first["value"]) if first["key"] == META else None
        if meta is None:
            at = [batch.column(name)[row].as_py() for name in ("topic", "partition", "offset")]
            raise SourceError(
                f"The record of {at[0]}-{at[1]} at offset {at[2]} was not written by this version "
                "of eo-queue: somebody else writes into the inbox, or a newer version has. No row "
                "of its batch was handed on. An inbox belongs to one queue and one job."
            )
        metas.append(meta)
        headers.append(all_of_it[1:] or None)
    return metas, pa.array(headers, kind)


def _meta(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"")
    except ValueError:
        return None
    if not isinstance(found, dict) or found.pop("v", None) != VERSION:
        return None
    return found if SAID <= found.keys() <= MAY_SAY else None
