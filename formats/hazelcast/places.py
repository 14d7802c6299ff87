"""Gathers bytes from many serialized values at once with numpy, within each value's bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Offsets = NDArray[np.int64]

_BINARY_MAX = 2**31 - 1


class Damaged(ValueError):
    """Bytes are not laid out as what they say they are."""


@dataclass(frozen=True)
class Places:
    """One place in each of some values. All of them are in `data`; `begins` and `ends` are the
    bounds of each one's value."""

    data: NDArray[np.uint8]
    begins: Offsets
    ends: Offsets
    at: Offsets

    @classmethod
    def of_column(cls, column: pa.Array) -> Places:
        """The beginnings of the values of a binary column, nulls too."""
        every = np.frombuffer(column.buffers()[1], np.int32)
        offsets = every[column.offset : column.offset + len(column) + 1].astype(np.int64)
        content = column.buffers()[2]
        data = np.frombuffer(content if content is not None else b"", np.uint8)
        return cls(data, offsets[:-1], offsets[1:], offsets[:-1])

    def __len__(self) -> int:
        return len(self.at)

    def moved(self, by: Offsets | int) -> Places:
        """So many bytes further on."""
        return replace(self, at=self.at + by)

    def until(self, ends: Offsets) -> Places:
        """The same, with nearer ends."""
        return replace(self, ends=np.minimum(self.ends, ends))

    def of(self, rows: Offsets | NDArray[np.bool_]) -> Places:
        """Those of some rows."""
        return Places(self.data, self.begins[rows], self.ends[rows], self.at[rows])

    def each(self, counts: Offsets, step: int = 0) -> Places:
        """`counts` places out of each, one `step` behind the other."""
        rows = np.repeat(np.arange(len(self)), counts)
        return self.of(rows).moved(numbered(counts) * step)

    def need(self, size: Offsets | int) -> None:
        """Raise Damaged unless so many bytes of the value lie there."""
        if bool(np.any((self.at < self.begins) | (self.at + size > self.ends))) or bool(
            np.any(np.asarray(size) < 0)
        ):
            raise Damaged("it ends before what it says it holds")

    def numbers(self, code: str) -> NDArray[np.generic]:
        """The number that lies at each, of numpy's type `code`, in the machine's order of bytes."""
        wanted = np.dtype(code)
        self.need(wanted.itemsize)
        shape = (max(len(self.data) - wanted.itemsize + 1, 0),)
        every: NDArray[np.generic] = np.ndarray(shape, wanted, self.data, 0, (1,))
        return every[self.at].astype(wanted.newbyteorder("="))

    def counts(self, *, none: int | None = None) -> Offsets:
        """The 32 bit number at each, a length; `none` is one that may stand for "there is none"."""
        found = self.numbers(">i4").astype(np.int64)
        if bool(np.any((found < 0) & (found != none))):
            raise Damaged("it has a length below zero")
        return found

    def pieces(self, lengths: Offsets) -> pa.Array:
        """So many bytes from each, as binary."""
        import pyarrow as pa

        self.need(lengths)
        offsets = offsets_of(lengths)
        if offsets[-1] > _BINARY_MAX:
            raise Damaged("one batch has more than 2 GiB of text")
        content = self.data[self.each(lengths, 1).at]
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
        return pa.Array.from_buffers(pa.binary(), len(self), buffers)


def offsets_of(counts: Offsets) -> Offsets:
    """Where each of so many items begins, and where the last one ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))


def numbered(counts: Offsets) -> Offsets:
    """0, 1, 2, ... for each of `counts`, one behind the other."""
    offsets = offsets_of(counts)
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)


def spread(found: pa.Array, there: NDArray[np.bool_]) -> pa.Array:
    """A value for each row that is `there`, and null for the others."""
    import pyarrow as pa

    if bool(there.all()):
        return found
    return found.take(pa.array(np.cumsum(there) - 1, mask=~there))


def lists(counts: Offsets, items: pa.Array, kind: pa.DataType) -> pa.Array:
    """Lists of so many of the items each."""
    import pyarrow as pa

    offsets = pa.py_buffer(offsets_of(counts).astype(np.int32))
    return pa.Array.from_buffers(kind, len(counts), [None, offsets], children=[items])


def texts(found: list[str]) -> pa.Array:
    """A column of text."""
    import pyarrow as pa

    return pa.array(found, pa.string())
