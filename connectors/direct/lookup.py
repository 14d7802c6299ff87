"""`eo_kafka.Lookup`: entries of a map beside the records of the direct lane, without a join."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

from ...core.errors import OptionsError
from ...core.options import time_span_ms

if TYPE_CHECKING:
    import pyarrow as pa

# Arrow makes a hash table of all keys for each batch of records. With more keys than this it takes
# longer than to look each record up in a dictionary that was made once.
_MANY = 20_000


@dataclass(frozen=True)
class _Loaded:
    """Entries as they were read."""

    task: object  # whose
    taken_s: float
    table: pa.Table

    @cached_property
    def _keys(self) -> pa.ChunkedArray:
        return _bytes(self.table.column("key"))

    @cached_property
    def _rows(self) -> dict[Any, int]:
        keys = chain.from_iterable(map(_hashable, self._keys.chunks))
        rows = {key: row for row, key in enumerate(keys)}
        rows.pop(None, None)
        return rows

    @property
    def key_type(self) -> pa.DataType:
        """Of the keys, and so of what is looked up."""
        return self._keys.type

    def find(self, wanted: pa.Array) -> pa.Array:
        """The row of each key, null where there is none."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.table.num_rows <= _MANY:
            return pc.index_in(wanted, value_set=self._keys, skip_nulls=True)
        rows = self._rows
        return pa.array([rows.get(key) for key in _hashable(wanted)], pa.int64())


_LOADED: dict[str, _Loaded] = {}  # in this process, by the options


