"""Events and entries as record batches of a map's columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from eo_kafka.errors import SourceError
from eo_kafka.maps import JSON, TEXT
from eo_kafka.sources import map_columns as columns
from eo_kafka.sources.map_columns import ToObject, Values
from eo_kafka.sources.map_declared import BYTES
from eo_kafka.sources.map_options import MapOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

# By column, `key` and `value`: from binary to its type, where its format is JSON
Typed = Mapping[str, "Callable[[pa.Array], pa.Array]"]
NAMES = ("event", "key", "value", "old_value", "partition", "sequence")


class Rows:
    """Makes record batches for one task."""

    def __init__(self, options: MapOptions, to_object: ToObject, typed: Typed) -> None:
        self._options = options
        self._key = _converter(options.key_format, to_object, typed.get("key"))
        self._value = _converter(options.value_format, to_object, typed.get("value"))

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
        """Raises SourceError for an entry that cannot be read so, naming its partition."""
        import pyarrow as pa

        keys, values = columns.entries(items)
        try:
            key, value = self._key(keys), self._value(values)
        except SourceError as error:
            raise SourceError(
                f"An entry of partitions {sorted(set(partitions.tolist()))} of "
                f"{self._options.place} cannot be read. {error}"
            ) from None
        count = len(partitions)
        made = [
            *(pa.nulls(count, pa.string()), key, value, pa.nulls(count, value.type)),
            *(pa.array(partitions, pa.int32()), pa.nulls(count, pa.int64())),
        ]
        return pa.RecordBatch.from_arrays(made, names=list(NAMES))


def _converter(
    kind: str, to_object: ToObject, typed: Callable[[pa.Array], pa.Array] | None
) -> Callable[[Values], pa.Array]:
    if kind == TEXT:
        return lambda values: columns.as_text(values, to_object)
    if kind == JSON:
        assert typed is not None
        return lambda values: typed(columns.as_bytes(values))
    return columns.as_bytes if kind == BYTES else columns.as_data
