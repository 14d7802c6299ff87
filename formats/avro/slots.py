"""Turns the slots that the compiled decoder filled into Arrow arrays.

A slot has the values of one type, in three arrays that all slots share: a number (or where bytes
begin), a size (of bytes, or in items), and whether there is a value at all. Runs on executors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.loops import Loop

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]

GOOD, NULL, BAD = 0, 1, 2  # of a row: to be read, without a value, left to the plain decoder
_INT32_MAX = 2**31 - 1
_MILLI_US = 1000
_gather = Loop(f"{__package__}.slot_kernels", "gather")


class Unsupported(Exception):
    """There is what the compiled decoder does not read; the text says what."""


class TooLarge(Exception):
    """More than one array holds."""


@dataclass(frozen=True)
class Node:
    """Where the values of one type are: `kind` says how a column is made of its slot. A constant
    has the slot of the record it is in."""

    kind: str
    slot: int = -1
    parts: tuple[Node, ...] = ()
    symbols: tuple[str, ...] = ()
    constant: Any = None


class Columns:
    """Arrow arrays out of slots; `base` and `counts` say where each is, `data` has the bytes."""

    def __init__(
        self,
        data: npt.NDArray[np.uint8],
        slots: Any,
        base: Numbers,
        counts: Numbers,
    ) -> None:
        self._data, self._base, self._counts = data, base, counts
        self._values, self._sizes, self._valid = slots

    def of(self, node: Node, kind: pa.DataType) -> pa.Array:
        """The array of a type, with those of its parts."""
        start, count = int(self._base[node.slot]), int(self._counts[node.slot])
        taken = slice(start, start + count)
        values, sizes = self._values[taken], self._sizes[taken]
        there = _bitmap(self._valid[taken])
        make = getattr(self, f"_{node.kind}")
        found: pa.Array = make(node, kind, values, sizes, there)
        return found

    def _number(self, _: Node, kind: Any, values: Numbers, __: Numbers, there: Any) -> Any:
        return _array(kind, there, values.astype(f"<i{kind.bit_width // 8}"))

    def _widened(self, _: Node, kind: Any, values: Numbers, __: Numbers, there: Any) -> Any:
        return _array(kind, there, values.astype(f"<f{kind.bit_width // 8}"))

    def _single(self, _: Node, kind: Any, values: Numbers, __: Numbers, there: Any) -> Any:
        return _array(kind, there, values.astype("<i4").view("<f4").astype("<f8"))

    def _constant(self, node: Node, kind: Any, values: Numbers, _: Numbers, __: Any) -> Any:
        import pyarrow as pa

        return pa.repeat(pa.scalar(node.constant, kind), len(values))

    def _millis(self, _: Node, kind: Any, values: Numbers, __: Numbers, there: Any) -> Any:
        return _array(kind, there, values * _MILLI_US)

    def _boolean(self, _: Node, kind: Any, values: Numbers, __: Numbers, there: Any) -> Any:
        import numpy as np

        return _array(kind, there, np.packbits(values != 0, bitorder="little"), size=len(values))

    def _decimal(self, _: Node, kind: Any, values: Numbers, __: Numbers, there: Any) -> Any:
        import numpy as np

        return _array(kind, there, np.stack((values, values >> 63), axis=1), size=len(values))

    def _enum(self, node: Node, kind: Any, values: Numbers, _: Numbers, there: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        numbers = _array(pa.int32(), there, values.astype(np.int32))
        return pa.array(node.symbols, kind).take(numbers)

    def _bytes(self, _: Node, kind: Any, values: Numbers, sizes: Numbers, there: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        offsets = _offsets(sizes)
        target = np.empty(int(offsets[-1]), np.uint8)
        used = (self._data, values, sizes, target)
        _gather(len(values), *(one.ctypes.data for one in used))
        found = _array(kind, there, offsets.astype(np.int32), target, size=len(values))
        if pa.types.is_string(kind):
            found.validate(full=True)
        return found

    def _struct(self, node: Node, kind: Any, values: Numbers, _: Numbers, there: Any) -> Any:
        import pyarrow as pa

        parts = [self.of(part, field.type) for part, field in zip(node.parts, kind, strict=True)]
        return pa.Array.from_buffers(kind, len(values), [there], children=parts)

    def _list(self, node: Node, kind: Any, values: Numbers, sizes: Numbers, there: Any) -> Any:
        items = self.of(node.parts[0], kind.value_type)
        return _array(kind, there, _offsets(sizes).astype("<i4"), size=len(values), parts=[items])

    def _map(self, node: Node, kind: Any, values: Numbers, sizes: Numbers, there: Any) -> Any:
        import pyarrow as pa

        keys = self.of(node.parts[0], kind.key_type)
        items = self.of(node.parts[1], kind.item_type)
        pairs = pa.StructArray.from_arrays([keys, items], fields=[kind.key_field, kind.item_field])
        return _array(kind, there, _offsets(sizes).astype("<i4"), size=len(values), parts=[pairs])


def _bitmap(valid: npt.NDArray[np.uint8]) -> Any:
    import numpy as np
    import pyarrow as pa

    return None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))


def _offsets(sizes: Numbers) -> Numbers:
    import numpy as np

    found = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=found[1:])
    if found[-1] > _INT32_MAX:
        raise TooLarge
    return found


def _array(
    kind: Any, there: Any, *buffers: Any, size: int | None = None, parts: list[Any] | None = None
) -> Any:
    import numpy as np
    import pyarrow as pa

    held = [pa.py_buffer(np.ascontiguousarray(one)) for one in buffers]
    count = len(buffers[0]) if size is None else size
    return pa.Array.from_buffers(kind, count, [there, *held], children=parts)
