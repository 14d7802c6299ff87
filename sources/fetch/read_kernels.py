# mypy: ignore-errors
"""Compiled loops from librdkafka's messages into Arrow buffers."""

from __future__ import annotations

from numba import types

from ...core.compiled import I32, I64, NOTHING, copy, i32, i64, part, put64
from .read_loops import (
    BEYOND,
    CONTENT_BYTES,
    EVENTS,
    HEADERS,
    KEY_BYTES,
    LAST,
    NAME_BYTES,
    NOT_READ,
    ROWS,
    UNREAD,
    VALUE_BYTES,
)

_consume = types.ExternalFunction("rd_kafka_consume_batch_queue", I64(I64, I32, I64, I64))
_timestamp = types.ExternalFunction("rd_kafka_message_timestamp", I64(I64, I64))
_destroy = types.ExternalFunction("rd_kafka_message_destroy", NOTHING(I64))
_headers_of = types.ExternalFunction("rd_kafka_message_headers", I32(I64, I64))
_header_count = types.ExternalFunction("rd_kafka_header_cnt", I64(I64))
_header_at = types.ExternalFunction("rd_kafka_header_get_all", I32(I64, I64, I64, I64, I64))
_strlen = types.ExternalFunction("strlen", I64(I64))

_NONE = -156  # RD_KAFKA_RESP_ERR__NOENT: a record without headers
# rd_kafka_message_t: err i32 @0, topic @8, partition i32 @16, payload @24, len @32, key @40,
# key_len @48, offset @56, _private @64


@part
def take(queue, timeout_ms, messages, at, limit, end, totals, with_headers, cells):
    """Take up to `limit` messages into messages[at:], adding what they need to `totals`.

    Returns how many. It waits for the first one only: librdkafka itself would wait until the
    array is full. `cells` is scratch space for four words.
    """
    limit = min(limit, messages.size - at)
    where = messages.ctypes.data + 8 * at
    got = _consume(queue, I32(0), where, limit)
    if got <= 0 and timeout_ms > 0:
        got = _consume(queue, I32(timeout_ms), where, 1)
        if got > 0 and limit > 1:
            got += max(_consume(queue, I32(0), where + 8, limit - 1), 0)
    got = max(got, 0)
    for i in range(at, at + got):
        message = messages[i]
        if i32(message) != 0:
            totals[EVENTS] += 1
            continue
        offset = i64(message + 56)
        if offset >= end:
            totals[BEYOND] = 1
            continue
        totals[LAST] = max(totals[LAST], offset)
        totals[ROWS] += 1
        totals[KEY_BYTES] += i64(message + 48)
        totals[VALUE_BYTES] += i64(message + 32)
        if with_headers:
            cell = cells.ctypes.data
            found = _open_headers(message, cell)
            if found < 0 and totals[UNREAD] < 0:
                totals[UNREAD] = offset
            for j in range(found):
                _header_at(i64(cell), j, cell + 8, cell + 16, cell + 24)
                totals[HEADERS] += 1
                totals[NAME_BYTES] += _strlen(i64(cell + 8))
                totals[CONTENT_BYTES] += i64(cell + 24)
    return got


@part
def _open_headers(message, cell):
    """The number of headers; their list goes to `cell`. -1: there are some that librdkafka does not
    read."""
    error = _headers_of(message, cell)
    if error == _NONE:
        return I64(0)
    if error != 0:
        return I64(-1)
    return _header_count(i64(cell))


@part
def _append(source, size, row, data, offsets, present):
    """Put one binary value, null if it has no address, at the end of a column."""
    start = offsets[row]
    if source != 0:
        present[row] = 1
        copy(data.ctypes.data + start, source, size)
        offsets[row + 1] = start + size
    else:
        present[row] = 0
        offsets[row + 1] = start


@part
def pack(
    messages,
    count,
    end,
    key,
    value,
    offsets,
    times,
    kinds,
    with_headers,
    lists,
    name,
    content,
    cells,
):
    """Copy the records among messages[:count] that lie before `end` into columns, in order.

    `key`, `value`, `name`, `content` are (data, offsets, present) of exactly the counted sizes;
    `lists` is (offsets, present or NOT_READ). Messages stay with the caller.
    """
    row, header = 0, 0
    cell = cells.ctypes.data
    for i in range(count):
        message = messages[i]
        if i32(message) != 0 or i64(message + 56) >= end:
            continue
        _append(i64(message + 40), i64(message + 48), row, key[0], key[1], key[2])
        _append(i64(message + 24), i64(message + 32), row, value[0], value[1], value[2])
        offsets[row] = i64(message + 56)
        put64(cell + 32, 0)
        times[row] = _timestamp(message, cell + 32)
        kinds[row] = i32(cell + 32) - 1
        if with_headers:
            found = _open_headers(message, cell)
            for j in range(found):
                _header_at(i64(cell), j, cell + 8, cell + 16, cell + 24)
                at = i64(cell + 8)
                _append(at, _strlen(at), header, name[0], name[1], name[2])
                _append(i64(cell + 16), i64(cell + 24), header, content[0], content[1], content[2])
                header += 1
            lists[0][row + 1] = header
            lists[1][row] = NOT_READ if found < 0 else found > 0
        row += 1
    return row


@part
def discard(messages, count):
    """Give messages[:count] back to librdkafka."""
    for i in range(count):
        _destroy(messages[i])
