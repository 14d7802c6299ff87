"""`format("eo-target")`: the class that Spark finds."""

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
class TargetDataSource(DataSource):
    """A target of the user's own as an exactly-once sink. Options: docs/targets.md."""

    @classmethod
    def name(cls) -> str:
        """The word after `format`."""
        return "eo-target"

    def schema(self) -> str:
        """Asked for at `load()` only. Raises OptionsError."""
        raise OptionsError(["Format 'eo-target' only writes."])

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:
        """Called before each micro-batch, and again before each `commit` and `abort`; contacts
        nobody."""
        from .writers import TargetStreamWriter

        return TargetStreamWriter(self.options, schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called once a `save()`, also for each batch of `eo_kafka.foreach_batch`."""
        from ..staged_writer import batch_writer
        from .writers import TargetStreamWriter

        return batch_writer(self.options, schema, overwrite, TargetStreamWriter)
