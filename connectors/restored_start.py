"""`eo_kafka.start(writer)`: starts a query, and restores a missing checkpoint first."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import OptionsError
from ..state.snapshots.checkpoint import open_checkpoint
from ..state.snapshots.restoring import restore
from ..state.snapshots.snapshot import RESTORING

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger(__name__)


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
        OptionsError: The checkpoint or the job's name is missing.
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
    missing = [
        f"eo_kafka.start needs {what}."
        for what, value in (
            ("option 'checkpointLocation' (or that of the session, and a query name)", checkpoint),
            ("option 'jobName' or a query name", job),
        )
        if not value
    ]
    if missing or job is None or checkpoint is None:
        raise OptionsError(missing)
    folder = open_checkpoint(checkpoint)
    is_missing = folder.is_empty() or RESTORING in folder.paths()
    if is_missing and restore(checkpoint, job, given) is None:
        log.info("Job '%s' has no snapshot: its query begins anew in '%s'.", job, checkpoint)
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
    java = writer._jwrite
    field = java.getClass().getDeclaredField("extraOptions")
    field.setAccessible(True)
    pairs = field.get(java).iterator()
    found = {}
    while pairs.hasNext():
        pair = pairs.next()
        found[pair._1()] = pair._2()
    return found
