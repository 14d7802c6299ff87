"""`eo_kafka.QueryMetrics`: what a program's queries do, as metrics for Prometheus (OpenMetrics).

A listener of Spark's, and a collector of prometheus-client's. All is known from the progress that
Spark reports after a batch and from the figures that its sinks left: no broker is asked. The names
of metrics and labels are in docs/metrics.md.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from ...core.errors import OptionsError
from ...state.snapshots import restored
from .query_figures import QueryFigures
from .query_progress import progress

try:
    from prometheus_client import REGISTRY, CollectorRegistry
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        SummaryMetricFamily,
    )
except ImportError:
    raise OptionsError(
        ["eo_kafka.QueryMetrics needs prometheus-client: pip install 'eo-kafka[metrics]'."]
    ) from None

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger(__name__)

BY_QUERY = ("query",)
BY_JOB = ("query", "job_name")
RESTORED = ("job_name",)
BY_STEP = ("query", "job_name", "step")
BY_PARTITION = ("query", "source", "topic", "partition")


class QueryMetrics(StreamingQueryListener):
    """Metrics of all queries of a Spark session, for Prometheus.

    Add it with `spark.streams.addListener` before the queries start, and let prometheus-client
    answer. Runs on the driver after each batch, and when it is asked; it starts no job and asks no
    broker. `eo-kafka run --metrics PORT` does all of that for a job. Needs the extra
    `eo-kafka[metrics]`.

    Args:
        registry: Where the metrics are registered; default: prometheus-client's own.

    Raises:
        OptionsError: prometheus-client is not installed.
        ValueError: The registry has such metrics already: one of these serves a whole session.

    Examples:
        >>> from prometheus_client import CollectorRegistry, start_http_server
        >>> registry = CollectorRegistry()
        >>> metrics = eo_kafka.QueryMetrics(registry)
        >>> spark.streams.addListener(metrics)
        >>> server, thread = start_http_server(9404, addr="127.0.0.1", registry=registry)
        >>> server.shutdown()
        >>> spark.streams.removeListener(metrics)
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._lock = threading.Lock()  # Spark tells, and a server's thread asks
        self._queries: dict[str, QueryFigures] = {}  # by name: one that begins anew goes on there
        self._names: dict[str, str] = {}  # by id
        (registry or REGISTRY).register(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """From here on it counts as active."""
        with self._lock:
            self._of(str(event.id), event.name).begin(str(event.runId), time.time())

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Every ten seconds while it waits for input, or at each trigger if that is longer."""
        with self._lock:
            found = self._queries.get(self._names.get(str(event.id), ""))
            if found is not None:
                found.heard_at_s = time.time()

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """After a batch. It must not end the listener, nor hide behind it."""
        try:
            found = progress(event.progress)
            assert found is not None
            with self._lock:
                self._of(found.id, found.name).add(found, event.progress, time.time())
        except Exception as error:
            log.warning("A batch of query %s is not in the metrics: %s", event.progress.id, error)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """What it did stays known; it waits for nothing any more."""
        with self._lock:
            found = self._queries.get(self._names.get(str(event.id), ""))
            if found is not None:
                found.end(str(event.runId), event.exception is not None)

    def _of(self, query_id: str, name: str | None) -> QueryFigures:
        name = self._names[query_id] = name or query_id
        return self._queries.setdefault(name, QueryFigures(name))

    def describe(self) -> Iterator[Metric]:
        """The names, for a registry that checks that each is there once."""
        yield from self.collect()

    def collect(self) -> Iterator[Metric]:
        """All of them, as they are now."""
        with self._lock:
            yield from _families(list(self._queries.values()), time.time())


def _families(queries: list[QueryFigures], now: float) -> Iterator[Metric]:
    yield from _of_queries(queries)
    yield from _of_sources(queries, now)
    yield from _of_sinks(queries)
    yield from _of_restores(restored.newest())


def _of_queries(queries: list[QueryFigures]) -> Iterator[Metric]:
    active = GaugeMetricFamily("eo_kafka_query_active", "1 while the query runs", labels=BY_QUERY)
    failed = CounterMetricFamily(
        "eo_kafka_query_failures", "how often the query ended with an error", labels=BY_QUERY
    )
    newest = GaugeMetricFamily("eo_kafka_batch_id", "number of the newest batch", labels=BY_QUERY)
    ended = GaugeMetricFamily(
        "eo_kafka_last_batch_timestamp_seconds", "when the newest batch had ended", labels=BY_QUERY
    )
    heard = GaugeMetricFamily(
        "eo_kafka_last_heard_timestamp_seconds",
        "when it last started, ended a batch, or found no input",
        labels=BY_QUERY,
    )
    took = HistogramMetricFamily(
        "eo_kafka_batch_seconds", "how long batches took, as Spark says", labels=BY_QUERY
    )
    late = CounterMetricFamily(
        "eo_kafka_late_rows", "rows that Spark dropped behind the watermark", labels=BY_QUERY
    )
    for one in queries:
        labels = (one.name,)
        active.add_metric(labels, one.active)
        heard.add_metric(labels, one.heard_at_s)
        failed.add_metric(labels, one.failures)
        late.add_metric(labels, one.late_rows)
        took.add_metric(labels, one.batch_seconds.buckets(), one.batch_seconds.total)
        if one.batch is not None:
            newest.add_metric(labels, one.batch)
            ended.add_metric(labels, one.ended_at_s)
    yield from (active, failed, newest, ended, heard, took, late)


def _of_sources(queries: list[QueryFigures], now: float) -> Iterator[Metric]:
    read = CounterMetricFamily(
        "eo_kafka_input_records", "records that batches read", labels=BY_QUERY
    )
    lag = GaugeMetricFamily(
        "eo_kafka_lag_records", "offsets that are not read", labels=BY_PARTITION
    )
    waits = GaugeMetricFamily(
        "eo_kafka_lag_seconds", "how long the oldest of them has waited", labels=BY_PARTITION
    )
    for one in queries:
        read.add_metric((one.name,), one.input_records)
        for (source, topic, partition), of in one.partitions.items():
            labels = (one.name, str(source), topic, str(partition))
            lag.add_metric(labels, of.behind)
            waits.add_metric(labels, of.staleness.age_s(now) if one.active else 0.0)
    yield from (read, lag, waits)


def _of_sinks(queries: list[QueryFigures]) -> Iterator[Metric]:
    steps = SummaryMetricFamily(
        "eo_kafka_step_seconds", "what the steps of a batch took, S1 to S8", labels=BY_STEP
    )
    rows = CounterMetricFamily("eo_kafka_output_rows", "rows that batches wrote", labels=BY_JOB)
    sizes = CounterMetricFamily(
        "eo_kafka_output_bytes", "bytes of keys and values sent to topics", labels=BY_JOB
    )
    aborted = CounterMetricFamily(
        "eo_kafka_aborted_transactions", "open transactions that nothing decided", labels=BY_JOB
    )
    opened = GaugeMetricFamily(
        "eo_kafka_batch_transactions", "transactions of the newest batch", labels=BY_JOB
    )
    size = GaugeMetricFamily(
        "eo_kafka_snapshot_bytes", "size of the newest snapshot", labels=BY_JOB
    )
    sent = CounterMetricFamily(
        "eo_kafka_snapshot_sent_bytes", "bytes of snapshots that were new", labels=BY_JOB
    )
    for one in queries:
        for job, sink in one.sinks.items():
            labels = (one.name, job)
            rows.add_metric(labels, sink.rows)
            sizes.add_metric(labels, sink.size)
            aborted.add_metric(labels, sink.aborted)
            opened.add_metric(labels, sink.transactions)
            sent.add_metric(labels, sink.snapshot_sent_bytes)
            if sink.snapshot_bytes is not None:
                size.add_metric(labels, sink.snapshot_bytes)
            for step, (count, total) in sink.steps.items():
                steps.add_metric((*labels, step), count, total)
    yield from (steps, rows, sizes, aborted, opened, size, sent)


def _of_restores(found: dict[str, restored.Restored]) -> Iterator[Metric]:
    """Of this process: `eo_kafka.start` restores before the query begins."""
    took = GaugeMetricFamily(
        "eo_kafka_restore_seconds", "what the newest restore took", labels=RESTORED
    )
    size = GaugeMetricFamily("eo_kafka_restore_bytes", "what it wrote back", labels=RESTORED)
    ended = GaugeMetricFamily(
        "eo_kafka_restore_timestamp_seconds", "when it had ended", labels=RESTORED
    )
    for job, one in found.items():
        took.add_metric((job,), one.seconds)
        size.add_metric((job,), one.size)
        ended.add_metric((job,), one.at_s)
    yield from (took, size, ended)
