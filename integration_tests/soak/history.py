"""What the soak saw at each DONE, and the rows that somebody saw, as data. Rows are kept as JSON
lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from eo_kafka.testing.history import Row


@dataclass(frozen=True)
class Done:
    """What held when a batch was seen to be DONE: where its input ended, by partition, and the
    output's high watermarks a moment later. All rows of the batch must stand below those.

    Rows stand there before they are committed, too: `still_open` are the ids of the batch's
    transactions that nobody had ended."""

    batch: int
    input_ends: Mapping[int, int]
    output_ends: Mapping[int, int]
    still_open: tuple[str, ...] = ()


class RowLog:
    """Rows in the order in which somebody saw them, in memory and in `path`."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self.rows: list[Row] = []

    def add(self, row: Row) -> None:
        """Note one more."""
        self.rows.append(row)
        self._file.write(json.dumps(row) + "\n")

    def close(self) -> None:
        """Write out what is buffered."""
        self._file.close()

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)
