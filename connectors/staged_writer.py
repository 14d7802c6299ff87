"""What writers of a table, and of a target of one's own, share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ..core.errors import OptionsError
from ..core.options import OptionReader
from ..formats import bad_records
from .foreach_batch import BATCH, NumberedWriter, numbered, of_foreach_batch
from .spark_versions import StreamArrowWriter, refuse_without_admission_control
from .written_format import format_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def check_rows(given: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
    """Raises OptionsError: for output mode `complete`, for rows with dead letters, and where Spark
    has no admission control."""
    refuse_without_admission_control(given, sink=True)
    bad_records.refuse_lost(format_of(given), schema)
    if overwrite:
        raise OptionsError(
            [
                "This format writes row by row and never replaces all: use output mode "
                "'append' (or eo_kafka.foreach_batch), and mode('append') for a batch."
            ]
        )


def batch_writer(
    given: Mapping[str, str],
    schema: StructType,
    overwrite: bool,
    stream: Callable[..., StreamArrowWriter],
) -> NumberedWriter:
    """The writer of a `save()`: a batch of `eo_kafka.foreach_batch`, or a batch of a job's ledger,
    for only so it can be tried again. Raises OptionsError."""
    from ..sinks.options import BATCH_ID
    from ..state.ledger.job import JOB_NAME

    if BATCH.lower() in {name.lower() for name in given}:
        return of_foreach_batch(given, schema, overwrite, stream)
    reader = OptionReader(given)
    batch, job = reader.get(BATCH_ID), reader.get(JOB_NAME)
    if overwrite:
        reader.problem("Save mode 'overwrite' is not allowed here: use mode('append').")
    for option in (JOB_NAME, BATCH_ID):
        if option.name not in reader:
            reader.problem(
                f"A batch write needs option '{option.name}': 'jobName' and 'batchId' say which "
                "write it is, so that it is written once, however often it is tried."
            )
    reader.finish()
    return numbered(given, schema, job or "", batch or 0, stream)
