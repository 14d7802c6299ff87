"""`format("eo-kafka")`: the class that Spark finds; it makes readers and writers.

Spark's driver-side workers import this for every call, and its source process has ten seconds to
connect back: what is heavy is imported by the role that needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from .plain_errors import plain_errors

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamReader,
    )
    from pyspark.sql.types import StructType

    from .spark_versions import StreamArrowWriter


@plain_errors
class KafkaDataSource(DataSource):
    """Kafka as a replayable source and an exactly-once sink. Options: docs/options.md."""

    def __init__(self, options: dict[str, str]) -> None:
        """On the driver: once a query for a source, for a streaming sink before each step of a
        batch. Files that options name are read here, and travel with the options."""
        super().__init__(options)
        if any(f"{name}.schema.file" in self.options for name in ("key", "value")):
            from ..formats.protobuf.options import with_files

            self.options.update(with_files(self.options))

    @classmethod
    def name(cls) -> str:
        """The word after `format`."""
        return "eo-kafka"

    def schema(self) -> StructType | str:
        """The JVM connector's columns, typed where formats are given. Called at `load()`; never
        contacts a broker, and a schema registry only for a schema that is not given.

        Raises OptionsError for options that are wrong for batch and for streaming alike.
        """
        from ..formats import reading
        from .kafka_source import reader_options

        options, formats = reader_options(self.options, streaming=False)
        return reading.schema(formats, options.schema())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Called once a query, at its start."""
        from ..formats.reading import Reading
        from .kafka_source import KafkaStreamReader, reader_options
        from .spark_versions import refuse_without_admission_control

        refuse_without_admission_control(self.options)
        options, formats = reader_options(self.options, streaming=True)
        return KafkaStreamReader(options, Reading(formats, options.schema(), schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Called once a `load()`."""
        from ..formats.reading import Reading
        from .kafka_source import KafkaBatchReader, reader_options

        options, formats = reader_options(self.options, streaming=False)
        return KafkaBatchReader(options, Reading(formats, options.schema(), schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamArrowWriter:
        """Called before each micro-batch, and again before each `commit` and `abort`: so no I/O
        here, it would end the very transactions that are to be committed."""
        from .kafka_sink import KafkaStreamWriter

        return KafkaStreamWriter(self.options, schema, overwrite)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Called once a `save()`, also for each batch of `eo_kafka.foreach_batch`."""
        from ..sinks.options import BATCH_ID
        from . import foreach_batch
        from .kafka_sink import KafkaBatchWriter

        names = {name.lower() for name in self.options}
        if foreach_batch.BATCH.lower() in names:
            return foreach_batch.of_foreach_batch(self.options, schema, overwrite)
        if BATCH_ID.key in names:
            return foreach_batch.of_job(self.options, schema, overwrite)
        return KafkaBatchWriter(self.options, schema, overwrite)
