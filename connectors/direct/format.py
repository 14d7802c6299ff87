"""Spark's faces of the direct lane: a source of ranges, and sinks that read them.

Each lane is a format of its own, registered with the session, since a format is the one thing by
which Spark hands a user's function to a Python sink. Spark pickles it as it does a UDF.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import InputPartition

from ...sources.most_tasks import with_most_tasks
from ..kafka import KafkaDataSource
from ..kafka_source import KafkaBatchReader, KafkaStreamReader, reader_options
from ..plain_errors import plain_errors
from ..spark_versions import refuse_without_admission_control
from . import NAME, sinks
from .lane import RANGES, Lane, range_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@plain_errors
class RangesStreamReader(KafkaStreamReader):
    """Plans as the stream reader does; its rows are the ranges themselves."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The ranges of one task. Executor, once a task attempt; contacts nobody."""
        yield range_rows(*partition.value)


@plain_errors
class RangesBatchReader(KafkaBatchReader):
    """Plans as the batch reader does; its rows are the ranges themselves."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The ranges of one task. Executor, once a task attempt; contacts nobody."""
        ranges, ids, *_ = partition.value
        if ranges:
            yield range_rows(ranges, ids)


@plain_errors
class DirectDataSource(KafkaDataSource):
    """Both ends of one lane; `format_for` makes a class of its own for each."""

    lane: ClassVar[Lane]

    def schema(self) -> str:
        """Of the ranges."""
        return RANGES

    def streamReader(self, schema: StructType) -> RangesStreamReader:
        """Called once a query, at its start."""
        refuse_without_admission_control(self.options)
        options = reader_options(self.options, streaming=True)[0]
        return RangesStreamReader(options, slots=self.lane.slots)

    def reader(self, schema: StructType) -> RangesBatchReader:
        """Called once a `load()`."""
        options = reader_options(self.options, streaming=False)[0]
        return RangesBatchReader(with_most_tasks(options, self.lane.slots))

    def streamWriter(self, schema: StructType, overwrite: bool) -> sinks.LaneStreamWriter:
        """Called before each micro-batch, and again before each `commit` and `abort`."""
        return sinks.stream_writer(self.options, self.lane, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> sinks.LaneBatchWriter:
        """Called once a `save()`."""
        return sinks.batch_writer(self.options, self.lane, overwrite)


def format_for(lane: Lane) -> type[DirectDataSource]:
    """A format for this lane alone. Its name is that of its content, since a session keeps what is
    registered for ever. Other content has another name: a writer that was made and not yet started
    must not get the function of one that was made after it."""
    name = f"{NAME}{_content_of(lane)}"
    members = {"lane": lane, "name": classmethod(lambda cls: name)}
    return type("DirectLane", (DirectDataSource,), members)


def _content_of(lane: Lane) -> str:
    """By what Spark sends of it. What cannot be pickled is refused when it is registered, in
    Spark's words."""
    from pyspark import cloudpickle

    dumps: Any = cloudpickle.dumps
    try:
        packed = dumps(lane)
    except Exception:
        return uuid.uuid4().hex
    return hashlib.blake2b(packed, digest_size=16).hexdigest()
