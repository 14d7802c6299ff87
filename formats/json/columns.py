"""Decodes a column of JSON texts with compiled loops, without an object for each value.

What the loops do not read (a value that is not of its type, numbers of many digits, names with
escapes, keys that come twice) is left to `JsonDecoder`, row by row, and what they read is what that
gives (tests/test_json_columns.py). Runs on executors.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from ...core.warm_up import is_ready
from ..shared.decoding import Ranges
from ..shared.slots import BAD, GOOD, NULL, Columns, TooLarge, Unsupported
from .program import FIELD_WORDS, ROW_WORDS, compiled_type

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from ..shared.decoding import Rows

    Numbers = npt.NDArray[np.int64]

_FRAME_WORDS = 5
_ENTRIES_A_ROW = 4  # of what is repeated, to begin with


def decoded(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Rows] | None:
    """The (binary) column as `kind`, with nulls where it has them, and the rows that are left to
    `JsonDecoder`, null as well. None if it cannot be done here."""
    import numpy as np
    import pyarrow as pa

    found = _decoder(kind)
    if found is None or not pa.types.is_binary(column.type) or not is_ready(_warm_up):
        return None
    state = np.full(len(column), GOOD, np.uint8)
    if column.null_count:
        state[np.asarray(column.is_null())] = NULL
    try:
        array = found.run(Ranges(column), state).of(found.node, kind)
    except TooLarge:
        return None
    return array, np.flatnonzero(state == BAD)


@functools.lru_cache(maxsize=256)
def _decoder(kind: pa.DataType) -> _Decoder | None:
    try:
        return _Decoder(kind)
    except Unsupported:
        return None


def _warm_up() -> None:
    """All that is compiled: the loops are the same for all types."""
    import numpy as np
    import pyarrow as pa

    decoder, nothing = _Decoder(pa.string()), np.zeros(1, np.uint8)
    decoder.run(Ranges(pa.array([b'""'])), nothing).of(decoder.node, pa.string())


class _Decoder:
    """The program of a type, as the loops take it."""

    def __init__(self, kind: pa.DataType) -> None:
        import numpy as np

        program, self.node = compiled_type(kind)
        self._code = np.array(program.rows, np.int64).reshape(-1, ROW_WORDS)
        self._fields = np.array(program.fields, np.int64).reshape(-1, FIELD_WORDS)
        self._names = np.frombuffer(program.names, np.uint8)
        self._repeated = np.array(program.repeated)
        self._depth = program.depth

    def run(self, rows: Ranges, state: npt.NDArray[np.uint8]) -> Columns:
        """The slots of all rows."""
        import numpy as np

        from .kernels import decode

        count, types = len(rows.starts), len(self._code)
        stack = np.empty((self._depth, _FRAME_WORDS), np.int64)
        fields = self._fields.copy()  # which the loop writes to
        program = _addresses(self._code, fields, self._names, stack)
        starts, ends = np.ascontiguousarray(rows.starts), np.ascontiguousarray(rows.ends)
        ranges = (*_addresses(starts, ends, state), count)
        size = int(ends[-1] - starts[0]) if count else 0
        text = np.empty(size, np.uint8)
        spare, cells = np.array([0, size, text.ctypes.data]), np.zeros(1 + types, np.int64)
        slots = _Slots(np.where(self._repeated, _ENTRIES_A_ROW * count, count))
        row = 0
        while True:
            rest = (rows.data.ctypes.data, ranges, slots.addresses(), *_addresses(spare, cells))
            row = decode(row, program, types, *rest)
            if row == count:
                break
            slots = slots.grown(self._repeated)
        return Columns(rows.data, text, slots.arrays, slots.base, slots.counts)


class _Slots:
    """The slots of types, each with a limit."""

    def __init__(self, limits: Numbers) -> None:
        import numpy as np

        self._table = np.zeros((len(limits), 3), np.int64)
        self._table[1:, 0], self._table[:, 2] = np.cumsum(limits)[:-1], limits
        total = int(limits.sum())
        self.arrays = tuple(np.empty(total, kind) for kind in (np.int64, np.int64, np.uint8))

    @property
    def base(self) -> Numbers:
        """Where each begins in the arrays."""
        return self._table[:, 0]

    @property
    def counts(self) -> Numbers:
        """The entries of each."""
        return self._table[:, 1]

    def addresses(self) -> tuple[int, ...]:
        """As the loop takes them."""
        return _addresses(self._table, *self.arrays)

    def grown(self, repeated: npt.NDArray[np.bool_]) -> _Slots:
        """The same with twice the room for what is repeated."""
        import numpy as np

        limits = self._table[:, 2]
        found = _Slots(np.where(repeated, 2 * limits, limits))
        found._table[:, 1] = self.counts
        for old, new, count in zip(self.base, found.base, self.counts, strict=True):
            for source, target in zip(self.arrays, found.arrays, strict=True):
                target[new : new + count] = source[old : old + count]
        return found


def _addresses(*arrays: npt.NDArray[Any]) -> tuple[int, ...]:
    return tuple(one.ctypes.data for one in arrays)
