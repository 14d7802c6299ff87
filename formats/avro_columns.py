"""A column of Avro values as a typed column, by compiled loops: no Python object a value.

What these loops do not take (a schema with unusual parts, a value that is not of its schema) is
said to the caller, who has the plain decoder for it; both give the same columns
(tests/test_avro_columns.py). Runs on executors.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from eo_kafka import librdkafka
from eo_kafka.formats.avro_codec import parsed
from eo_kafka.formats.avro_program import Node, Unsupported, compiled_schema
from eo_kafka.formats.decoding import Ranges

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from eo_kafka.formats.decoding import Rows

    Numbers = npt.NDArray[np.int64]

_INT32_MAX = 2**31 - 1
_MILLI_US = 1000


class _TooLarge(Exception):
    """More than one array holds."""


def decoded(
    column: pa.Array, written: str, wanted: str, kind: pa.DataType, skip: int = 0
) -> tuple[pa.Array, Rows] | None:
    """The (binary) column as `kind`, which is that of `wanted`, with nulls where it has them and
    where a value is bad, and the rows of the bad ones. None if it cannot be done here. `skip` bytes
    are in front of each value."""
    import numpy as np
    import pyarrow as pa

    found = _decoder(written, wanted)
    if found is None or not pa.types.is_binary(column.type):
        return None
    from eo_kafka.formats import avro_kernels as kernels

    rows = Ranges(column, skip)
    state = np.full(len(column), kernels.GOOD, np.uint8)
    if column.null_count:
        state[np.asarray(column.is_null())] = kernels.NULL
    state[(state == kernels.GOOD) & (rows.starts > rows.ends)] = kernels.BAD
    try:
        slots = found.run(rows, state)
        array = _Columns(rows.data, *slots).of(found.node, kind)
    except (_TooLarge, pa.ArrowInvalid):  # text that is not UTF-8, or more than one array holds
        return None
    return array, np.flatnonzero(state == kernels.BAD)


@functools.lru_cache(maxsize=256)
def _decoder(written: str, wanted: str) -> _Decoder | None:
    if librdkafka.available() is not None:
        return None
    try:
        return _Decoder(written, None if written == wanted else wanted)
    except Unsupported:
        return None


class _Decoder:
    """The program of a schema, as the loops take it."""

    def __init__(self, written: str, wanted: str | None) -> None:
        import numpy as np

        into = None if wanted is None else parsed(json.loads(wanted))
        self._program, self.node = compiled_schema(parsed(json.loads(written)), into)
        self._code = np.array(self._program.code, np.int64).reshape(-1, 5)
        self._jumps = np.array(self._program.jumps, np.int64)

    def run(self, rows: Ranges, state: npt.NDArray[np.uint8]) -> tuple[Any, Numbers, Numbers]:
        """The slots, where each begins in them, and how many entries it has."""
        import numpy as np

        from eo_kafka.formats import avro_kernels as kernels

        counts = np.zeros(self._program.slots, np.int64)
        base = np.zeros_like(counts)
        none = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8))

        def loop(slots: Any, store: bool) -> None:
            kernels.decode(
                self._code,
                self._jumps,
                self._program.depth,
                rows.data,
                rows.starts,
                rows.ends,
                state,
                slots,
                base,
                counts,
                store,
            )

        if self._program.depth:
            loop(none, False)
        else:  # every slot has an entry a row
            counts[:] = len(rows.starts)
        total = int(counts.sum())
        base[1:] = np.cumsum(counts)[:-1]
        counts[:] = 0
        slots = (np.empty(total, np.int64), np.empty(total, np.int64), np.empty(total, np.uint8))
        loop(slots, True)
        return slots, base, counts


class _Columns:
    """Arrow arrays out of slots."""

    def __init__(self, data: npt.NDArray[np.uint8], slots: Any, base: Numbers, counts: Numbers):
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

        from eo_kafka.formats import avro_kernels as kernels

        offsets = _offsets(sizes)
        target = np.empty(int(offsets[-1]), np.uint8)
        kernels.gather(self._data, values, sizes, offsets, target)
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
        raise _TooLarge
    return found


def _array(
    kind: Any, there: Any, *buffers: Any, size: int | None = None, parts: list[Any] | None = None
) -> Any:
    import numpy as np
    import pyarrow as pa

    held = [pa.py_buffer(np.ascontiguousarray(one)) for one in buffers]
    count = len(buffers[0]) if size is None else size
    return pa.Array.from_buffers(kind, count, [there, *held], children=parts)
