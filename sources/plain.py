"""Fetches records into Arrow batches in plain Python, which works everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX = 10_000
_PARTITION_EOF = -191
# librdkafka insists on a group and looks for its coordinator, but it is a name, never joined.
GROUP_AUTHORIZATION_FAILED = 30
_LINGER_S = 0.005  # so that a batch is not cut short by a fetch that is just arriving


@dataclass(frozen=True)
class Fetched:
    """What one fetch brought.

    `batch` is None when no record came. `next_offset` is the offset after what was delivered
    (`end` itself when a record at or behind it was seen), None when nothing moved. `eof_offset`
    is where the partition ended when an end-of-partition event came. `error` is librdkafka's
    (code, text) of the first error about reading, after everything in `batch`: each is told once.
    """

    batch: pa.RecordBatch | None = None
    next_offset: int | None = None
    eof_offset: int | None = None
    error: tuple[int, str] | None = None


def fetch(
    consumer: Any,
    topic: str,
    partition: int,
    end: int,
    *,
    max_rows: int = ROWS_MAX,
    timeout: float = 0.5,
    include_headers: bool = False,
) -> Fetched:
    """What is there of one partition before offset `end`, waiting up to `timeout` seconds for it.

    The consumer is assigned to that partition alone, with enable.partition.eof. On an executor,
    many times a task. Raises SourceError for timestamps that no column holds.
    """
    first = consumer.poll(timeout)
    if first is None:
        return Fetched()
    return from_messages([first, *consumer.consume(max_rows - 1, _LINGER_S)], end, include_headers)


def from_messages(messages: Sequence[Any], end: int, include_headers: bool) -> Fetched:
    """The records before `end`, and what the others say."""
    rows: list[Any] = []
    reached: int | None = None
    eof: int | None = None
    error: tuple[int, str] | None = None
    for message in messages:
        problem = message.error()
        if problem is None:
            offset = message.offset()
            reached = min(offset + 1, end)
            if offset < end:
                rows.append(message)
        elif problem.code() == _PARTITION_EOF:
            eof = message.offset()
        elif error is None and problem.code() != GROUP_AUTHORIZATION_FAILED:
            error = (problem.code(), problem.str())
    batch = record_batch(rows, arrow_schema(include_headers)) if rows else None
    return Fetched(batch, reached, eof, error)


def arrow_schema(include_headers: bool) -> pa.Schema:
    """Exactly what Spark makes of the source's schema: it compares."""
    import pyarrow as pa

    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if include_headers:
        header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(pa.field("element", header))))
    return pa.schema(fields)


def record_batch(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Messages of one partition as columns."""
    import pyarrow as pa

    topic, partition, count = rows[0].topic(), rows[0].partition(), len(rows)
    kinds, times = zip(*[message.timestamp() for message in rows], strict=True)
    try:
        microseconds = pa.array([time_ms * 1000 for time_ms in times], pa.int64())
    except OverflowError:
        worst = max(rows, key=lambda message: abs(message.timestamp()[1]))
        raise SourceError(
            f"The timestamp of the record at offset {worst.offset()} of partition "
            f"{topic}-{partition} is {worst.timestamp()[1]} ms, which no timestamp column can hold."
        ) from None
    columns = [
        pa.array([message.key() for message in rows], pa.binary()),
        pa.array([message.value() for message in rows], pa.binary()),
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.array([message.offset() for message in rows], pa.int64()),
        microseconds.cast(schema.field("timestamp").type),
        # librdkafka counts from "not available" = 0, Spark from -1
        pa.array([kind - 1 for kind in kinds], pa.int32()),
    ]
    if "headers" in schema.names:
        columns.append(
            pa.array([message.headers() or None for message in rows], schema.field("headers").type)
        )
    return pa.record_batch(columns, schema=schema)
