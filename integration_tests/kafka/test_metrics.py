"""Metrics and traces of real queries: they are what Spark and the topics say."""

from __future__ import annotations

import urllib.request

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.parser import text_string_to_metric_families

import eo_kafka
from harness import (
    assert_exactly_once,
    fail_at,
    kill_driver_at,
    make_copy,
    open_tasks,
    wait_until,
)

VALUES = [b"%d" % number for number in range(300)]


@pytest.fixture
def job(broker, make_topic, tmp_path):
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=100)


@pytest.fixture
def scraped(spark):
    """What a scraper is answered, by name; of several partitions their sum."""
    registry = CollectorRegistry()
    listener = eo_kafka.QueryMetrics(registry)
    spark.streams.addListener(listener)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)
    url = f"http://127.0.0.1:{server.server_port}/metrics"

    def scrape() -> dict[str, float]:
        with urllib.request.urlopen(url, timeout=10) as answer:
            text = answer.read().decode()
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for one in family.samples:
                step = one.labels.get("step")
                name = f"{one.name} {step}" if step else one.name
                found[name] = found.get(name, 0) + one.value
        return found

    yield scrape
    spark.streams.removeListener(listener)
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_a_query_that_fails_goes_on_and_falls_behind(job, spark, scraped, crash_points):
    job.sink_extra = {"snapshots": "true"}
    fail_at(job, spark, crash_points, "S6.before_decision")
    wait_until(lambda: scraped().get("eo_kafka_query_failures_total") == 1, "a failure")
    assert scraped()["eo_kafka_query_active"] == 0
    with job.running(spark) as query:
        assert query.awaitTermination(180)
    wait_until(lambda: scraped().get("eo_kafka_batch_id") == 3, "the last batch")
    wait_until(lambda: scraped()["eo_kafka_query_active"] == 0, "its end")
    seen = scraped()
    assert seen["eo_kafka_batch_seconds_count"] == 4
    assert seen["eo_kafka_input_records_total"] == seen["eo_kafka_output_rows_total"] == 300
    # Each value is its key, too; of a batch that ran again only what was sent when it was committed
    assert seen["eo_kafka_output_bytes_total"] == 2 * sum(map(len, VALUES))
    assert seen["eo_kafka_lag_records"] == seen["eo_kafka_lag_seconds"] == 0
    assert seen["eo_kafka_batch_transactions"] == 2  # of its two tasks
    assert 0 < seen["eo_kafka_snapshot_bytes"] <= seen["eo_kafka_snapshot_sent_bytes_total"]
    assert seen["eo_kafka_step_seconds_count tasks"] == 4
    assert 0 < seen["eo_kafka_step_seconds_sum tasks"] < seen["eo_kafka_batch_seconds_sum"]
    assert_exactly_once(job, VALUES)


def test_transactions_of_a_dead_driver_are_counted_where_they_are_ended(
    job, spark, scraped, crash_points, tmp_path
):
    kill_driver_at(job, crash_points, "S5.prepared", tmp_path / "driver.log")
    left = len(open_tasks(job))
    assert left > 0
    job.run(spark)
    wait_until(lambda: scraped().get("eo_kafka_batch_id") == 3, "the last batch")
    assert scraped()["eo_kafka_aborted_transactions_total"] == left
    assert_exactly_once(job, VALUES)


def test_lag_is_what_the_query_has_not_read_and_grows_old(job, spark, scraped):
    """Spark plans twelve records at a time, and looks at all that there is each time."""
    options = {**job.as_job()["source_options"], "maxOffsetsPerTrigger": "12"}
    rows = spark.readStream.format("eo-kafka").options(**options).load()
    writer = rows.select("key", "value").writeStream.format("eo-kafka").options(**job.sink_options)
    query = writer.trigger(processingTime="1 second").start()
    try:
        wait_until(lambda: scraped().get("eo_kafka_lag_records", 300) < 300, "a batch")
        wait_until(lambda: scraped()["eo_kafka_lag_seconds"] > 2, "the rest waits")
        seen = scraped()
        assert seen["eo_kafka_lag_records"] + seen["eo_kafka_input_records_total"] <= 312
        assert seen["eo_kafka_query_active"] == 1
    finally:
        query.stop()


def test_each_batch_is_a_trace(job, spark):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    listener = eo_kafka.QueryTraces(provider.get_tracer("test"))
    spark.streams.addListener(listener)

    def spans(name):
        return [one for one in exporter.get_finished_spans() if one.name == name]

    try:
        with job.running(spark) as query:
            assert query.awaitTermination(180)
        wait_until(lambda: len(spans("batch")) == 4, "a span for each batch")
    finally:
        spark.streams.removeListener(listener)
    assert len({one.context.trace_id for one in spans("batch")}) == 4
    assert [one.attributes["eo_kafka.batch"] for one in spans("batch")] == [0, 1, 2, 3]
    for step in ("S1 plan", "S2 to S5 tasks", "S6 decide", "S7 finish", "S8 done"):
        assert len(spans(step)) == 4
        assert all(one.attributes["eo_kafka.job"] == job.job_name for one in spans(step))
    for batch in spans("batch"):
        whole = batch.context.trace_id
        of = [s for s in exporter.get_finished_spans() if s.context.trace_id == whole]
        assert all(batch.start_time <= one.start_time for one in of)
        assert all(one.end_time <= batch.end_time for one in of)
