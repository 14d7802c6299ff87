"""`format("eo-files")`: the class that Spark finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from ...core.errors import OptionsError
from ..plain_errors import plain_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter
    from pyspark.sql.types import StructType

    from ..spark_versions import StreamArrowWriter


@plain_errors
class FilesDataSource(DataSource):
    """Files in a directory as an exactly-once sink, and as a table. Options: docs/files.md."""

    @classmethod
    def name(cls) -> str:
        """The word after `format`."""
        return "eo-files"

    def schema(self) -> StructType:
        """Of all rows that are there. Asked for at `load()`, unless it was given. Raises
        OptionsError, SourceError."""
        from .reader import columns

        return columns(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Called once a `load()`."""
        from .reader import FilesReader

        return FilesReader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Raises OptionsError."""
        raise OptionsError(
            [
                "Format 'eo-files' is read as a batch: spark.read. As a stream read the directory "
                "with Spark's own format (parquet, json, csv): each batch is there at once."
            ]
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:
        """Called before each micro-batch, and again before each `commit` and `abort`; contacts
        nobody."""
        from .writers import FilesStreamWriter

        return FilesStreamWriter(self.options, schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called once a `save()`, also for each batch of `eo_kafka.foreach_batch`."""
        from ..staged_writer import batch_writer
        from .writers import FilesStreamWriter

        return batch_writer(self.options, schema, overwrite, FilesStreamWriter)
