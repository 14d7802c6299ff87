# mypy: ignore-errors
"""Compiled loops that send Arrow buffers through librdkafka, and read its delivery reports."""

from __future__ import annotations

from numba import types

from ...core.compiled import I32, I64, NOTHING, copy, i32, i64, part, put32, put64
from .write_loops import DELIVERY_BEFORE, NAME_MAX, VU_BYTES

_headers_new = types.ExternalFunction("rd_kafka_headers_new", I64(I64))
_headers_destroy = types.ExternalFunction("rd_kafka_headers_destroy", NOTHING(I64))
_header_add = types.ExternalFunction("rd_kafka_header_add", I32(I64, I64, I64, I64, I64))
_produce = types.ExternalFunction("rd_kafka_produceva", I64(I64, I64, I64))
_error_code = types.ExternalFunction("rd_kafka_error_code", I32(I64))
_error_destroy = types.ExternalFunction("rd_kafka_error_destroy", NOTHING(I64))
_topic_name = types.ExternalFunction("rd_kafka_topic_name", I64(I64))
_murmur2 = types.ExternalFunction(
    "rd_kafka_msg_partitioner_murmur2_random", I32(I64, I64, I64, I32, I64, I64)
)
_strlen = types.ExternalFunction("strlen", I64(I64))
_delivery_before = types.ExternalFunction(DELIVERY_BEFORE, NOTHING(I64, I64, I64))

# rd_kafka_vu_t: type i32 @0, union @8, 72 bytes in all
_RKT, _PARTITION, _VALUE, _KEY, _OPAQUE, _FLAGS, _HEADERS = 2, 3, 4, 5, 6, 7, 10


@part
def produce_rows(
    handle, topic, opaque, start, partitions, key, value, first, number, name, content, arguments
):
    """Produce rows from `start` on; returns (rows done, librdkafka's error or 0 at the end)."""
    vu = arguments.ctypes.data
    for position in range(7):
        kind = (_RKT, _PARTITION, _FLAGS, _KEY, _VALUE, _OPAQUE, _HEADERS)[position]
        put32(vu + VU_BYTES * position, I32(kind))
    put64(vu + 8, topic)
    put32(vu + 2 * VU_BYTES + 8, I32(2))
    put64(vu + 5 * VU_BYTES + 8, opaque)
    for i in range(start, partitions.size):
        put32(vu + VU_BYTES + 8, partitions[i])
        put64(vu + 3 * VU_BYTES + 8, key[0][i])
        put64(vu + 3 * VU_BYTES + 16, max(key[1][i], 0))
        put64(vu + 4 * VU_BYTES + 8, value[0][i])
        put64(vu + 4 * VU_BYTES + 16, max(value[1][i], 0))
        headers, count = I64(0), 6
        if number[i] > 0:
            headers, count = _headers_new(number[i]), 7
            for j in range(first[i], first[i] + number[i]):
                _header_add(headers, name[0][j], name[1][j], content[0][j], max(content[1][j], 0))
            put64(vu + 6 * VU_BYTES + 8, headers)
        error = _produce(handle, vu, count)
        if error != 0:
            code = _error_code(error)
            _error_destroy(error)
            if headers != 0:
                _headers_destroy(headers)
            return i, code
    return partitions.size, I32(0)


@part
def choose_partitions(count, led, turn, sticky_rows, key, found):
    """The partition, among `count`, of each row with a key; rows without one go to those that are
    `led`, in turns."""
    for i in range(found.size):
        if key[0][i] != 0:
            found[i] = _murmur2(I64(0), key[0][i], key[1][i], I32(count), I64(0), I64(0))
        else:
            found[i] = led[(turn + i // sticky_rows) % led.size]


# rd_kafka_message_t, in words: err 0, topic, partition, payload 3, len, key 5, key_len, offset,
# opaque 8


@part
def lay_out(order, key, value, opaque, messages):
    """The rows in this order as messages for rd_kafka_produce_batch."""
    for i in range(order.size):
        row = order[i]
        for unread in (0, 1, 2, 7):
            messages[i, unread] = 0
        messages[i, 3] = value[0][row]
        messages[i, 4] = max(value[1][row], 0)
        messages[i, 5] = key[0][row]
        messages[i, 6] = max(key[1][row], 0)
        messages[i, 8] = opaque


# An idempotent producer's batch that is sent again after a later one of the same partition was
# taken (a topic made a moment ago) is answered "duplicate sequence", which librdkafka 2.16 reports
# as delivered. It is not in the log: what tells is that its first record has no offset. The others
# have invented ones and count as acknowledged; the first fails the task.
DUPLICATE_SEQUENCE_NUMBER = 46


@part
def delivered(handle, message, opaque):
    """The delivery report callback; write_loops.py has the slots that it writes to.

    Our records carry the address of a slot plus 1 as their opaque. All others belong to
    confluent-kafka and go on to its callback (its opaques are even addresses).
    """
    mine = i64(message + 64)
    if mine & 1 == 0:
        _delivery_before(handle, message, opaque)
    else:
        slot, code = mine - 1, i32(message)
        if code == 0 and i64(message + 56) < 0:
            code = I32(DUPLICATE_SEQUENCE_NUMBER)
        if code == 0:
            put64(slot + 16, i64(slot + 16) + 1)
        else:
            if i64(slot) == 0:
                put32(slot + 8, code)
                put32(slot + 12, i32(message + 16))
                name = _topic_name(i64(message + 8))
                copy(slot + 24, name, min(_strlen(name), NAME_MAX))
            put64(slot, i64(slot) + 1)
