"""Gives out `from_avro` and `to_avro`, or says what is missing for them."""

from eo_kafka.connectors.spark_versions import refuse_without_arrow_udf
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.formats.options import missing_for_avro

refuse_without_arrow_udf()
if missing := missing_for_avro():
    raise EnvironmentRefused(missing)

from eo_kafka.formats.columns import from_avro, to_avro  # noqa: E402 - the sentences come first

__all__ = ["from_avro", "to_avro"]
