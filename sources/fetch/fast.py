"""Fetches records into Arrow batches in compiled loops, without an object for each record.

Records are taken from the partition's own queue. confluent-kafka's callbacks (errors, OAuth, logs)
may only run inside its own methods, and on the consumer's common queue they would run in our loop;
the partition's queue holds records, ends of partition and the partition's errors only. The common
queue is served between the loops, through confluent-kafka.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core import librdkafka
from ...core.errors import SourceError
from . import plain
from . import read_loops as loops
from .plain import Fetched

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

ROWS_MAX = 20_000
BYTES_MAX = 4 * 2**20
_SLICE_S = 0.2  # callbacks and signals wait this long at most
_FIRST_TAKE = 2
_INT32_MAX = 2**31 - 1
_NO_HEADERS = (
    "Kafka's C client does not read its headers: there are more than 100,000, or they are damaged"
)
_OR_WITHOUT = "read the topic without 'includeHeaders', or this record by Spark's own connector"


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

    The consumer is assigned to the partition, with enable.partition.eof. On an executor, many
    times a task. Gives one piece, or several if all that is left is there: then the consumer is
    unassigned first, for it would fetch up to 8 MiB that nobody reads. Assign anew to read on. Once
    a partition was read this way, its records do not come out of the consumer's poll() any more.

    Raises SourceError for timestamps that no column holds and headers that librdkafka does not
    read, unless `unread` is given (see plain.fetch); librdkafka.Unavailable when the consumer is
    not one this can drive.
    """
    early: list[Any] = []
    taken: list[_Taken] = []
    try:
        with _own_queue(consumer, topic, partition) as queue:
            deadline = time.monotonic() + timeout
            while True:
                # What came before the queue was ours is older than all in it.
                early = consumer.consume(max_rows, 0)
                if early:
                    break
                left = deadline - time.monotonic()
                wait_ms = int(1000 * min(max(left, 0), _SLICE_S))
                taken += _take(queue, end, max_rows, wait_ms, include_headers)
                if taken or left <= 0:
                    break
            while taken and 0 < taken[-1].left(end) <= _waiting(queue):
                more = _take(queue, end, max_rows, 0, include_headers)
                if not more:
                    break
                taken += more
        if early:
            yield plain.from_messages(early, end, include_headers, unread)
        elif taken and taken[-1].left(end) <= 0:
            consumer.unassign()
        while taken:
            fetched = _fetched(taken[0], topic, partition, end, include_headers, unread)
            taken.pop(0).discard()
            yield fetched
    finally:
        for piece in taken:
            piece.discard()


def set_apart(consumer: Any, topic: str, partition: int) -> None:
    """Let the records of a partition come in its own queue, from the first: to be called before
    the consumer is assigned to it. Raises librdkafka.Unavailable.
    """
    with _own_queue(consumer, topic, partition):
        pass


@contextmanager
def _own_queue(consumer: Any, topic: str, partition: int) -> Iterator[int]:
    rk, handle = librdkafka.library(), librdkafka.raw_handle(consumer)
    queue = rk.rd_kafka_queue_get_partition(handle, topic.encode(), partition)
    if not queue:
        raise librdkafka.Unavailable("librdkafka has no queue for the partition")
    try:
        # Sticks to the partition, through later assignments too.
        rk.rd_kafka_queue_forward(queue, None)
        yield queue
    finally:
        rk.rd_kafka_queue_destroy(queue)


@dataclass(frozen=True)
class _Taken:
    """Messages that are librdkafka's until they are discarded, and what they need."""

    messages: np.ndarray[Any, Any]
    totals: np.ndarray[Any, Any]

    def left(self, end: int) -> int:
        """How many offsets before `end` are behind these."""
        return 0 if self.totals[loops.BEYOND] else end - 1 - int(self.totals[loops.LAST])

    def discard(self) -> None:
        loops.discard(self.messages, self.messages.size)


def _waiting(queue: int) -> int:
    return int(librdkafka.library().rd_kafka_queue_length(queue))


def _take(queue: int, end: int, max_rows: int, wait_ms: int, include_headers: bool) -> list[_Taken]:
    """What is in the queue, as much as goes into one batch. Empty when nothing came in time."""
    import numpy as np

    messages = np.zeros(max_rows, np.int64)
    totals, cells = np.zeros(loops.TOTALS, np.int64), np.zeros(8, np.int64)
    totals[[loops.LAST, loops.UNREAD]] = -1
    count, want = 0, min(_FIRST_TAKE, max_rows)
    try:
        while want > 0:
            got = loops.take(
                queue, wait_ms, messages, count, want, end, totals, include_headers, cells
            )
            count, wait_ms = count + got, 0
            if got < want or totals[loops.EVENTS] or totals[loops.BEYOND]:
                break
            size = int(totals[[loops.KEY_BYTES, loops.VALUE_BYTES, loops.CONTENT_BYTES]].sum())
            # as many as fit if they are like those before
            fit = (BYTES_MAX - size) * count // max(size, 1)
            want = min(max_rows - count, fit, 4 * count)
    except BaseException:  # a signal's, say: the client waits in close() for messages it gave away
        loops.discard(messages, np.count_nonzero(messages))
        raise
    return [_Taken(messages[:count], totals)] if count else []


