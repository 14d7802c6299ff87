"""What a task of the direct lane does: it reads ranges, transforms their records, and checks them.

On executors. The ranges come from the source as rows (`range_rows`), one for each offset range. The
records go from Kafka's client to the transform and to the sink within one process.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ...core.errors import SinkError
from ...core.offsets import OffsetRange, TopicPartition
from ...formats.reading import Reading
from ...formats.shared.arrow_types import arrow_schema
from ...sources.settings.options import SourceOptions
from .given import Given, iterated
from .shape import BATCH, in_shape

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

Batches: TypeAlias = "Iterator[pa.RecordBatch]"
Transform: TypeAlias = Callable[[Batches], Batches]

RANGES = "topic STRING, partition INT, start BIGINT, end BIGINT, topic_id STRING"


@dataclass(frozen=True)
class Lane:
    """How a task gets from ranges to the rows that it writes. Pickled by Spark to its processes."""

    options: SourceOptions
    reading: Reading
    transform: Transform | None
    schema: StructType  # of the rows that are written
    slots: int | None = None  # how many tasks Spark runs at once; None where it does not say


class LaneRead:
    """One task's way through the lane; counts the records that it read."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._is_read = False
        self._is_answered = True  # something came after the last batch that was given
        self.records = 0

    def rows(self, ranges: Batches) -> Batches:
        """The rows to write. Executor, once a task attempt. Reads all of `ranges` first: Spark's
        source task ends then.

        Raises what the source's `read` raises, what the transform raises, and SinkError where the
        transform leaves records unread, ends in the middle of the last ones, or makes columns that
        are not of the schema.
        """
        wanted, ids = ranges_of(ranges)
        records = self._counted(wanted, ids)
        transform = self._lane.transform
        shape = arrow_schema(self._lane.schema)
        for batch in (
            records if transform is None else iterated(transform(Given(records, BATCH)), BATCH)
        ):
            self._is_answered = True
            yield in_shape(batch, shape)
        is_answered = self._is_answered or self._is_read
        if next(records, None) is not None or not self._is_read:
            raise SinkError(
                f"The transform ended after {self.records} records of the task and left others "
                "unread: they would be lost. Nothing of the batch is visible. A transform takes "
                "all batches of its iterator; to leave records out, yield smaller batches."
            )
        if not is_answered:
            raise SinkError(
                f"The transform ended when it had the last of {self.records} records of the task, "
                "gave nothing for them and did not ask for more: they would be lost. Nothing of "
                "the batch is visible. Is it map() of a function in which next() finds nothing? "
                "That raises StopIteration, which ends map() without a word: give next() a "
                "default. To leave records out, take the iterator to its end."
            )

    def _counted(
        self, wanted: Sequence[OffsetRange], ids: Mapping[str, str]
    ) -> Generator[pa.RecordBatch]:
        from ...sources.reader import read_ranges

        options, reading = self._lane.options, self._lane.reading
        if reading.unread:
            options = replace(options, include_headers=True, unread=reading.unread)
        for batch in reading.batches(read_ranges(options, wanted, ids)):
            self.records += batch.num_rows
            self._is_answered = False
            yield batch
        self._is_read = True


def range_rows(ranges: Sequence[OffsetRange], ids: Mapping[str, str]) -> pa.RecordBatch:
    """The ranges of one task as rows of RANGES, with the ids that their topics must have."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(
        [
            pa.array([one.partition.topic for one in ranges], pa.string()),
            pa.array([one.partition.partition for one in ranges], pa.int32()),
            pa.array([one.start for one in ranges], pa.int64()),
            pa.array([one.end for one in ranges], pa.int64()),
            pa.array([ids.get(one.partition.topic) for one in ranges], pa.string()),
        ],
        names=[column.split()[0] for column in RANGES.split(", ")],
    )


def ranges_of(rows: Batches) -> tuple[list[OffsetRange], dict[str, str]]:
    """The reverse of `range_rows`."""
    ranges, ids = [], {}
    for batch in rows:
        for row in batch.to_pylist():
            at = TopicPartition(row["topic"], row["partition"])
            ranges.append(OffsetRange(at, row["start"], row["end"]))
            if row["topic_id"] is not None:
                ids[at.topic] = row["topic_id"]
    return ranges, ids
