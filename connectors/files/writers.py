"""Spark's writer of files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...sinks.files.options import read_options
from ..plain_errors import plain_errors
from ..targets.writers import TargetStreamWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ...sinks.options import SinkOptions
    from ...sinks.targets.target import StagedCustomTarget


@plain_errors
class FilesStreamWriter(TargetStreamWriter):
    """One micro-batch as files, and perhaps into a topic: a target with options of its own."""

    def _read(
        self, given: Mapping[str, str], schema: StructType
    ) -> tuple[SinkOptions, StagedCustomTarget]:
        return read_options(given, schema)
