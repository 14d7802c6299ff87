"""Where the values of a column of bytes are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class Ranges:
    """Rows as places in a buffer of bytes, cut at the front by `skip` (a wire format's head)."""

    def __init__(self, column: pa.Array, skip: int = 0) -> None:
        import numpy as np

        offsets = np.frombuffer(column.buffers()[1], np.int32)
        offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
        data = column.buffers()[2]
        self.data = np.frombuffer(data if data is not None else b"", np.uint8)
        self.starts, self.ends = offsets[:-1] + skip, offsets[1:]
