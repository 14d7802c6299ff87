"""`eo_kafka.start(writer)`: starts a query, and restores a missing checkpoint first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import OptionsError
from ..sinks.options import UPDATE_MODE
from ..state.snapshots.checkpoint import open_checkpoint
from ..state.snapshots.restoring import restore
from ..state.snapshots.snapshot import RESTORING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def start(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query, and restore its newest snapshot first if its checkpoint is missing.

    Use it in place of `writer.start()` for a sink with `snapshots=true`. A checkpoint that is there
    is used as it is. Where the job has no snapshot, the query starts from nothing. Runs on the
    driver, once for each start of the query.

    Args:
        writer: A `df.writeStream.format("eo-kafka")` with its options. It needs a
            `checkpointLocation`, and a `jobName` or a query name.

    Returns:
        The running query, as `writer.start()` returns it.

    Raises:
        OptionsError: The checkpoint or the job's name is missing, or the output mode is update.
        CheckpointError, CorruptSnapshot, EnvironmentRefused, OutcomeUnknown, ReadTimeout: As
            `eo_kafka.restore`. The query was not started.

    Examples:
        >>> query = eo_kafka.start(
        ...     orders.dropDuplicates(["key"]).writeStream.format("eo-kafka")
        ...     .options(**kafka)
        ...     .option("topic", "firsts")
        ...     .option("snapshots", "true")
        ...     .option("checkpointLocation", "/data/firsts")
        ...     .queryName("firsts")
        ...     .trigger(availableNow=True)
        ... )
        >>> query.awaitTermination()
    """
    given = {name.lower(): value for name, value in options_of(writer).items()}
    job = given.get("jobname") or given.get("queryname")
    checkpoint = given.get("checkpointlocation") or _default_checkpoint(writer, given)
    problems = [
        f"eo_kafka.start needs {what}."
        for what, value in (
            ("option 'checkpointLocation' (or that of the session, and a query name)", checkpoint),
            ("option 'jobName' or a query name", job),
        )
        if not value
    ]
    if _is_refused_by_spark(writer):
        problems.append(f"{UPDATE_MODE}.")
    if problems or job is None or checkpoint is None:
        raise OptionsError(problems)
    folder = open_checkpoint(checkpoint)
    if folder.is_empty() or RESTORING in folder.paths():
        restore(checkpoint, job, given)
    return writer.start()


def _default_checkpoint(writer: Any, given: Mapping[str, str]) -> str | None:
    root = writer._spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    name = given.get("queryname")
    return f"{root.rstrip('/')}/{name}" if root and name else None


def options_of(writer: DataStreamWriter) -> Mapping[str, str]:
    """The options a writer was given; PySpark has no public way to ask.

    Spark Connect keeps them in a message, Spark Classic in the JVM's own writer.
    """
    message = getattr(writer, "_write_proto", None)
    if message is not None:
        name = {"queryname": message.query_name} if message.query_name else {}
        return {**dict(message.options), **name}
    return _classic_options(writer)


def _classic_options(writer: Any) -> dict[str, str]:
    pairs = _classic(writer, "extraOptions").iterator()
    found = {}
    while pairs.hasNext():
        pair = pairs.next()
        found[pair._1()] = pair._2()
    return found


def _is_refused_by_spark(writer: Any) -> bool:
    """Whether it is of a Python sink in update mode; a function of `foreachBatch` is not."""
    message = getattr(writer, "_write_proto", None)
    if message is not None:
        mode, is_function = message.output_mode, message.HasField("foreach_batch")
    else:
        mode = _classic(writer, "outputMode").toString()
        is_function = _classic(writer, "source") == "foreachBatch"
    return mode.lower() == "update" and not is_function


def _classic(writer: Any, name: str) -> Any:
    """What Spark Classic's own writer holds under that name."""
    java = writer._jwrite
    field = java.getClass().getDeclaredField(name)
    field.setAccessible(True)
    return field.get(java)
