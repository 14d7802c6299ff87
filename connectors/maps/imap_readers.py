"""Spark's readers of IMaps: the stream of their changes, and all entries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from ..one_build import OneBuild
from ..plain_errors import plain_errors
from ..spark_versions import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from .filters import Pushing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ...sources.maps.options import MapOptions
    from ...sources.maps.rows import Typed


@plain_errors
class ImapStreamReader(OneBuild, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The event journal of a map.

    Spark asks `initialOffset()` again when it restarts before batch 0 is committed, and stores no
    answer. So the answer is empty; the first batch reads nothing and *ends* where the query
    starts, which Spark does store before any row is read.
    """

    def __init__(self, options: MapOptions, typed: Typed) -> None:
        from ...sources.maps.planner import MapPlanner

        self._options = options
        self._typed = typed
        self._planner = MapPlanner(options)
        self._until_now = False

    def initialOffset(self) -> dict[str, Any]:
        """Nothing yet; see the class."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """By `maxEventsPerTrigger`, if given. Driver, once a run."""
        most = self._options.max_events
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only up to what the first look at the journal sees. Driver, first call of a run."""
        self._until_now = True

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Where the next batch ends. Driver, once for each batch or trigger.

        Raises DataLossError, ReadTimeout, EnvironmentRefused where the map has no journal.
        """
        from ...core.crash_points import crash_point

        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = self._planner.end(self._position(start), rows, now=self._until_now)
        if not start:
            crash_point("source.after_initial_resolution")
        return end.encode()

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        """The tasks of one batch. Driver; after a restart the first call may be this one."""
        from ...core.crash_points import crash_point
        from ...sources.maps.position import ranges
        from ...sources.maps.reader import tasks

        crash_point("source.before_partitions")
        until = self._position(end)
        assert until is not None
        wanted = ranges(self._position(start), until)
        return [InputPartition(one) for one in tasks(until.cluster, wanted, self._options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The events of some ranges. Executor, once for each task attempt."""
        from ...sources.maps.reader import read_journal

        return read_journal(self._options, partition.value, self._typed)

    def commit(self, end: Any) -> None:
        """Nothing to do: the offsets are in the checkpoint."""

    def stop(self) -> None:
        """Disconnect. Spark ends the process without calling this."""
        from ...clients.hazelcast.client import close_clients

        close_clients()

    def _position(self, offset: Any) -> Any:
        from ...sources.maps.position import MapPosition

        if not offset:
            return None
        found = MapPosition.decode(offset)
        self._options.check_same(found.map)
        return found


@plain_errors
class ImapBatchReader(OneBuild, DataSourceReader):
    """All entries of a map, as they are when they are read; it is no snapshot."""

    def __init__(self, options: MapOptions, typed: Typed, schema: StructType) -> None:
        from ...sources.maps.pushed import NOTHING_PUSHED

        self._options = options
        self._typed = typed
        self._schema = schema
        self._pushed = NOTHING_PUSHED

    def partitions(self) -> list[InputPartition]:
        """Groups of the map's partitions. Driver, once a load."""
        from ...sources.maps.entries import plan

        return [InputPartition(one) for one in plan(self._options, self._pushed)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The entries of some partitions. Executor, once for each task attempt."""
        from ...sources.maps.entries import read_entries

        return read_entries(self._options, partition.value, self._typed)


@plain_errors
class PushingImapBatchReader(Pushing, ImapBatchReader):
    """The same, restricted by Spark's filters."""
