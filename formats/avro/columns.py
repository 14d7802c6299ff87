"""Decodes a column of Avro values with compiled loops, without an object for each value.

What these loops do not take (a schema with unusual parts, a value that is not of its schema) is
said to the caller, who has the plain decoder for it; both give the same columns
(tests/formats/test_avro_columns.py). Runs on executors.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from ...core.loops import Loop
from ...core.warm_up import is_ready
from ..shared.ranges import Ranges
from .codec import parsed
from .program import compiled_schema
from .slots import BAD, GOOD, NULL, Columns, TooLarge

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from ..shared.decoding import Rows

    Numbers = npt.NDArray[np.int64]

_decode = Loop(f"{__package__}.kernels", "decode")


def decoded(
    column: pa.Array, written: str, wanted: str, kind: pa.DataType, skip: int = 0
) -> tuple[pa.Array, Rows] | None:
    """The (binary) column as `kind`, which is that of `wanted`, with nulls where it has them and
    where a value is bad, and the rows of the bad ones. None if it cannot be done here. `skip` bytes
    are in front of each value."""
    import numpy as np
    import pyarrow as pa

    found = _decoder(written, wanted)
    if found is None or not pa.types.is_binary(column.type) or not is_ready(_warm_up):
        return None
    rows = Ranges(column, skip)
    state = np.full(len(column), GOOD, np.uint8)
    if column.null_count:
        state[np.asarray(column.is_null())] = NULL
    state[(state == GOOD) & (rows.starts > rows.ends)] = BAD
    try:
        slots = found.run(rows, state)
        array = Columns(rows.data, *slots).of(found.node, kind)
    except (TooLarge, pa.ArrowInvalid):  # text that is not UTF-8, or more than one array holds
        return None
    return array, np.flatnonzero(state == BAD)


@functools.lru_cache(maxsize=256)
def _decoder(written: str, wanted: str) -> _Decoder | None:
    try:
        return _Decoder(written, None if written == wanted else wanted)
    except Exception:  # Unsupported, or what fastavro says of a schema: the plain decoder will, too
        return None


def _warm_up() -> None:
    """All that is compiled: the loops are the same for all schemas."""
    import numpy as np
    import pyarrow as pa

    decoder, rows = _Decoder('"string"', None), Ranges(pa.array([b"\0"]))
    slots = decoder.run(rows, np.zeros(1, np.uint8))
    Columns(rows.data, *slots).of(decoder.node, pa.string())


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

        counts = np.zeros(self._program.slots, np.int64)
        base, before = np.zeros_like(counts), np.zeros_like(counts)
        stack = np.zeros((self._program.depth, 4), np.int64)
        none = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8))

        def loop(slots: Any, store: bool) -> None:
            _decode(
                self._code,
                self._jumps,
                rows.data,
                rows.starts,
                rows.ends,
                state,
                slots,
                base,
                counts,
                before,
                stack,
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
