"""Writes rows as put requests for an IMap, without an object for each row.

A request holds entries of one partition: its head (the map's name), then keys and values in turn,
then its end. A key or a value is a frame, `length i32 | flags u16`, little-endian, the length with
these six bytes, around what the members store: `hash i32 | type i32 | size i32 | bytes`,
big-endian. It is byte for byte what the client's own `put_all` sends
(tests/sinks/test_map_requests.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from ...clients.hazelcast import internals
from ...core.errors import SinkError
from ...core.loops import Loop
from ..rows.columns import pointers
from .objects import checked_text

if TYPE_CHECKING:
    import pyarrow as pa
    from hazelcast import HazelcastClient
    from hazelcast.future import Future

_place, _fill = (Loop(f"{__package__}.request_kernels", name) for name in ("place", "fill"))
_LARGEST = 2**31 - 256  # of a key and its value; a request counts its bytes in 31 bits


class Requests(NamedTuple):
    """What becomes of rows: of each partition one request, and the keys to remove."""

    puts: list[tuple[int, memoryview]]
    removed: pa.Array


def requests_of(name: str, rows: pa.RecordBatch, json: bool, partitions: int) -> Requests:
    """Of rows with a key and a value, null to remove; of rows with the same key the last one
    counts. Executor. Raises SinkError. Needs compiled loops: `librdkafka.available()`."""
    import numpy as np

    keys, values = rows.column("key"), rows.column("value")
    kinds = (_kind(keys), internals.JSON if json else _kind(values))
    key, value = pointers(keys), pointers(checked_text(values) if json else values)
    count = rows.num_rows
    chosen, placed = np.empty(count, np.int64), np.empty(count, np.int64)
    table = np.full(1 << (2 * count).bit_length(), -1, np.int64)
    sizes = np.zeros(partitions, np.int64)
    _place(key, value, table, chosen, placed, sizes)
    if sizes.max(initial=0) > _LARGEST:
        raise SinkError(
            f"Rows of one partition of map '{name}' are {sizes.max() >> 20} MiB, and one put takes "
            "less than 2 GiB: set 'putSize' lower."
        )
    head, end = _frames(name)
    used = np.flatnonzero(sizes)
    lengths = sizes[used] + (len(head) + len(end))
    ends = np.cumsum(lengths)
    buffer = np.empty(int(lengths.sum()), np.uint8)
    at = np.zeros(partitions, np.int64)
    at[used] = buffer.ctypes.data + ends - lengths + len(head)
    _fill(key, value, kinds, chosen, placed, at)
    whole, puts = buffer.data, []  # each request keeps the buffer alive
    for partition, length, last in zip(used.tolist(), lengths.tolist(), ends.tolist(), strict=True):
        request = whole[last - length : last]
        request[: len(head)], request[length - len(end) :] = head, end
        puts.append((partition, request))
    first = np.flatnonzero(chosen >= 0)
    return Requests(puts, keys.take(first[value[1][chosen[first]] < 0]))


def put_all(client: HazelcastClient, partition: int, request: memoryview) -> Future[None]:
    """Send a request. As with the client's own, one whose connection ends is not repeated: whoever
    repeats it looks first whether it still may. Executor."""
    from hazelcast.protocol.client_message import OutboundMessage

    message = OutboundMessage(request, False, True)
    return internals.invoked(client, message, lambda answer: None, partition)


def _frames(name: str) -> tuple[bytes, bytes]:
    """What a request begins and ends with."""
    from hazelcast.protocol.client_message import END_FINAL_FRAME_BUF
    from hazelcast.protocol.codec import map_put_all_codec as codec

    without_entries = bytes(codec.encode_request(name, [], False).buf)
    size = len(END_FINAL_FRAME_BUF)
    return without_entries[:-size], without_entries[-size:]


def _kind(column: Any) -> int:
    import pyarrow as pa

    text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return internals.TEXT if text else internals.BYTES
