"""What a client of Spark Connect knows of a query: its sources, its sink and their options. The
plan is the server's: which steps are deterministic cannot be read here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...core.errors import EnvironmentRefused
from .pipeline import End, Pipeline

_UNREAD = (
    "the plan is with the server of Spark Connect: its steps were not read. Explain the job on "
    "Spark Classic: eo-kafka explain my_app.pipeline:build"
)
_DEFAULT_CHECKPOINT = "spark.sql.streaming.checkpointLocation"
_TRIGGERS = {
    "continuous_checkpoint_interval": "continuous",
    "real_time_batch_duration": "realtime",
}


def of_frame(frame: Any) -> Pipeline:
    """A DataFrame."""
    sources = _sources(frame._plan, frame.sparkSession)
    return Pipeline(sources, (), streaming=bool(frame.isStreaming), unread=(_UNREAD,))


def of_writer(writer: Any) -> Pipeline:
    """A DataStreamWriter."""
    message, session = writer._write_proto, writer._session
    given = [field.name for field, _value in message.ListFields()]
    options = {key.lower(): value for key, value in message.options.items()}
    name, is_function = message.format, message.HasField("foreach_batch")
    if is_function:
        name = "foreachBatch"
    elif message.HasField("foreach_writer"):
        name = "foreach"
    # Without a name Spark puts a new UUID below the session's root, at each start.
    is_named = message.query_name or options.get("queryname")
    default = is_named and session.conf.get(_DEFAULT_CHECKPOINT, "")
    return Pipeline(
        sources=_sources(writer._write_stream._child, session),
        steps=(),
        sink=End.of(name, options, "a function" if is_function else None, is_function),
        output_mode=message.output_mode.lower() or "append",
        trigger=next((_TRIGGERS[name] for name in given if name in _TRIGGERS), ""),
        checkpoint=bool(options.get("checkpointlocation") or default),
        unread=(_UNREAD,),
    )


def of_query(query: Any) -> Pipeline:
    """A running query, of which the client knows nothing. Raises EnvironmentRefused."""
    raise EnvironmentRefused(
        f"What query '{query.name or query.id}' does is known to the server of Spark Connect only. "
        "Explain its writer before start(), or the job: eo-kafka explain my_app.pipeline:build."
    )


def _sources(plan: Any, session: Any) -> tuple[End, ...]:
    """Each stream that is read, once."""
    found: list[End] = []
    for read in _reads(plan.to_proto(session.client)):
        source = End.of(read.data_source.format, dict(read.data_source.options))
        if read.is_streaming and source not in found:
            found.append(source)
    return tuple(found)


def _reads(message: Any) -> Iterator[Any]:
    """All `Read` messages in a plan, at any depth."""
    if message.DESCRIPTOR.name == "Read":
        yield message
    for field, value in message.ListFields():
        if field.message_type is None or field.message_type.GetOptions().map_entry:
            continue
        for one in value if hasattr(value, "append") or hasattr(value, "add") else [value]:
            yield from _reads(one)
