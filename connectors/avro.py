"""Gives out `from_avro` and `to_avro`, or says what is missing for them."""

from ..core.errors import EnvironmentRefused
from ..formats.options import missing_for_avro
from .spark_versions import refuse_without_arrow_udf

refuse_without_arrow_udf()
if missing := missing_for_avro():
    raise EnvironmentRefused(missing)

from ..formats.columns import from_avro, to_avro  # noqa: E402 - the sentences come first

__all__ = ["from_avro", "to_avro"]
