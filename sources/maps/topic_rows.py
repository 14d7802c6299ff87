"""Turns records of a topic into record batches of a map's columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...core.errors import SourceError, cut
from ...core.maps import TEXT
from .declared import BYTES
from .rows import NAMES, Typed
from .topic_options import TopicMapOptions

if TYPE_CHECKING:
    import pyarrow as pa

UPDATED, REMOVED = "UPDATED", "REMOVED"


class TopicRows:
    """Makes record batches for one task."""

    def __init__(self, options: TopicMapOptions, typed: Typed) -> None:
        self._options = options
        self._key = _converter(options.key_format, typed.get("key"))
        self._value = _converter(options.value_format, typed.get("value"))

    def of_changes(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Records, in order. One without a value is a removal; of any other nobody can say
        whether the key was there before. Raises SourceError, naming partition and offset."""
        import pyarrow as pa
        import pyarrow.compute as pc

        gone = records.column("value").is_null()
        return self._made(records, pc.if_else(gone, pa.scalar(REMOVED), pa.scalar(UPDATED)))

    def of_entries(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The newest record of each of some keys. Raises SourceError as above."""
        import pyarrow as pa

        return self._made(records, pa.nulls(records.num_rows, pa.string()))

    def _made(self, records: pa.RecordBatch, events: pa.Array) -> pa.RecordBatch:
        import pyarrow as pa

        if records.column("key").null_count:
            raise self._refused(records, "It has no key, and a map's entries have one")
        key = self._converted(records, "key", self._key)
        value = self._converted(records, "value", self._value)
        old_value = pa.nulls(records.num_rows, value.type)
        places = (records.column("partition"), records.column("offset"))
        return pa.RecordBatch.from_arrays([events, key, value, old_value, *places], list(NAMES))

    def _converted(
        self, records: pa.RecordBatch, name: str, convert: Callable[[pa.Array], pa.Array]
    ) -> pa.Array:
        import pyarrow as pa

        try:
            return convert(records.column(name))
        except (pa.ArrowInvalid, SourceError) as error:
            if records.num_rows == 1:
                raise self._refused(records, f"Its {name}: {cut(error, 300)}") from None
            for row in range(records.num_rows):  # which one is it?
                self._converted(records.slice(row, 1), name, convert)
            raise

    def _refused(self, records: pa.RecordBatch, why: str) -> SourceError:
        where = f"partition {records.column('partition')[0]} of {self._options.place}"
        if records.num_rows > 1:
            return SourceError(f"A record of {where} cannot be read. {why}.")
        offset = records.column("offset")[0]
        return SourceError(f"The record at offset {offset} of {where} cannot be read. {why}")


def _converter(
    kind: str, typed: Callable[[pa.Array], pa.Array] | None
) -> Callable[[pa.Array], pa.Array]:
    if kind == TEXT:
        return _as_text
    if kind == BYTES:
        return lambda column: column
    assert typed is not None
    return typed


def _as_text(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    try:
        return column.cast(pa.string())  # looks that it is UTF-8
    except pa.ArrowInvalid:
        raise SourceError("It is not UTF-8; read it as 'bytes'.") from None
