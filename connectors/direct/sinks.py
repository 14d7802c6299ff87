"""What a lane fills: a writer of any of our formats, whose rows are the lane's and not Spark's.

A writer's `write` takes rows from an iterator and does not ask who makes them. So the protocol, the
options and the guarantee are that format's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ...core.errors import OptionsError
from ...formats import bad_records
from ..ledger_writer import Report
from ..plain_errors import plain_errors
from ..spark_versions import StreamArrowWriter
from ..written_format import format_of, problems_of
from .lane import Lane, LaneRead

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSource

    Given = Mapping[str, str]

TOPICS = "eo-kafka"
_SOURCES = {  # imported when one is wanted: a worker that writes topics needs no other
    TOPICS: ("kafka", "KafkaDataSource"),
    "eo-files": ("files.format", "FilesDataSource"),
    "eo-map": ("maps.format", "MapDataSource"),
    "eo-postgres": ("tables.format", "PostgresDataSource"),
    "eo-target": ("targets.format", "TargetDataSource"),
}


class _Filled:
    """What both writers share: the sink's own one, and the lane that fills it."""

    def __init__(self, sink: Any, lane: Lane) -> None:
        self._sink = sink  # pickled with this one, which is when its S1 runs
        self._lane = lane

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Gets ranges. Runs on executors, once an attempt of a partition."""
        read = LaneRead(self._lane)
        message: WriterCommitMessage = self._sink.write(read.rows(iterator))
        if isinstance(message, Report):
            return replace(message, records_read=read.records)
        return message  # of puts into a map, which have no ledger and no figures


@plain_errors
class LaneStreamWriter(_Filled, StreamArrowWriter):
    """One micro-batch; the protocol is the sink's own stream writer's."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """S6 to S8, on the driver, once a batch, or again after a failure."""
        self._sink.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when a task or `commit` failed."""
        self._sink.abort(messages, batchId)


@plain_errors
class LaneBatchWriter(_Filled, DataSourceArrowWriter):
    """One `save()`; the protocol is the sink's own batch writer's."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, once, after all tasks."""
        self._sink.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when a task or `commit` failed."""
        self._sink.abort(messages)


def stream_writer(given: Given, lane: Lane, overwrite: bool) -> LaneStreamWriter:
    """For one micro-batch. Contacts nobody. Raises OptionsError with every problem."""
    return LaneStreamWriter(_made("streamWriter", given, lane, overwrite), lane)


def batch_writer(given: Given, lane: Lane, overwrite: bool) -> LaneBatchWriter:
    """For one `save()`. Raises OptionsError with every problem."""
    return LaneBatchWriter(_made("writer", given, lane, overwrite), lane)


def _made(which: str, given: Given, lane: Lane, overwrite: bool) -> Any:
    """The sink's writer, for rows of the lane's schema."""
    word = format_of(given)
    module, name = _SOURCES[word]
    source: DataSource = getattr(import_module(f"..{module}", __package__), name)(given)
    lost = _bad_records(word, lane)
    problems = [*problems_of(given), *lost]
    schema = lane.schema
    if lost:  # the writer would tell it once more, and nothing else
        schema = StructType([one for one in schema.fields if one.name != bad_records.COLUMN])
    try:
        # As it is itself: what Spark calls puts off its errors in a process of Spark's.
        made = inspect.unwrap(getattr(type(source), which))(source, schema, overwrite)
    except OptionsError as error:
        problems += [one for one in error.problems if one not in problems]
    if problems:
        raise OptionsError(problems)
    return made


def _bad_records(word: str, lane: Lane) -> list[str]:
    """What would become of records that cannot be read, where nobody else sees it."""
    copies_all = lane.transform is None and lane.reading.shows_bad_records
    lost = bad_records.lost_in(word, lane.schema, nulls=copies_all)
    if lost is None:
        return []
    ways = {TOPICS: "FAILFAST or DEADLETTER", "eo-map": "FAILFAST"}
    return [
        f"{lost} Set 'mode' of the source to {ways.get(word, 'FAILFAST or PERMISSIVE')}, or to "
        "PERMISSIVE with a transform that leaves such records out, and "
        f"'{bad_records.COLUMN}' out of 'schema'."
    ]
