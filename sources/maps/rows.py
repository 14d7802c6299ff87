"""Turns events and entries into record batches of a map's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ...core.errors import ReadTimeout, SourceError, cut
from ...core.maps import JSON, TEXT
from . import columns
from .columns import Values
from .declared import BYTES, COMPACT, PORTABLE
from .options import MapOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from ...clients.hazelcast.internals import CompactSchema

# By column, `key` and `value`: from binary to its type, where its format has one. What members
# serialized, Compact and Portable, takes the way to Compact's schemas besides.
Typed = Mapping[str, "Callable[..., pa.Array]"]
NAMES = ("event", "key", "value", "old_value", "partition", "sequence")


class Members(Protocol):
    """What makes sense of serialized values."""

    def to_object(self, data: bytes) -> Any:
        """As `hazelcast_internals.to_object`."""

    def compact_schema(self, schema_id: int) -> CompactSchema:
        """By its id. Raises ReadTimeout, SourceError if there is none."""


class Rows:
    """Makes record batches for one task."""

    def __init__(self, options: MapOptions, members: Members, typed: Typed) -> None:
        self._options, self._members = options, members
        self._key = _converter(options.key_format, members, typed.get("key"))
        self._value = _converter(options.value_format, members, typed.get("value"))

    def of_events(
        self,
        items: Sequence[bytes],
        partitions: NDArray[np.int32],
        sequences: NDArray[np.int64],
    ) -> pa.RecordBatch:
        """Raises SourceError for an event that cannot be read so, naming it."""
        import pyarrow as pa

        try:
            found = columns.events(items)
            made = (self._key(found.keys), self._value(found.values), self._value(found.old_values))
        except ReadTimeout:
            raise
        except SourceError as error:
            if len(items) == 1:
                raise SourceError(
                    f"Event {sequences[0]} of partition {partitions[0]} of {self._options.place} "
                    f"cannot be read. {error}"
                ) from None
            for row in range(len(items)):  # which one is it?
                one = slice(row, row + 1)
                self.of_events(items[one], partitions[one], sequences[one])
            raise
        places = (pa.array(partitions, pa.int32()), pa.array(sequences, pa.int64()))
        return pa.RecordBatch.from_arrays([found.kinds, *made, *places], names=list(NAMES))

    def of_entries(self, items: Sequence[bytes], partitions: NDArray[np.int32]) -> pa.RecordBatch:
        """Raises SourceError for an entry that cannot be read so, naming it."""
        import pyarrow as pa

        keys, values = columns.entries(items)
        try:
            key, value = self._key(keys), self._value(values)
        except ReadTimeout:
            raise
        except SourceError as error:
            if len(partitions) > 1:
                for row in range(len(partitions)):  # which one is it?
                    self.of_entries(items[2 * row : 2 * row + 2], partitions[row : row + 1])
            raise SourceError(
                f"An entry of partition {partitions[0]} of {self._options.place} cannot be read, "
                f"its key is {self._key_text(keys)}. {error}"
            ) from None
        count = len(partitions)
        made = [
            *(pa.nulls(count, pa.string()), key, value, pa.nulls(count, value.type)),
            *(pa.array(partitions, pa.int32()), pa.nulls(count, pa.int64())),
        ]
        return pa.RecordBatch.from_arrays(made, names=list(NAMES))

    def _key_text(self, keys: Values) -> str:
        """The key of one entry, for a sentence."""
        try:
            return f"'{cut(columns.as_text(keys, self._members.to_object)[0], 100)}'"
        except SourceError:
            return f"0x{(keys.piece(0) or b'')[:50].hex()} as serialized"


def _converter(
    kind: str, members: Members, typed: Callable[..., pa.Array] | None
) -> Callable[[Values], pa.Array]:
    if kind == TEXT:
        return lambda values: columns.as_text(values, members.to_object)
    if kind == JSON:
        assert typed is not None
        return lambda values: typed(columns.as_bytes(values))
    if kind in (COMPACT, PORTABLE):
        assert typed is not None
        return lambda values: typed(columns.as_data(values), members.compact_schema)
    return columns.as_bytes if kind == BYTES else columns.as_data
