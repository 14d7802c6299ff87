"""Fetches records into Arrow batches in plain Python, which works everywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import SourceError

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_MAX = 10_000
_PARTITION_EOF = -191
# librdkafka insists on a group and looks for its coordinator, but it is a name, never joined.
GROUP_AUTHORIZATION_FAILED = 30
_TIME_MAX_MS = (2**63 - 1) // 1000
OR_DELETE = (
    "delete the partition's records up to and with it, once nobody needs them (kafka-delete-records"
    ".sh), and start with 'failOnDataLoss' false"
)
_LINGER_S = 0.005  # so that a batch is not cut short by a fetch that is just arriving


@dataclass(frozen=True)
class Fetched:
    """What came in one piece.

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
    unread: str | None = None,
) -> Iterator[Fetched]:
    """What is there of one partition before offset `end`, waiting up to `timeout` seconds for it.

    The consumer is assigned to that partition alone, with enable.partition.eof, and unassigned at
    `end`. On an executor, many times a task. Raises SourceError for timestamps that no column
    holds; with `unread` they are null, and the batch has a column of that name that says why, null
    where all was read.
    """
    first = consumer.poll(timeout)
    if first is not None:
        messages = [first, *consumer.consume(max_rows - 1, _LINGER_S)]
        fetched = from_messages(messages, end, include_headers, unread)
        if fetched.next_offset == end:
            consumer.unassign()  # it would fetch more, which nobody reads
        yield fetched


def from_messages(
    messages: Sequence[Any], end: int, include_headers: bool, unread: str | None = None
) -> Fetched:
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
    batch = record_batch(rows, arrow_schema(include_headers), unread) if rows else None
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


def is_beyond(time_ms: Any) -> Any:
    """Whether no timestamp column can hold it; of an array, where."""
    return (time_ms > _TIME_MAX_MS) | (time_ms < -_TIME_MAX_MS)


def beyond(time_ms: int) -> str:
    """What is wrong with such a record."""
    return f"its timestamp is {time_ms} ms, which no timestamp column can hold"


def refused(topic: str, partition: int, offset: int, why: str, or_else: str) -> SourceError:
    """The error for a record that cannot be read whole, where nothing else is asked for."""
    return SourceError(
        f"The record of {topic}-{partition} at offset {offset} cannot be read: {why}. To go on "
        "past such records, read the topic with 'key.format' or 'value.format' and option 'mode' "
        "PERMISSIVE (null, and the bytes in a column) or DEADLETTER (they are sent to a topic). "
        f"Else {or_else}."
    )


def with_unread(batch: pa.RecordBatch, name: str, reasons: dict[int, str]) -> pa.RecordBatch:
    """The batch with column `name`, if there are `reasons` of some rows."""
    import pyarrow as pa

    if not reasons:
        return batch
    column = pa.array([reasons.get(row) for row in range(batch.num_rows)], pa.string())
    return batch.append_column(name, column)


def record_batch(
    rows: Sequence[Any], schema: pa.Schema, unread: str | None = None
) -> pa.RecordBatch:
    """Messages of one partition as columns."""
    import pyarrow as pa

    topic, partition, count = rows[0].topic(), rows[0].partition(), len(rows)
    kinds, times = zip(*[message.timestamp() for message in rows], strict=True)
    reasons = {row: beyond(time_ms) for row, time_ms in enumerate(times) if is_beyond(time_ms)}
    if reasons and unread is None:
        row, why = next(iter(reasons.items()))
        raise refused(topic, partition, rows[row].offset(), why, OR_DELETE)
    known = [None if row in reasons else time_ms * 1000 for row, time_ms in enumerate(times)]
    microseconds = pa.array(known, pa.int64())
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
    batch = pa.record_batch(columns, schema=schema)
    return batch if unread is None else with_unread(batch, unread, reasons)
