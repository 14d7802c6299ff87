"""Starts the query of what a user's function returned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from ...connectors.restored_start import options_of, sink_options, start
from ...core.errors import OptionsError

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class NoQuery(TypeError):
    """A job's function returned something else."""


def check_job(job: str, made: Any) -> None:
    """Raise OptionsError if the writer is another job's than the one whose supervisor is obeyed:
    what is asked of that job would be done to this one. Of a query that runs, and of a function of
    foreachBatch that is not known to be one of ours, it is not known."""
    if not job or not hasattr(made, "trigger"):
        return
    options = _sink(made)
    found = options.get("jobname") or options.get("queryname")
    if found is not None and found != job:
        raise OptionsError(
            [f"--job is '{job}', and the function's job (jobName, else queryName) is '{found}'."]
        )


def started(made: Any, drain: bool) -> StreamingQuery:
    """The query of what the user's function returned. Raises NoQuery if that is neither a
    DataStreamWriter nor a query."""
    if hasattr(made, "awaitTermination"):
        return cast("StreamingQuery", made)
    if not hasattr(made, "trigger") or not hasattr(made, "start"):
        raise NoQuery(
            f"The job's function returned {type(made).__name__}: it must return a "
            "DataStreamWriter that is not started, or the started query. That of a batch job "
            "returns nothing: it is made with source=None."
        )
    writer = made.trigger(availableNow=True) if drain else made
    if str(_sink(writer).get("snapshots", "")).lower() == "true":
        return start(writer)
    return cast("StreamingQuery", writer.start())


def _sink(writer: Any) -> Mapping[str, str]:
    """Of what writes the rows; none of a function that does not say what it writes."""
    query = {name.lower(): value for name, value in options_of(writer).items()}
    try:
        return sink_options(writer, query)
    except OptionsError:
        return {}
