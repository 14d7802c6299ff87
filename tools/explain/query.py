"""Reads what `explain` is given: a writer, a running query or a DataFrame. Driver."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...connectors.foreach_batch import BatchFunction
from ...connectors.restored_start import (
    function_of,
    options_of,
    private_field,
    python_function,
)
from ...core.errors import OptionsError
from . import connect_plan
from .expressions import items, short_name
from .pipeline import End, Pipeline
from .spark_plan import PlanReader

_COMPARE_STAGES = (  # known, and true, since Spark 4.2; 4.1 was not tried
    "spark.sql.shuffle.orderIndependentChecksum.enabled",
    "spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch",
)
_DEFAULT_CHECKPOINT = "spark.sql.streaming.checkpointLocation"
# The classes of sinks that do not say their format
_SINKS = {
    "MemorySink": "memory",
    "NoopTable": "noop",
    "ConsoleTable": "console",
    "ForeachWriterTable": "foreach",
    "KafkaTable": "kafka",
    "KafkaSourceProvider": "kafka",
}


@dataclass(frozen=True)
class Given:
    """A query, and the options of its sink as they were given: its repr shows none, some are
    secrets."""

    pipeline: Pipeline
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


def read(given: Any) -> Given:
    """What is given, as data. Raises OptionsError if it is none of the three, EnvironmentRefused
    for a running query of Spark Connect."""
    if hasattr(type(given), "writeStream"):  # of a batch, only its class has it
        return Given(_of_frame(given))
    if hasattr(given, "foreachBatch"):
        return _of_writer(given)
    if hasattr(given, "awaitTermination"):
        return _of_query(given)
    raise OptionsError(
        [
            "explain needs a DataStreamWriter that is not started, a StreamingQuery or a "
            f"DataFrame, and was given {type(given).__name__}."
        ]
    )


def _of_frame(frame: Any) -> Pipeline:
    if getattr(frame, "_jdf", None) is None:
        return connect_plan.of_frame(frame)
    return _of_plan(frame._jdf.queryExecution().analyzed(), "append", frame._jdf.sparkSession())


def _of_plan(plan: Any, output_mode: str, session: Any) -> Pipeline:
    reader = PlanReader(append=output_mode.lower() == "append")
    reader.read(plan)
    return Pipeline(
        sources=tuple(reader.sources),
        steps=reader.steps,
        streaming=bool(plan.isStreaming()),
        output_mode=output_mode.lower(),
        compares_stages=_compares_stages(session),
    )


def _compares_stages(session: Any) -> bool:
    version = tuple(int(part) for part in str(session.version()).split(".")[:2])
    found = [session.conf().getOption(name) for name in _COMPARE_STAGES]
    told = [str(one.get()).lower() for one in found if one.isDefined()]
    return version >= (4, 2) and told == ["true", "true"]


def _of_writer(writer: Any) -> Given:
    options = {name.lower(): value for name, value in options_of(writer).items()}
    if getattr(writer, "_write_proto", None) is not None:
        return Given(connect_plan.of_writer(writer), options)
    java, frame = writer._jwrite, writer._df
    mode = private_field(java, "outputMode").toString()
    default = frame.sparkSession.conf.get(_DEFAULT_CHECKPOINT, "")
    found = replace(
        _of_plan(frame._jdf.queryExecution().analyzed(), mode, frame._jdf.sparkSession()),
        trigger=private_field(java, "trigger").toString(),
        # Without a name Spark puts a new UUID below the session's root, at each start.
        checkpoint=bool(
            options.get("checkpointlocation") or (default and options.get("queryname"))
        ),
    )
    return _with_sink(found, private_field(java, "source"), options, function_of(writer))


def _of_query(query: Any) -> Given:
    wrapped = getattr(query, "_jsq", None)
    if wrapped is None:
        return Given(connect_plan.of_query(query))
    java = wrapped.streamingQuery()
    plan, sink = private_field(java, "plan"), java.sink()
    options = {pair._1(): pair._2() for pair in items(private_field(java, "extraOptions"))}
    name, function = short_name(sink), None
    if name == "ForeachBatchSink":
        from pyspark import SparkContext

        context = SparkContext._active_spark_context
        function = python_function(private_field(sink, "batchWriter"), context)
    elif name == "FileStreamSink":
        name = str(private_field(sink, "fileFormat").shortName())
    else:
        name = _SINKS.get(name) or str(sink.name())
    found = replace(
        _of_plan(plan.inputQuery(), java.outputMode().toString(), java.sparkSession()),
        trigger=private_field(java, "trigger").toString(),
        # One of the session's root has the query's name, or a new UUID at each start.
        checkpoint=not plan.deleteCheckpointOnStop()
        and ("checkpointlocation" in {one.lower() for one in options} or bool(query.name)),
    )
    return _with_sink(found, name, options, function)


def _with_sink(
    found: Pipeline, name: str, options: Mapping[str, str], function: Callable[..., None] | None
) -> Given:
    if function is None:
        return Given(replace(found, sink=End.of(name, options)), options)
    ours = inspect.unwrap(function)
    if not isinstance(ours, BatchFunction):
        sink = End.of("foreachBatch", options, _name(function), by_function=True)
        return Given(replace(found, sink=sink), options)
    within = None if ours is function else _name(function)
    given = {**{key: options[key] for key in ("queryname",) if key in options}, **ours.options}
    sink = End.of(ours.format, given, within, by_function=True)
    return Given(replace(found, sink=sink), given)


def _name(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
