"""`format("eo-queue")`: the class that Spark finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from ...core.errors import OptionsError
from ..plain_errors import plain_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader
    from pyspark.sql.types import StructType


@plain_errors
class QueueDataSource(DataSource):
    """A queue of RabbitMQ, or a share group of Kafka, as a stream, each message once. Options:
    docs/queues.md."""

    @classmethod
    def name(cls) -> str:
        """The word after `format`."""
        return "eo-queue"

    def schema(self) -> StructType | str:
        """The Kafka source's columns, of which `value` may be typed, and the messages' own. Called
        at `load()`; contacts nobody. Raises OptionsError."""
        from .reader import checked, columns

        return columns(checked(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Called once a query, at its start."""
        from ..spark_versions import refuse_without_admission_control
        from .reader import QueueStreamReader, checked

        refuse_without_admission_control(self.options)
        return QueueStreamReader(checked(self.options), schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises OptionsError: a batch would take messages that nobody else gets any more."""
        raise OptionsError(
            [
                "Format 'eo-queue' is a stream: use readStream. What it has received is in the "
                "topic that option 'inbox' names, which a batch reads with format('eo-kafka')."
            ]
        )