def _fetched(
    taken: _Taken, topic: str, partition: int, end: int, include_headers: bool, unread: str | None
) -> Fetched:
    """What was taken, as a batch, and what the messages without a record say."""
    messages, totals = taken.messages, taken.totals
    if totals[loops.UNREAD] >= 0 and unread is None:
        offset = int(totals[loops.UNREAD])
        raise plain.refused(topic, partition, offset, _NO_HEADERS, _OR_WITHOUT)
    batch = None
    if totals[loops.ROWS]:
        batch = _record_batch(messages, totals, topic, partition, end, include_headers, unread)
    eof, error = _events(messages) if totals[loops.EVENTS] else (None, None)
    last = int(totals[loops.LAST])
    moved = end if totals[loops.BEYOND] else last + 1 if last >= 0 else None
    return Fetched(batch, moved, eof, error)


def _record_batch(
    messages: np.ndarray[Any, Any],
    totals: np.ndarray[Any, Any],
    topic: str,
    partition: int,
    end: int,
    include_headers: bool,
    unread: str | None,
) -> pa.RecordBatch:
    import numpy as np
    import pyarrow as pa

    rows, headers = int(totals[loops.ROWS]), int(totals[loops.HEADERS])
    key, value = (
        _column(rows, totals[loops.KEY_BYTES]),
        _column(rows, totals[loops.VALUE_BYTES]),
    )
    name = _column(headers, totals[loops.NAME_BYTES])
    content = _column(headers, totals[loops.CONTENT_BYTES])
    lists = (np.zeros(rows + 1, np.int32), np.zeros(rows, np.uint8))
    offsets, times = np.empty(rows, np.int64), np.empty(rows, np.int64)
    kinds = np.empty(rows, np.int32)
    loops.pack(
        messages, messages.size, end, key, value, offsets, times, kinds,
        include_headers, lists, name, content, np.zeros(8, np.int64),
    )  # fmt: skip
    beyond = plain.is_beyond(times)
    reasons = {row: plain.beyond(int(times[row])) for row in np.flatnonzero(beyond).tolist()}
    if reasons and unread is None:
        row, why = next(iter(reasons.items()))
        raise plain.refused(topic, partition, int(offsets[row]), why, plain.OR_DELETE)
    times[beyond] = 0
    schema = plain.arrow_schema(include_headers)
    columns = [
        _binary(key),
        _binary(value),
        pa.repeat(pa.scalar(topic, pa.string()), rows),
        pa.array(np.full(rows, partition, np.int32)),
        pa.array(offsets),
        pa.array(times * 1000, mask=beyond if reasons else None).cast(
            schema.field("timestamp").type
        ),
        pa.array(kinds),
    ]
    if include_headers:
        for row in np.flatnonzero(lists[1] == loops.NOT_READ).tolist():
            reasons[row] = f"{reasons[row]}; {_NO_HEADERS}" if row in reasons else _NO_HEADERS
            lists[1][row] = 0
        columns.append(_header_lists(lists, name, content, schema.field("headers").type))
    batch = pa.record_batch(columns, schema=schema)
    return batch if unread is None else plain.with_unread(batch, unread, reasons)


def _column(rows: int, size: int) -> tuple[Any, Any, Any]:
    """Room for a binary column: its bytes, its offsets, which rows are present."""
    import numpy as np

    if size > _INT32_MAX:
        raise SourceError(
            f"{rows} records came at once with {size} bytes in one column, more than an Arrow "
            "column holds: lower 'kafka.queued.max.messages.kbytes'."
        )
    return np.empty(size, np.uint8), np.zeros(rows + 1, np.int32), np.empty(rows, np.uint8)


def _binary(column: tuple[Any, Any, Any], kind: pa.DataType | None = None) -> pa.Array:
    import pyarrow as pa

    data, offsets, present = column
    buffers = [_bitmap(present), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind or pa.binary(), len(present), buffers)


def _bitmap(present: np.ndarray[Any, Any]) -> pa.Buffer | None:
    import numpy as np
    import pyarrow as pa

    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


def _header_lists(
    lists: tuple[Any, Any], name: tuple[Any, Any, Any], content: tuple[Any, Any, Any], kind: Any
) -> pa.Array:
    import pyarrow as pa

    names = _binary(name, pa.string())
    try:
        names.validate(full=True)
    except pa.ArrowInvalid:  # not UTF-8: what Java makes of it
        raw = _binary(name).to_pylist()
        names = pa.array([key.decode("utf-8", "replace") for key in raw], pa.string())
    fields = list(kind.value_type)
    pairs = pa.StructArray.from_arrays([names, _binary(content)], fields=fields)
    offsets, present = lists
    buffers = [_bitmap(present), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(kind, len(present), buffers, children=[pairs])


def _events(messages: np.ndarray[Any, Any]) -> tuple[int | None, tuple[int, str] | None]:
    """Where the partition ended, and the first error."""
    eof, error = None, None
    for address in messages.tolist():
        code = ctypes.c_int32.from_address(address).value
        if code == librdkafka.PARTITION_EOF:
            eof = ctypes.c_int64.from_address(address + 56).value
        elif code and error is None:
            text = librdkafka.library().rd_kafka_message_errstr(address) or b""
            error = (code, text.decode("utf-8", "replace"))
    return eof, error
