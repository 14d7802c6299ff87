"""How `eo_kafka.progress` reads what Spark reports."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eo_kafka.connectors.monitoring import query_progress
from eo_kafka.connectors.monitoring.query_progress import progress


def source(end: str | None, latest: str | None) -> SimpleNamespace:
    return SimpleNamespace(numInputRows=3, endOffset=end, latestOffset=latest)


def reported(*sources: SimpleNamespace) -> SimpleNamespace:
    spark = {"id": "i", "runId": "r", "name": None, "batchId": 2, "timestamp": "t"}
    return SimpleNamespace(**spark, durationMs={"addBatch": 1}, sources=sources)


def lag(end: str | None, latest: str | None) -> tuple[object, ...]:
    (found,) = progress(reported(source(end, latest))).sources
    names = ("minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest")
    return tuple(getattr(found, name) for name in names)


def test_how_far_a_source_is_behind() -> None:
    assert lag('{"a":{"0":7,"1":9}}', '{"a":{"0":10,"1":9}}') == (0, 3, 1.5)


def test_a_partition_that_the_batch_did_not_have_is_behind_with_all_it_holds() -> None:
    assert lag('{"a":{"0":7}}', '{"a":{"0":7,"1":4}}') == (0, 4, 2.0)


@pytest.mark.parametrize("latest", [None, "None", "null", "", "{}", "17", '{"logOffset":3}'])
def test_without_the_newest_offsets_there_is_no_lag(latest: str | None) -> None:
    """PySpark makes a text of the JVM's null; other sources have offsets of their own kind."""
    assert lag('{"a":{"0":7}}', latest) == (None, None, None)


def test_what_spark_does_not_know_is_none_and_not_its_name() -> None:
    (found,) = progress(reported(source("null", "None"))).sources
    assert (found.endOffset, found.latestOffset) == (None, None)


def test_a_query_is_asked_for_its_last_batch_and_may_have_none() -> None:
    batch = reported(source('{"a":{"0":1}}', '{"a":{"0":1}}'))
    assert progress(SimpleNamespace(lastProgress=batch)) == progress(batch)
    assert progress(SimpleNamespace(lastProgress=None)) is None


def test_lag_is_told_where_the_sinks_figures_cannot_be_had(monkeypatch, caplog) -> None:
    def refuse() -> str:
        raise RuntimeError("no such field")

    monkeypatch.setattr(query_progress, "_driver_directory", refuse)
    found = progress(reported(source('{"a":{"0":1}}', '{"a":{"0":4}}')))
    assert found.sources[0].maxOffsetsBehindLatest == 3
    assert found.sinks == ()
    assert "no such field" in caplog.text


def test_without_a_jvm_there_are_no_figures_of_sinks(monkeypatch) -> None:
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    assert progress(reported()).sinks == ()
