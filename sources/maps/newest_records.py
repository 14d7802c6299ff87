"""Finds the newest record of each key among a partition's records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

_LEAST_ROWS = 200_000
_BATCH_ROWS = 20_000
_BATCH_BYTES = 16 * 1024 * 1024


class NewestRecords:
    """Holds at most about twice as many records as there are keys. A record without a value, and
    what it replaces, is not among them."""

    def __init__(self) -> None:
        self._pieces: list[pa.Table] = []
        self._rows = 0
        self._kept = 0

    def add(self, records: pa.RecordBatch) -> None:
        """Records that come after all before: columns key, value and offset."""
        import pyarrow as pa

        wide = pa.large_binary()  # all keys, or values, of a partition may exceed 2 GiB
        self._pieces.append(
            pa.table(
                {
                    "key": records.column("key").cast(wide),
                    "value": records.column("value").cast(wide),
                    "offset": records.column("offset"),
                }
            )
        )
        self._rows += records.num_rows
        if self._rows >= max(_LEAST_ROWS, 2 * self._kept):
            self._reduce()

    def batches(self, partition: int) -> Iterator[pa.RecordBatch]:
        """What is left, with a column for the partition."""
        import pyarrow as pa

        if not self._pieces:
            return
        self._reduce()
        (table,) = self._pieces
        size = table.nbytes // max(len(table), 1) + 1
        step = max(min(_BATCH_ROWS, _BATCH_BYTES // size), 1)
        for first in range(0, len(table), step):
            (piece,) = table.slice(first, step).to_batches()
            key, value = (piece.column(name).cast(pa.binary()) for name in ("key", "value"))
            number = pa.array(np.full(len(key), partition, np.int32))
            yield pa.record_batch(
                [key, value, number, piece.column("offset")],
                names=["key", "value", "partition", "offset"],
            )

    def _reduce(self) -> None:
        import pyarrow as pa

        table = pa.concat_tables(self._pieces).combine_chunks()
        if len(table):
            (keys,) = table.column("key").chunks
            codes = keys.dictionary_encode()
            known = len(codes.dictionary)
            # A record without a key is one of its own, for whoever gets it to refuse
            numbers = codes.indices.fill_null(known).to_numpy()
            last = np.full(known + 1, -1, np.int64)
            last[numbers] = np.arange(len(numbers))  # of equal numbers the last one stays
            last = np.sort(last[last >= 0])
            there = table.column("value").is_valid().to_numpy()
            table = table.take(pa.array(last[there[last]])).combine_chunks()
        self._pieces = [table]
        self._kept = self._rows = len(table)
