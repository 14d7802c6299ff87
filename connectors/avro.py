"""`eo_kafka.from_avro` and `eo_kafka.to_avro`, where Spark has what they are made of."""

from eo_kafka.connectors.spark_versions import refuse_without_typed_columns

refuse_without_typed_columns()

from eo_kafka.formats.columns import from_avro, to_avro  # noqa: E402 - the sentence comes first

__all__ = ["from_avro", "to_avro"]
