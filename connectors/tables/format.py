"""`format("eo-postgres")`: the class that Spark finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ...core.errors import OptionsError
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
        from ..staged_writer import batch_writer
        from .writers import TableStreamWriter

        return batch_writer(self.options, schema, overwrite, TableStreamWriter)
