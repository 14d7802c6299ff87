"""Errors of ours reach the user as their sentence, without a traceback in front of it."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import FunctionType
from typing import Any, NoReturn, TypeVar

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition, WriterCommitMessage

from ..core.errors import EoKafkaError
from ..core.process.driver_directory import is_sparks
from .pickling import tells_errors
from .spark_versions import StreamArrowWriter, SupportsTriggerAvailableNow

log = logging.getLogger(__name__)

Face = TypeVar("Face", bound=type)

_OURS = __name__.partition(".")[0]
# What Spark calls of a source, of its readers and of its writers.
_CALLED_BY_SPARK = (
    *("schema", "reader", "writer", "streamReader", "streamWriter"),
    *("initialOffset", "latestOffset", "reportLatestOffset", "getDefaultReadLimit"),
    *("prepareForTriggerAvailableNow", "pushFilters", "partitions", "read"),
    *("__getstate__", "write", "commit", "abort"),
)


def plain_errors(face: Face) -> Face:
    """For each class that Spark calls: in a process of Spark's, an EoKafkaError is told without
    the traceback that Spark would put in front of it. Our sentences say what to do; where in our
    code they were raised helps nobody. Any other error keeps its traceback."""
    for name in _CALLED_BY_SPARK:
        method = getattr(face, name, None)
        if isinstance(method, FunctionType) and method.__module__.partition(".")[0] == _OURS:
            setattr(face, name, _plain(method))
    return face


def _plain(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def told(*given: Any, **named: Any) -> Any:
        try:
            found = method(*given, **named)
        except EoKafkaError as error:
            if is_sparks() and method.__name__ == "streamReader":
                return _RefusedReader(error)
            if is_sparks() and method.__name__ == "streamWriter":
                return _RefusedWriter(error, functools.partial(method, *given, **named))
            hide_traceback()
            raise
        return _each(found) if method.__name__ == "read" else found

    return told


def _each(batches: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from batches
    except EoKafkaError:
        hide_traceback()
        raise


def hide_traceback() -> None:
    """Of the error that ends this process: after one, Spark keeps no worker. This is the variable
    by which Spark's own setting (spark.sql.execution.pyspark.udf.hideTraceback.enabled) hides
    them, which Spark looks up when it tells an error."""
    if is_sparks():
        os.environ["SPARK_HIDE_TRACEBACK"] = "1"


class _Refused:
    def __init__(self, error: EoKafkaError) -> None:
        self._error = error

    def _refuse(self) -> NoReturn:
        hide_traceback()
        raise self._error


class _RefusedReader(_Refused, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises an error at the first call. Where `streamReader` itself raises, Spark trips over the
    reader that it has not got, and tells of that in place of the error."""

    def prepareForTriggerAvailableNow(self) -> None:
        """As the readers in whose place it stands, which Spark would warn of else."""

    def initialOffset(self) -> dict[str, Any]:
        """Driver, at the start of a new query."""
        return self._refuse()

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:
        """Driver, at the start of a query that goes on."""
        return self._refuse()

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        """Driver, at the start of a query that stopped within a batch."""
        return self._refuse()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Executor, where only the reader that plans tasks was refused."""
        return self._refuse()


class _RefusedWriter(_Refused, StreamArrowWriter):
    """Raises an error where the writer would be pickled for the tasks, or commit. Spark makes one
    for `abort`, too: where that raises after `commit` has, Spark tells of neither ("Writing job
    failed.")."""

    def __init__(self, error: EoKafkaError, make: Callable[[], Any]) -> None:
        super().__init__(error)
        self._make = make

    @tells_errors
    def __getstate__(self) -> dict[str, Any]:
        return self._refuse()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Executor. It is never there."""
        return self._refuse()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Driver, when all tasks have written."""
        self._refuse()

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Driver, when a task or `commit` failed. It must not hide why. Readers wait behind what
        the tasks prepared; to abort it, the ledger is needed, and of the checkpoint only the
        query's id, which they report."""
        from ..state.snapshots.query_id import told

        tasks = (getattr(message, "task", None) for message in messages)
        query = next((task.query_id for task in tasks if task), None)
        try:
            with told(query) if query else nullcontext():
                writer = self._make()
            writer.abort(messages, batchId)
        except Exception as error:
            log.warning("Batch %d: the next start cleans up (%s).", batchId, error)
