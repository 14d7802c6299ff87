"""`format("eo-kafka")`: the class that Spark finds, and nothing but the way to the four roles.

Spark's driver-side workers import this for every call, and its source process has ten seconds to
connect back: what is heavy is imported by the role that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from eo_kafka.connectors.spark_versions import StreamArrowWriter


class KafkaDataSource(DataSource):
    """Kafka as a replayable source and an exactly-once sink. Options: docs/options.md."""

    @classmethod
    def name(cls) -> str:
        """The word after `format`."""
        return "eo-kafka"

    def schema(self) -> StructType:
        """The JVM connector's columns. Called at `load()`; never contacts a broker.

        Raises OptionsError for options that are wrong for batch and for streaming alike.
        """
        from eo_kafka.sources.options import SourceOptions

        return SourceOptions.parse(self.options, streaming=False).schema()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Called once a query, at its start."""
        from eo_kafka.connectors.kafka_source import KafkaStreamReader
        from eo_kafka.connectors.spark_versions import refuse_without_admission_control
        from eo_kafka.sources.options import SourceOptions

        refuse_without_admission_control(self.options)
        options = SourceOptions.parse(self.options, streaming=True)
        options.check_schema(schema)
        return KafkaStreamReader(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Called once a `load()`."""
        from eo_kafka.connectors.kafka_source import KafkaBatchReader
        from eo_kafka.sources.options import SourceOptions

        options = SourceOptions.parse(self.options, streaming=False)
        options.check_schema(schema)
        return KafkaBatchReader(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:
        """Called before each micro-batch, and again before each `commit` and `abort`: so no I/O
        here, it would end the very transactions that are to be committed."""
        from eo_kafka.connectors.kafka_sink import KafkaStreamWriter

        return KafkaStreamWriter(self.options, schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called once a `save()`, also for each batch of `eo_kafka.foreach_batch`."""
        from eo_kafka.connectors.foreach_batch import BATCH, ForeachBatchWriter
        from eo_kafka.connectors.kafka_sink import KafkaBatchWriter

        if BATCH.lower() in {name.lower() for name in self.options}:
            return ForeachBatchWriter(self.options, schema, overwrite)
        return KafkaBatchWriter(self.options, schema, overwrite)
