"""`eo_kafka.QueryMetrics` and `eo_kafka.QueryTraces`: what they make of a query's progress."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from pyspark.sql.streaming.listener import StreamingQueryProgress

import eo_kafka
from eo_kafka.connectors.monitoring import query_metrics, query_traces, staleness
from eo_kafka.connectors.monitoring.query_metrics import QueryMetrics
from eo_kafka.connectors.monitoring.query_progress import Progress, SourceProgress
from eo_kafka.connectors.monitoring.query_traces import QueryTraces
from eo_kafka.connectors.monitoring.staleness import Staleness
from eo_kafka.core.offsets import TopicPartition, encode
from eo_kafka.sinks.protocol.batch_figures import SinkProgress
from eo_kafka.state.snapshots import restored

ORDER = ("query", "job_name", "step", "source", "topic", "partition", "le")
STEPS = {"plan": 10.0, "tasks": 100.0, "decide": 20.0, "finish": 15.0, "done": 5.0}


def offsets(**ends: int) -> str:
    return encode({TopicPartition("in", int(name[1:])): end for name, end in ends.items()})


def found(batch: int, end: str, latest: str | None, **of_sink) -> Progress:
    sink = {"durationMs": STEPS, "openTransactions": 2, "numOutputRows": 40, **of_sink}
    return Progress(
        id="0-1",
        runId="r",
        name="shout",
        batchId=batch,
        timestamp="2026-11-25T03:00:00.000Z",
        durationMs={"triggerExecution": 400, "latestOffset": 20, "walCommit": 30, "addBatch": 200},
        sources=(SourceProgress(50, end, latest),),
        sinks=(SinkProgress("shouting", batch, **sink),),
    )


class Told:
    """A listener, and a clock for it."""

    def __init__(self, monkeypatch):
        self.registry = CollectorRegistry()
        self.metrics = QueryMetrics(self.registry)
        self.now = 1000.0
        monkeypatch.setattr(query_metrics, "progress", lambda event: event.found)
        monkeypatch.setattr(query_metrics.time, "time", lambda: self.now)

    def add(self, one: Progress, late: int = 0) -> None:
        states = [SimpleNamespace(numRowsDroppedByWatermark=late)]
        event = SimpleNamespace(found=one, stateOperators=states, id=one.id)
        self.metrics.onQueryProgress(SimpleNamespace(progress=event))

    def samples(self) -> dict[tuple[str, ...], float]:
        """By name and labels, as a scraper of OpenMetrics reads it."""

        def key(name: str, labels: dict[str, str]) -> tuple[str, ...]:
            return (name, *(labels[label] for label in ORDER if label in labels))

        text = generate_latest(self.registry).decode()
        return {
            key(sample.name, sample.labels): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@pytest.fixture
def told(monkeypatch):
    return Told(monkeypatch)


def test_sums_over_batches_and_states_of_the_newest(told):
    told.metrics.onQueryStarted(SimpleNamespace(id="0-1", runId="r", name="shout"))
    assert told.samples()["eo_kafka_query_active", "shout"] == 1
    told.add(found(4, offsets(p0=60, p1=70), offsets(p0=100, p1=70)), late=3)
    told.add(
        found(
            5,
            offsets(p0=90, p1=80),
            offsets(p0=100, p1=90),
            snapshotBytes=7,
            snapshotSentBytes=5,
            numOutputBytes=800,
            abortedTransactions=2,
        )
    )
    told.now += 2.5
    seen = told.samples()
    assert seen["eo_kafka_batch_id", "shout"] == 5
    assert seen["eo_kafka_last_batch_timestamp_seconds", "shout"] == 1000
    assert seen["eo_kafka_batch_seconds_count", "shout"] == 2
    assert seen["eo_kafka_batch_seconds_bucket", "shout", "0.5"] == 2
    assert seen["eo_kafka_batch_seconds_bucket", "shout", "0.25"] == 0
    assert seen["eo_kafka_batch_seconds_sum", "shout"] == pytest.approx(0.8)
    assert seen["eo_kafka_input_records_total", "shout"] == 100
    assert seen["eo_kafka_late_rows_total", "shout"] == 3
    assert seen["eo_kafka_output_rows_total", "shout", "shouting"] == 80
    assert seen["eo_kafka_output_bytes_total", "shout", "shouting"] == 800
    assert seen["eo_kafka_aborted_transactions_total", "shout", "shouting"] == 2
    assert seen["eo_kafka_batch_transactions", "shout", "shouting"] == 2
    assert seen["eo_kafka_snapshot_bytes", "shout", "shouting"] == 7
    assert seen["eo_kafka_snapshot_sent_bytes_total", "shout", "shouting"] == 5
    assert seen["eo_kafka_step_seconds_count", "shout", "shouting", "tasks"] == 2
    assert seen["eo_kafka_step_seconds_sum", "shout", "shouting", "tasks"] == pytest.approx(0.2)
    assert seen["eo_kafka_lag_records", "shout", "0", "in", "0"] == 10
    assert seen["eo_kafka_lag_seconds", "shout", "0", "in", "0"] == 2.5


def test_a_batch_that_is_told_twice_counts_once(told):
    for _ in range(2):
        told.add(found(4, offsets(p0=60), offsets(p0=60)))
    seen = told.samples()
    assert seen["eo_kafka_input_records_total", "shout"] == 50
    assert seen["eo_kafka_output_rows_total", "shout", "shouting"] == 40


def test_what_the_direct_lane_read_counts_in_place_of_sparks_ranges(told):
    told.add(found(0, offsets(p0=60), offsets(p0=60), numInputRecords=9000))
    assert told.samples()["eo_kafka_input_records_total", "shout"] == 9000


def test_a_query_that_failed_waits_for_nothing_and_goes_on_under_its_name(told):
    told.add(found(4, offsets(p0=60), offsets(p0=100)))
    told.metrics.onQueryTerminated(SimpleNamespace(id="0-1", runId="r", exception="boom"))
    told.metrics.onQueryTerminated(SimpleNamespace(id="x", runId="s", exception=None))
    told.now += 60
    seen = told.samples()
    assert seen["eo_kafka_query_active", "shout"] == 0
    assert seen["eo_kafka_query_failures_total", "shout"] == 1
    assert seen["eo_kafka_lag_seconds", "shout", "0", "in", "0"] == 0
    told.metrics.onQueryStarted(SimpleNamespace(id="0-2", runId="s", name="shout"))
    assert told.samples()["eo_kafka_query_active", "shout"] == 1


def test_a_late_end_of_the_last_run_does_not_end_the_next_one(told):
    """Spark tells of a start at once, and of an end when its listeners are so far."""
    told.metrics.onQueryStarted(SimpleNamespace(id="0-1", runId="r", name="shout"))
    told.metrics.onQueryStarted(SimpleNamespace(id="0-1", runId="s", name="shout"))
    told.add(found(4, offsets(p0=60), offsets(p0=100)))  # of the last run
    told.metrics.onQueryTerminated(SimpleNamespace(id="0-1", runId="r", exception="boom"))
    told.now += 60
    seen = told.samples()
    assert seen["eo_kafka_query_active", "shout"] == 1
    assert seen["eo_kafka_query_failures_total", "shout"] == 1
    assert seen["eo_kafka_lag_seconds", "shout", "0", "in", "0"] == 60
    told.metrics.onQueryTerminated(SimpleNamespace(id="0-1", runId="s", exception=None))
    assert told.samples()["eo_kafka_query_active", "shout"] == 0


def test_a_query_is_heard_of_also_while_it_waits(told):
    told.metrics.onQueryStarted(SimpleNamespace(id="0-1", runId="r", name="shout"))
    name = "eo_kafka_last_heard_timestamp_seconds", "shout"
    assert told.samples()[name] == 1000
    told.now += 10
    told.add(found(4, offsets(p0=60), offsets(p0=60)))
    assert told.samples()[name] == 1010
    told.now += 10
    told.metrics.onQueryIdle(SimpleNamespace(id="0-1", runId="r"))
    told.metrics.onQueryIdle(SimpleNamespace(id="x", runId="s"))  # it was there before this one
    seen = told.samples()
    assert seen[name] == 1020
    assert seen["eo_kafka_last_batch_timestamp_seconds", "shout"] == 1010


def test_what_is_not_read_any_more_has_no_lag(told):
    """A topic that is gone, and a source that is gone from the query."""
    one = found(4, "", "").sources[0]

    def add(batch, *latest):
        sources = tuple(replace(one, endOffset=offsets(p0=1), latestOffset=of) for of in latest)
        told.add(replace(found(batch, "", ""), sources=sources))

    def lags():
        return {key[2:] for key in told.samples() if key[0] == "eo_kafka_lag_records"}

    add(0, offsets(p0=3, p1=3), offsets(p0=3))
    assert lags() == {("0", "in", "0"), ("0", "in", "1"), ("1", "in", "0")}
    add(1, None, None)
    assert len(lags()) == 3, "Spark has not asked them"
    add(2, offsets(p0=3), None)
    assert lags() == {("0", "in", "0"), ("1", "in", "0")}
    add(3, None)
    assert lags() == {("0", "in", "0")}


def test_a_batch_without_a_newest_offset_leaves_the_lag_as_it_is(told):
    told.add(found(4, offsets(p0=60), offsets(p0=100)))
    told.add(found(5, offsets(p0=70), None))
    assert told.samples()["eo_kafka_lag_records", "shout", "0", "in", "0"] == 40


def test_nothing_that_goes_wrong_ends_the_listener(told, caplog):
    told.metrics.onQueryProgress(SimpleNamespace(progress=SimpleNamespace(id="0-1")))
    assert "A batch of query 0-1 is not in the metrics" in caplog.text


def test_one_serves_a_registry(told):
    with pytest.raises(ValueError, match="eo_kafka_query_active"):
        QueryMetrics(told.registry)


def test_the_oldest_unread_record_is_as_old_as_the_look_that_saw_it_first():
    of = Staleness()
    of.look(0, 10, 100.0)
    of.look(0, 30, 105.0)
    assert of.age_s(110.0) == 10.0
    of.look(10, 40, 107.0)  # the first ten are read
    assert of.age_s(110.0) == 5.0
    of.look(40, 40, 109.0)
    assert of.age_s(110.0) == 0.0


def test_staleness_keeps_the_oldest_look_of_a_query_that_never_catches_up():
    of = Staleness()
    for number in range(10 * staleness.MOST):
        of.look(0, 1 + number, float(number))
    assert of.age_s(10_000.0) == 10_000.0
    assert len(of._seen) <= staleness.MOST + 1


def test_a_topic_that_began_anew_is_no_reason_to_call_old_what_is_new():
    of = Staleness()
    of.look(50, 90, 100.0)
    of.look(0, 20, 200.0)
    assert of.age_s(201.0) == 1.0


def test_a_batch_is_a_trace_and_its_steps_stand_one_behind_the_other(monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(query_traces, "progress", lambda event: event)
    traces = QueryTraces(provider.get_tracer("test"))
    traces.onQueryProgress(SimpleNamespace(progress=found(4, offsets(p0=60), offsets(p0=60))))
    spans = {one.name: one for one in exporter.get_finished_spans()}
    batch = spans["batch"]
    assert batch.attributes["eo_kafka.batch"] == 4
    assert (batch.end_time - batch.start_time) == 400_000_000
    assert {one.context.trace_id for one in spans.values()} == {batch.context.trace_id}
    below = [
        n for n, one in spans.items() if one.parent and one.parent.span_id == batch.context.span_id
    ]
    assert below == ["latestOffset", "walCommit", "addBatch"]
    add = spans["addBatch"]
    steps = [
        one for one in spans.values() if one.parent and one.parent.span_id == add.context.span_id
    ]
    assert [one.name for one in steps] == [
        "S1 plan", "S2 to S5 tasks", "S6 decide", "S7 finish", "S8 done",
    ]  # fmt: skip
    at = add.start_time
    for one in steps:
        assert one.start_time == at
        at = one.end_time
    assert at <= add.end_time <= batch.end_time


def test_traces_of_what_cannot_be_told_are_a_warning(caplog):
    QueryTraces().onQueryProgress(SimpleNamespace(progress=SimpleNamespace(id="0-1")))
    assert "A batch of query 0-1 has no trace" in caplog.text


def test_spark_has_what_the_metrics_read():
    assert isinstance(StreamingQueryProgress.stateOperators, property)
    assert eo_kafka.QueryMetrics is QueryMetrics


def test_the_newest_restore_of_each_job_is_told(told, monkeypatch):
    monkeypatch.setattr(restored, "_newest", {})
    assert ("eo_kafka_restore_seconds", "counts") not in told.samples()
    restored.note("counts", restored.Restored(3, 10, 9.0, 900.0))
    restored.note("counts", restored.Restored(4, 2048, 1.5, 1000.0))
    seen = told.samples()
    assert seen["eo_kafka_restore_seconds", "counts"] == 1.5
    assert seen["eo_kafka_restore_bytes", "counts"] == 2048
    assert seen["eo_kafka_restore_timestamp_seconds", "counts"] == 1000
