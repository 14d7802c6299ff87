"""What the running Spark offers to Python sources and sinks. Nothing else asks for its version.

The same steps, processes and order of calls are there since 4.0: plan, tasks, `commit`, and after a
failed one `abort`. What came later: in 4.1 a base class for streaming writers of Arrow batches, and
functions of Arrow arrays; in 4.2 admission control. Before that Spark calls `latestOffset()`
without the batch's start or a limit, and runs Trigger.AvailableNow as one batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import datasource

from ..core.errors import EnvironmentRefused, OptionsError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

    ADMISSION_CONTROL: bool
else:
    # 4.0 gives Arrow batches to every writer that is a DataSourceArrowWriter, and does not look
    # what a streaming writer is besides.
    StreamArrowWriter = getattr(
        datasource, "DataSourceStreamArrowWriter", datasource.DataSourceArrowWriter
    )
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )

        ADMISSION_CONTROL = True
    except ImportError:
        ADMISSION_CONTROL = False

        class SupportsTriggerAvailableNow:
            """Spark does not look for it."""

        class ReadLimit:
            """Never given by Spark, nor asked for."""

        class ReadAllAvailable(ReadLimit):
            """As in 4.2."""

        @dataclass(frozen=True)
        class ReadMaxRows(ReadLimit):
            """As in 4.2."""

            max_rows: int

        @dataclass(frozen=True)
        class ReadMinRows(ReadLimit):
            """As in 4.2."""

            min_rows: int


__all__ = [
    "ADMISSION_CONTROL",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "refuse_streams_of_maps",
    "refuse_without_admission_control",
    "refuse_without_arrow_udf",
    "refuse_without_pushed_filters",
]

# Each would be a promise that this Spark gives no way to keep.
_SOURCE = {
    "maxOffsetsPerTrigger": "cut a batch, for Trigger.AvailableNow would end after the first",
    "minOffsetsPerTrigger": "put off a batch, for Trigger.AvailableNow would end without one",
    "jobName": "repeat the batches since a snapshot",
}
_SINK = {"snapshotInterval": "let the source repeat the batches since a snapshot"}


def refuse_without_admission_control(given: Iterable[str], *, sink: bool = False) -> None:
    """Raise OptionsError if options were `given` to a stream that need Spark 4.2."""
    if ADMISSION_CONTROL:
        return
    names = {name.lower() for name in given}
    problems = [
        f"Option '{name}' needs PySpark 4.2 or newer, and this is {pyspark.__version__}: it has "
        f"no way to {what}. Leave the option out, or upgrade."
        for name, what in (_SINK if sink else _SOURCE).items()
        if name.lower() in names
    ]
    if problems:
        raise OptionsError(problems)


def refuse_streams_of_maps() -> None:
    """Raise EnvironmentRefused before 4.2: where a batch of a map ends is found from where it
    starts, which Spark does not say before."""
    if not ADMISSION_CONTROL:
        raise EnvironmentRefused(
            f"A stream of a map needs PySpark 4.2 or newer, and this is {pyspark.__version__}. "
            "Upgrade, or read the map as a batch."
        )


def refuse_without_pushed_filters() -> None:
    """Raise EnvironmentRefused before 4.1: Spark tells a reader of no filters."""
    if not hasattr(datasource, "Filter"):
        raise EnvironmentRefused(
            f"Option 'pushFilters' needs PySpark 4.1 or newer, and this is {pyspark.__version__}. "
            "Leave the option out, or upgrade."
        )


def refuse_without_arrow_udf() -> None:
    """Raise EnvironmentRefused if `from_avro` and `to_avro` cannot work."""
    from pyspark.sql.pandas import functions

    if not hasattr(functions, "arrow_udf"):
        raise EnvironmentRefused(
            "eo_kafka.from_avro and eo_kafka.to_avro need PySpark 4.1 or newer, and this is "
            f"{pyspark.__version__}. The source's option 'value.format' does the same here."
        )
