"""`eo_kafka.QueryTraces`: a batch as an OpenTelemetry span, and its steps as spans below it.

Spark and the sinks tell how long each step took, not when it began. So the spans of a batch are
made when it has ended, and stand one behind the other in the order in which the steps happen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from ...core.errors import OptionsError
from ...sinks.protocol.batch_figures import DECIDE, DONE, FINISH, PLAN, SNAPSHOT, TASKS
from .query_progress import Progress, progress

try:
    from opentelemetry import context, trace
except ImportError:
    raise OptionsError(
        ["eo_kafka.QueryTraces needs opentelemetry-api: pip install 'eo-kafka[otel]'."]
    ) from None

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger(__name__)

NS_IN_MS = 1_000_000
SPARKS_STEPS = ("latestOffset", "walCommit", "getBatch", "queryPlanning", "addBatch")
SINK_STEPS = {  # in this order
    PLAN: "S1 plan",
    TASKS: "S2 to S5 tasks",
    SNAPSHOT: "S6 snapshot",
    DECIDE: "S6 decide",
    FINISH: "S7 finish",
    DONE: "S8 done",
}


class QueryTraces(StreamingQueryListener):
    """A trace for each batch of a Spark session's queries, for OpenTelemetry.

    Add it with `spark.streams.addListener` before the queries start. Runs on the driver after each
    batch; where spans go is your SDK's setting. Needs the extra `eo-kafka[otel]`.

    Args:
        tracer: What makes the spans; default: that of the global provider.

    Raises:
        OptionsError: opentelemetry-api is not installed.

    Examples:
        >>> traces = eo_kafka.QueryTraces()
        >>> spark.streams.addListener(traces)
        >>> spark.streams.removeListener(traces)
    """

    def __init__(self, tracer: Tracer | None = None) -> None:
        self._tracer = tracer or trace.get_tracer("eo_kafka")

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to do."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """After a batch. It must not end the listener, nor hide behind it."""
        try:
            found = progress(event.progress)
            assert found is not None
            self._tell(found)
        except Exception as error:
            log.warning("A batch of query %s has no trace: %s", event.progress.id, error)

    def _tell(self, found: Progress) -> None:
        told = datetime.fromisoformat(found.timestamp.replace("Z", "+00:00"))
        began = int(told.timestamp() * 1000) * NS_IN_MS
        whole = found.durationMs.get("triggerExecution", 0)
        about: dict[str, str | int] = {
            "eo_kafka.query": found.name or found.id,
            "eo_kafka.query_id": found.id,
            "eo_kafka.batch": found.batchId,
            "eo_kafka.input_rows": sum(one.numInputRows for one in found.sources),
        }
        batch = self._span("batch", began, about, context.Context())
        below = trace.set_span_in_context(batch, context.Context())
        for step, at, ms in _one_by_one(found.durationMs, SPARKS_STEPS, began):
            span = self._span(step, at, {}, below)
            if step == "addBatch":
                self._tell_sinks(found, at, trace.set_span_in_context(span, context.Context()))
            span.end(at + int(ms * NS_IN_MS))
        batch.end(began + whole * NS_IN_MS)

    def _tell_sinks(self, found: Progress, began: int, below: context.Context) -> None:
        for sink in found.sinks:
            for step, at, ms in _one_by_one(sink.durationMs, tuple(SINK_STEPS), began):
                about = {"eo_kafka.job": sink.jobName}
                self._span(SINK_STEPS[step], at, about, below).end(at + int(ms * NS_IN_MS))

    def _span(
        self, name: str, at: int, about: Mapping[str, str | int], below: context.Context
    ) -> trace.Span:
        return self._tracer.start_span(name, below, start_time=at, attributes=about)


def _one_by_one(
    ms: Mapping[str, float], order: tuple[str, ...], began: int
) -> Iterator[tuple[str, int, float]]:
    """Each step that happened, when it may have begun, and how long it took."""
    at = began
    for step in order:
        if step in ms:
            yield step, at, ms[step]
            at += int(ms[step] * NS_IN_MS)
