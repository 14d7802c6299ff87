"""Spark's writer of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from ...sinks.rows.one_value import KAFKA_COLUMNS
from ...sinks.tables.options import read_table
from ..ledger_writer import LedgerWriter
from ..plain_errors import plain_errors
from ..staged_writer import check_rows
from .rows import TableRows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


@plain_errors
class TableStreamWriter(LedgerWriter):
    """One micro-batch into a table, and perhaps a topic: invisible until its decision, in the job's
    ledger in Kafka, and then there as a whole."""

    def __init__(
        self,
        given: Mapping[str, str],
        schema: StructType,
        overwrite: bool,
        batch: tuple[str, int] | None = None,
    ) -> None:
        """`batch`: query id and number, where Spark does not tell the tasks."""
        check_rows(given, schema, overwrite)
        has_topic = "topic" in {name.lower() for name in given}
        self._rows = TableRows(schema, KAFKA_COLUMNS if has_topic else ())
        options, self._target = read_table(given, self._rows.columns)
        super().__init__(options, batch)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors, once an attempt of a partition."""
        from ...sinks.tables import writing

        task = self._task(self._context())
        assert self._plan is not None, "pickled for the tasks without S1"
        rows = self._rows.of(iterator)
        return self._reported(writing.write(self._options, self._target, self._plan, task, rows))
