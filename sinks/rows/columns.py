"""Addresses and sizes of a record batch's columns, for compiled loops.

Everything that comes from outside is checked here: a loop trusts what it is given.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import SinkError
from . import plain

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa


@dataclass(frozen=True)
class Rows:
    """Rows of one topic; columns as (addresses, sizes), size -1 for null, kept alive by `owner`."""

    partitions: np.ndarray[Any, Any]
    key: tuple[Any, Any]
    value: tuple[Any, Any]
    first: np.ndarray[Any, Any]  # a row's first header among names and contents
    number: np.ndarray[Any, Any]  # of headers
    name: tuple[Any, Any]
    content: tuple[Any, Any]
    place: np.ndarray[Any, Any]  # among the rows of the batch: for errors
    owner: Any

    @property
    def size(self) -> int:
        """Bytes of keys and values."""
        import numpy as np

        return sum(int(np.maximum(sizes, 0).sum()) for sizes in (self.key[1], self.value[1]))

    def headers(self, at: int) -> list[tuple[bytes, bytes | None]]:
        """Those of the row `at` a position, copied: for an error."""
        start = int(self.first[at])
        places = range(start, start + int(self.number[at]))
        return [(_copied(self.name, j) or b"", _copied(self.content, j)) for j in places]

    def take(self, at: Any) -> Rows:
        """The rows `at` some positions, or in a slice."""
        key, value = ((column[0][at], column[1][at]) for column in (self.key, self.value))
        rows = (self.partitions[at], key, value, self.first[at], self.number[at])
        return Rows(*rows, self.name, self.content, self.place[at], self.owner)


def by_topic(
    batch: pa.RecordBatch, default_topic: str | None, kept: Collection[str] = ()
) -> Iterable[tuple[str, Rows]]:
    """The rows of each topic. Raises SinkError for a row that cannot be sent, or whose topic is one
    of `kept`: none of the batch's rows is handed on then."""
    import numpy as np

    if batch.num_rows == 0:
        return
    names = batch.schema.names
    rows = _rows(batch)
    if default_topic:
        plain.check(False, bool((rows.partitions < -1).any()))
        yield default_topic, rows
        return
    topics = batch.column("topic").dictionary_encode() if "topic" in names else None
    null = topics is None or topics.null_count > 0
    plain.check(null, bool((rows.partitions < -1).any()))
    if topics is None:
        return
    found, which = topics.dictionary.to_pylist(), topics.indices.to_numpy()
    plain.check_topics(found, kept)
    for index, topic in enumerate(found):
        yield topic, rows.take(np.flatnonzero(which == index)) if len(found) > 1 else rows


def _rows(batch: pa.RecordBatch) -> Rows:
    import numpy as np

    count, names = batch.num_rows, batch.schema.names
    if "value" not in names:
        raise SinkError("Required attribute 'value' not found.")
    nothing = (np.zeros(count, np.int64), np.full(count, -1, np.int64))
    partitions = np.full(count, -1, np.int32)
    if "partition" in names:
        column = batch.column("partition")
        plain.check(False, bool((column.fill_null(0).to_numpy(zero_copy_only=False) < 0).any()))
        partitions = np.ascontiguousarray(
            column.fill_null(-1).to_numpy(zero_copy_only=False), np.int32
        )
    first = number = np.zeros(count, np.int64)
    name = content = (np.zeros(0, np.int64), np.zeros(0, np.int64))
    if "headers" in names:
        first, number, name, content = _headers(batch.column("headers"))
    return Rows(
        partitions,
        pointers(batch.column("key")) if "key" in names else nothing,
        pointers(batch.column("value")),
        first,
        number,
        name,
        content,
        np.arange(count),
        batch,
    )


def _headers(column: pa.Array) -> tuple[Any, Any, Any, Any]:
    """Per row the first header and their number; of all headers names and contents."""
    import numpy as np

    offsets = column.offsets.to_numpy().astype(np.int64)
    present = column.is_valid().to_numpy(zero_copy_only=False)
    number = np.where(present, np.diff(offsets), 0)
    if (number < 0).any() or offsets[0] < 0 or offsets[-1] > len(column.values):
        raise SinkError("The 'headers' column is damaged: its offsets leave its values.")
    keys, values = column.values.flatten()
    name, content = pointers(keys), pointers(values)
    used = np.zeros(len(keys) + 1, np.int64)
    np.add.at(used, offsets[:-1][number > 0], 1)
    np.add.at(used, (offsets[:-1] + number)[number > 0], -1)
    if (name[1][np.cumsum(used)[:-1] > 0] < 0).any():
        raise plain.null_header()
    return offsets[:-1], number, name, content


def _copied(column: tuple[Any, Any], at: int) -> bytes | None:
    address, size = int(column[0][at]), int(column[1][at])
    return ctypes.string_at(address, size) if size >= 0 else None


_EMPTY = b"\0" * 8


def pointers(column: pa.Array) -> tuple[Any, Any]:
    """Addresses and sizes of a string or binary column; null is address 0 and size -1."""
    import numpy as np
    import pyarrow as pa

    kinds = {pa.binary(): np.int32, pa.string(): np.int32}
    kinds |= {pa.large_binary(): np.int64, pa.large_string(): np.int64}
    if column.type not in kinds:
        raise SinkError(f"A column is of type {column.type}; it must be string or binary.")
    if len(column) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    kind = kinds[column.type]
    _, offsets, data = column.buffers()
    at = np.frombuffer(offsets, kind)[column.offset : column.offset + len(column) + 1]
    at = at.astype(np.int64)
    sizes = np.diff(at)
    room = data.size if data is not None else 0
    if len(at) != len(column) + 1 or at[0] < 0 or at[-1] > room or (sizes < 0).any():
        raise SinkError("A column is damaged: its offsets leave its data.")
    addresses = (data.address if room else _empty_address()) + at[:-1]
    if column.null_count:
        null = column.is_null().to_numpy(zero_copy_only=False)
        addresses[null], sizes[null] = 0, -1
    return addresses, sizes


@functools.cache
def _empty_address() -> int:
    """An address for values without bytes, which must not look like null."""
    import pyarrow as pa

    return int(pa.py_buffer(_EMPTY).address)
