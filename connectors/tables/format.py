"""`format("eo-postgres")`: the class that Spark finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ...core.errors import OptionsError
from ..foreach_batch import BATCH, NumberedWriter, numbered, of_foreach_batch
from ..plain_errors import plain_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter
    from pyspark.sql.types import StructType

    from ..spark_versions import StreamArrowWriter


@plain_errors
class PostgresDataSource(DataSource):
    """A table of PostgreSQL as an exactly-once sink. Options: docs/postgres.md."""

    @classmethod
    def name(cls) -> str:
        """The word after `format`."""
        return "eo-postgres"

    def schema(self) -> str:
        """Asked for at `load()` only. Raises OptionsError."""
        raise OptionsError(
            ["Format 'eo-postgres' only writes. Read the table with Spark's format 'jdbc'."]
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:
        """Called before each micro-batch, and again before each `commit` and `abort`; contacts
        nobody."""
        from .writers import TableStreamWriter

        return TableStreamWriter(self.options, schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called once a `save()`, also for each batch of `eo_kafka.foreach_batch`."""
        from .writers import TableStreamWriter

        if BATCH.lower() in {name.lower() for name in self.options}:
            return of_foreach_batch(self.options, schema, overwrite, TableStreamWriter)
        return _of_job(self.options, schema, overwrite)


def _of_job(given: Mapping[str, str], schema: StructType, overwrite: bool) -> NumberedWriter:
    """The writer of a `save()`, which is a batch of a job's ledger: only so it can be tried again.
    Raises OptionsError."""
    from ...core.options import OptionReader
    from ...sinks.options import BATCH_ID
    from ...state.ledger.job import JOB_NAME
    from .writers import TableStreamWriter

    reader = OptionReader(given)
    batch, job = reader.get(BATCH_ID), reader.get(JOB_NAME)
    if overwrite:
        reader.problem("Save mode 'overwrite' is not allowed for a table: use mode('append').")
    for option in (JOB_NAME, BATCH_ID):
        if option.name not in reader:
            reader.problem(
                f"A batch write into a table needs option '{option.name}': 'jobName' and 'batchId' "
                "say which write it is, so that it is written once, however often it is tried."
            )
    reader.finish()
    return numbered(given, schema, job or "", batch or 0, TableStreamWriter)
