"""`eo_kafka.start(writer)`: starts a query, and restores a missing checkpoint first."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..core.errors import OptionsError
from ..core.url_secrets import without_secrets
from ..sinks.options import UPDATE_MODE
from ..state.snapshots.checkpoint import is_without_scheme, open_checkpoint
from ..state.snapshots.restoring import restore_missing
from ..state.snapshots.snapshot import RESTORING
from .foreach_batch import BatchFunction

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger(__name__)

_NOT_OURS = (
    "eo_kafka.start restores a job's snapshot, and the function that foreachBatch was given does "
    "not say which job it writes. The query was not started. Put '@functools.wraps(write)' above "
    "that function, where 'write' is what eo_kafka.foreach_batch returned; or call "
    "eo_kafka.restore, and then start() of the writer itself."
)


def start(writer: DataStreamWriter) -> StreamingQuery:
    """Start a query, and restore its newest snapshot first if its checkpoint is missing.

    Use it in place of `writer.start()` for a sink with `snapshots=true`. A checkpoint that is there
    is used as it is. Where the job has no snapshot, the query starts from nothing. A folder that is
    not the one where the job had its checkpoint is refused: `eo_kafka.restore` first says that the
    job is to go on there. Runs on the driver, once for each start of the query.

    Args:
        writer: A `df.writeStream.format("eo-kafka")` with its options, or a
            `df.writeStream.foreachBatch(eo_kafka.foreach_batch(options))`. It needs a
            `checkpointLocation`, and a `jobName` or a query name. A relative location is in the
            folder where Spark's JVM was started. A function of your own that calls what
            `foreach_batch` returned (`write`) says so by `@functools.wraps(write)`.

    Returns:
        The running query, as `writer.start()` returns it.

    Raises:
        OptionsError: The checkpoint or the job's name is missing, the output mode is update, or the
            function of `foreachBatch` is not known to be one of `foreach_batch`.
        ForeignLedger: The job's checkpoint is another folder. Nothing was restored.
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
    query = {name.lower(): value for name, value in options_of(writer).items()}
    sink = sink_options(writer, query)
    job = sink.get("jobname") or sink.get("queryname")
    checkpoint = query.get("checkpointlocation") or _default_checkpoint(writer, query)
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
    checkpoint = _as_spark_has_it(writer, checkpoint)
    folder = open_checkpoint(checkpoint)
    is_missing = folder.is_empty() or RESTORING in folder.paths()
    if is_missing and restore_missing(checkpoint, job, sink) is None:
        begins = "begins anew" if folder.is_empty() else "runs its first batch as it was planned"
        shown = without_secrets(checkpoint)
        log.info("Job '%s' has no snapshot: its query %s in '%s'.", job, begins, shown)
    return writer.start()


def sink_options(writer: DataStreamWriter, query: Mapping[str, str]) -> Mapping[str, str]:
    """The options of what writes the rows: the query's, or those of its `foreach_batch`, where the
    query's name is no job's. Raises OptionsError if its function is not known to be one."""
    function = function_of(writer)
    if function is None:
        return query
    ours = inspect.unwrap(function)
    if not isinstance(ours, BatchFunction):
        raise OptionsError([_NOT_OURS])
    return ours.options


def _default_checkpoint(writer: Any, given: Mapping[str, str]) -> str | None:
    root = writer._spark.conf.get("spark.sql.streaming.checkpointLocation", None)
    name = given.get("queryname")
    return f"{root.rstrip('/')}/{name}" if root and name else None


def _as_spark_has_it(writer: Any, checkpoint: str) -> str:
    """A relative one is resolved by the JVM, which a `chdir` of Python's does not move. Where the
    server of Spark Connect is, is not known."""
    if getattr(writer, "_jwrite", None) is None or not is_without_scheme(checkpoint):
        return checkpoint
    return os.path.join(writer._spark._jvm.System.getProperty("user.dir"), checkpoint)


def options_of(writer: DataStreamWriter) -> Mapping[str, str]:
    """The options a writer was given; PySpark has no public way to ask.

    Spark Connect keeps them in a message, Spark Classic in the JVM's own writer.
    """
    message = getattr(writer, "_write_proto", None)
    if message is not None:
        name = {"queryname": message.query_name} if message.query_name else {}
        return {**dict(message.options), **name}
    return _classic_options(writer)


def function_of(writer: Any) -> Callable[..., None] | None:
    """The function that `foreachBatch` was given, if it was; PySpark has no public way to ask. Not
    on Spark Connect, where `foreach_batch` is refused when it writes."""
    java = getattr(writer, "_jwrite", None)
    scala_function = None if java is None else private_field(java, "foreachBatchWriter")
    return None if scala_function is None else python_function(scala_function, writer._spark._sc)


def python_function(scala_function: Any, context: Any) -> Callable[..., None]:
    """The function of a user's that py4j wrapped for `foreachBatch`."""
    (captured,) = scala_function.getClass().getDeclaredFields()  # py4j's proxy of Python's
    gateway = context._gateway
    proxy = private_field(scala_function, captured.getName())
    handler = gateway.jvm.java.lang.reflect.Proxy.getInvocationHandler(proxy)
    found: Callable[..., None] = gateway.gateway_property.pool[private_field(handler, "id")].func
    return found


def _classic_options(writer: Any) -> dict[str, str]:
    pairs = private_field(writer._jwrite, "extraOptions").iterator()
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
        mode = private_field(writer._jwrite, "outputMode").toString()
        is_function = private_field(writer._jwrite, "source") == "foreachBatch"
    return mode.lower() == "update" and not is_function


def private_field(java: Any, name: str) -> Any:
    """A private field of a Java object, of its class or of one above it."""
    at = java.getClass()
    while name not in [field.getName() for field in at.getDeclaredFields()]:
        at = at.getSuperclass()
    field = at.getDeclaredField(name)
    field.setAccessible(True)
    return field.get(java)
