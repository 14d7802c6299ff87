"""Spark's writer of targets of the user's own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from ...sinks.targets.options import read_options
from ..ledger_writer import LedgerWriter
from ..plain_errors import plain_errors
from ..staged_writer import check_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ...sinks.options import SinkOptions
    from ...sinks.targets.target import StagedCustomTarget


@plain_errors
class TargetStreamWriter(LedgerWriter):
    """One micro-batch into a target, and perhaps a topic: invisible until its decision, in the
    job's ledger in Kafka, and then there as a whole."""

    def __init__(
        self,
        given: Mapping[str, str],
        schema: StructType,
        overwrite: bool,
        batch: tuple[str, int] | None = None,
    ) -> None:
        """`batch`: query id and number, where Spark does not tell the tasks."""
        check_rows(given, schema, overwrite)
        options, self._target = self._read(given, schema)
        super().__init__(options, batch)

    def _read(
        self, given: Mapping[str, str], schema: StructType
    ) -> tuple[SinkOptions, StagedCustomTarget]:
        """Raises OptionsError."""
        types = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return read_options(given, schema.names, types)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Runs on executors, once an attempt of a partition."""
        from ...sinks.targets import writing

        task = self._task(self._context())
        assert self._plan is not None, "pickled for the tasks without S1"
        return self._reported(
            writing.write(self._options, self._target, self._plan, task, iterator)
        )