class Lookup:
    """Entries of a map, which a transform of `eo_kafka.direct` adds to its records.

    Each worker process loads all entries when it first needs them, so the map must fit into its
    memory. A batch that runs again may find other entries: that does no harm before a sink with
    exactly-once, of which a reader sees one run of each batch. Two cases need the same rows again,
    and stop the query if they get others: `commit=idempotent`, and a decided batch of which Kafka
    has lost a part. `eo_kafka.SideInput` gives a replay the same entries. Made on the driver, with
    a session; used on executors.

    Args:
        options: The options for reading the map with `format("eo-map")`.
        refresh: How old entries may be, such as `10 minutes`. By default each task takes new ones.

    Raises:
        OptionsError: An option or `refresh` is wrong.

    Examples:
        >>> customers = eo_kafka.Lookup({"backend": "kafka", "map": "customers", **kafka})
        >>> def enrich(batches):
        ...     for batch in batches:
        ...         yield customers.add(batch, on="key", name="value", how="inner")
        >>> query = eo_kafka.direct(
        ...     spark,
        ...     {**kafka, "subscribe": "orders", "startingOffsets": "earliest"},
        ...     {**kafka, "topic": "found", "jobName": "found"},
        ...     enrich,
        ...     "key BINARY, value STRING",
        ... ).option("checkpointLocation", "/data/found").trigger(availableNow=True).start()
        >>> query.awaitTermination()
    """

    def __init__(self, options: Mapping[str, str], refresh: str | None = None) -> None:
        from pyspark.sql.datasource import CaseInsensitiveDict
        from pyspark.sql.types import ArrayType, MapType, StructType

        from ...formats.shared.arrow_types import arrow_schema
        from ..maps.format import MapDataSource

        problems: list[str] = []
        try:
            source = MapDataSource(CaseInsensitiveDict(dict(options)))
            schema: Any = StructType.fromDDL(source.schema())
            kind = schema["key"].dataType
            if isinstance(kind, (ArrayType, MapType, StructType)):
                problems.append(
                    f"The keys of the map are {kind.simpleString()}: a column cannot be looked up."
                )
        except OptionsError as error:
            problems += error.problems
        try:
            self._refresh_ms = None if refresh is None else time_span_ms(refresh)
        except ValueError as error:
            problems.append(f"Argument 'refresh' {error}; it is '{refresh}'.")
        if problems:
            raise OptionsError(problems)
        self._reader = source.reader(schema)
        self._shape = arrow_schema(StructType([schema["key"], schema["value"]]))
        self._map, self._backend = str(options["map"]), options.get("backend")
        self._id = repr(sorted(options.items()))

    def __repr__(self) -> str:
        return f"Lookup(map={self._map!r})"  # options may hold a password

    def add(
        self, batch: pa.RecordBatch, on: str = "key", how: str = "left", name: str = "entry"
    ) -> pa.RecordBatch:
        """Add the map's values to a batch of records. Executor, as often as wanted.

        Args:
            batch: The records.
            on: The column of `batch` that holds the map's key. Text and bytes are compared as
                bytes; else it must be of the key's type.
            how: `left` keeps records without an entry, with null; `inner` drops them.
            name: The name of the column with the entry's value. It replaces one of this name.

        Returns:
            The records, in their order, with that column.

        Raises:
            OptionsError: `how` is another word, column `on` is missing or of another type.
            SourceError, ReadTimeout, EnvironmentRefused: As `format("eo-map")`.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if on not in batch.schema.names or how not in ("left", "inner"):
            raise OptionsError(
                [
                    f"Lookup.add needs a column '{on}' among {batch.schema.names}, and 'how' to be "
                    f"'left' or 'inner'; it is '{how}'."
                ]
            )
        loaded, wanted = self._loaded(), _bytes(batch.column(on))
        if wanted.type != loaded.key_type:
            raise OptionsError(
                [
                    f"Column '{on}' is {wanted.type}, and the keys of map '{self._map}' are "
                    f"{loaded.key_type}. Cast the column."
                ]
            )
        at = loaded.find(wanted)
        values = loaded.table.column("value").take(at)
        kept = {one: batch.column(one) for one in batch.schema.names}
        found = pa.Table.from_pydict({**kept, name: values})
        if how == "inner":
            found = found.filter(pc.is_valid(at))
        return pa.record_batch(
            [column.combine_chunks() for column in found.columns], names=found.column_names
        )

    def entries(self) -> pa.Table:
        """All entries, columns `key` and `value`, for a join of one's own. Executor; reads the map
        unless this process has entries that are new enough. Raises as `add`."""
        return self._loaded().table

    def _loaded(self) -> _Loaded:
        loaded, now_s = _LOADED.get(self._id), time.monotonic()
        if loaded is None or not self._is_new(loaded, now_s):
            loaded = _LOADED[self._id] = _Loaded(_task(), now_s, self._read())
        return loaded

    def _is_new(self, loaded: _Loaded, now_s: float) -> bool:
        if self._refresh_ms is None:
            return loaded.task == _task()
        return (now_s - loaded.taken_s) * 1000 < self._refresh_ms

    def _read(self) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        from ..maps.twice import key_twice

        reader: Any = self._reader
        batches = [
            batch.select(["key", "value"])
            for part in reader.partitions()
            for batch in reader.read(part)
        ]
        table = pa.Table.from_batches(batches) if batches else self._shape.empty_table()
        keys = table.column("key").drop_null()
        if pc.count_distinct(keys).as_py() < len(keys):
            counts = keys.value_counts()
            twice = counts.filter(pc.greater(counts.field("counts"), 1))
            raise key_twice(self._map, twice[0]["values"].as_py(), self._backend)
        return table


def _task() -> object:
    from pyspark import TaskContext

    context = TaskContext.get()
    return None if context is None else (context.stageId(), context.taskAttemptId())


def _hashable(keys: pa.Array) -> list[Any]:
    """The keys as Python has them, or the bits of those that are other keys to Python than to Arrow
    (NaN, -0.0) or none at all (a year that is not 1 to 9999)."""
    import pyarrow as pa

    kind = keys.type
    if pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        keys = keys.view({32: pa.int32(), 64: pa.int64()}[kind.bit_width])
    found: list[Any] = keys.to_pylist()
    return found


def _bytes(column: Any) -> Any:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return column.cast(pa.binary())
    return column
