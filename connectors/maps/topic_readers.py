"""Spark's readers of a map that is a compacted topic, built on the Kafka source's."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from ...core.offsets import Position, decode, decode_position, encode_position
from ...sources.lookup import OffsetLookup
from ...sources.maps.pushed import NOTHING_PUSHED
from ...sources.maps.topic_options import TopicMapOptions
from ...sources.maps.topic_position import TopicPosition, after, now_ms, read_until_ms
from ...sources.maps.topic_reader import (
    ChangesTask,
    plan_entries,
    read_changes,
    read_entries,
    removals_kept_ms,
)
from ..one_build import OneBuild
from ..plain_errors import plain_errors
from ..spark_versions import ReadLimit, SupportsTriggerAvailableNow
from .filters import Pushing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ...sources.maps.rows import Typed

_ASK_AGAIN_S = 5.0  # for a setting, while there is nothing to read


@plain_errors
class TopicMapStreamReader(OneBuild, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The changes of a map that is a topic: the Kafka source's stream, batch for batch. Its offsets
    are in `TopicPosition`s; see there for what else they hold."""

    def __init__(self, options: TopicMapOptions, typed: Typed) -> None:
        from ..kafka_source import KafkaStreamReader

        self._options = options
        self._typed = typed
        self._stream = KafkaStreamReader(options.source)
        self._lookup = OffsetLookup(options.source)
        self._kept_ms: int | None = None  # as it was said last, at `_asked_s`
        self._asked_s = 0.0
        self._until_now = False
        self._looked_ms: int | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where the query starts. Driver, while batch 0 is not committed."""
        started = now_ms()  # before the look: what it finds was there then
        offsets = decode(self._stream.initialOffset())
        return TopicPosition(self._options.map, Position(offsets), started).encode()

    def getDefaultReadLimit(self) -> ReadLimit:
        """By `maxEventsPerTrigger`, if given. Driver, once a run."""
        return self._stream.getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only up to what the first look at the topic sees. Driver, first call of a run."""
        self._until_now = True
        self._stream.prepareForTriggerAvailableNow()

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Where the next batch ends. Driver, once for each batch or trigger.

        Raises what the Kafka source raises, EnvironmentRefused for a topic that is no map.
        """
        begin = self._position(start)
        kept_ms = self._removals_kept_ms(_ASK_AGAIN_S)
        if self._looked_ms is None or not self._until_now:
            self._looked_ms = now_ms()
        end = decode_position(self._stream.latestOffset(encode_position(begin.position), limit))
        newest = decode(self._stream.reportLatestOffset() or {})
        return after(begin, end, newest, self._looked_ms, kept_ms).encode()

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        """The tasks of one batch. Driver; after a restart the first call may be this one."""
        begin, until = self._position(start), self._position(end)
        late = read_until_ms(begin, until, self._removals_kept_ms(), now_ms())
        ranges = self._stream.ranges(begin.position.offsets, until.position)
        ids = self._stream.topic_ids
        return [InputPartition(ChangesTask(one, late, ids)) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The changes of one range. Executor, once for each task attempt."""
        return read_changes(self._options, partition.value, self._typed)

    def commit(self, end: Any) -> None:
        """Nothing to do: the offsets are in the checkpoint."""

    def stop(self) -> None:
        """Drop the client. Spark ends the process without calling this."""
        self._stream.stop()
        self._lookup.close()

    def _position(self, offset: Any) -> TopicPosition:
        found = TopicPosition.decode(offset)
        self._options.check_same(found.map)
        return found

    def _removals_kept_ms(self, within_s: float = 0.0) -> int:
        """As the topic says now, or said `within_s`: it may be lowered for a purge."""
        if self._kept_ms is None or time.monotonic() - self._asked_s >= within_s:
            self._kept_ms = removals_kept_ms(self._options, self._lookup, self._kept_ms)
            self._asked_s = time.monotonic()
        return self._kept_ms


@plain_errors
class TopicMapBatchReader(OneBuild, DataSourceReader):
    """All entries of a map that is a topic, as they are when they are read: every action on the
    DataFrame reads anew."""

    def __init__(self, options: TopicMapOptions, typed: Typed, schema: StructType) -> None:
        self._options = options
        self._typed = typed
        self._schema = schema
        self._pushed = NOTHING_PUSHED

    def partitions(self) -> list[InputPartition]:
        """One task for each partition of the topic; the first reads what is added later, too.
        Driver, once a load."""
        return [InputPartition(task) for task in plan_entries(self._options, self._pushed)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The entries of one task. Executor, once for each task attempt."""
        return read_entries(self._options, partition.value, self._typed)


@plain_errors
class PushingTopicMapBatchReader(Pushing, TopicMapBatchReader):
    """The same, restricted by Spark's filters."""
