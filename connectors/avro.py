"""`eo_kafka.from_avro` and `eo_kafka.to_avro`, where there is what they are made of."""

from ..core.errors import EnvironmentRefused
from ..formats.options import missing_for_avro
from .spark_versions import refuse_without_arrow_udf

refuse_without_arrow_udf()
if missing := missing_for_avro():
    raise EnvironmentRefused(missing)

from ..formats.columns import from_avro, to_avro  # noqa: E402 - the sentences come first

__all__ = ["from_avro", "to_avro"]
