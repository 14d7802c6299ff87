"""A task whose JVM fails behind its first rows. Spark closes the socket to the sink's worker and
tries again, and nobody ends the worker: to it that looks like the end of its rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import JOB_TIMEOUT_S, Copy, assert_exactly_once, make_copy

VALUES = [b"%03d " % number + b"x" * 2000 for number in range(300)]


def run(job: Copy, spark: Any, fails: Any) -> None:
    """The copy, with `fails` in front of the sink."""
    told = job.as_job()
    rows = spark.readStream.format("eo-kafka").options(**told["source_options"]).load()
    rows = rows.select("key", "value").mapInArrow(fails, "key BINARY, value BINARY")
    writer = rows.writeStream.format("eo-kafka").options(**job.sink_options)
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(JOB_TIMEOUT_S)
    finally:
        query.stop()


@pytest.mark.parametrize("commit", ["idempotent", "two-phase"])
def test_a_task_that_fails_behind_its_first_rows_has_committed_none(
    spark: Any, broker: Any, make_topic: Any, tmp_path: Path, commit: str
) -> None:
    servers = broker.bootstrap_servers
    job = make_copy(servers, make_topic, tmp_path, VALUES, partitions=1, per_batch=None)
    job.sink_extra["commit"] = commit
    failed = tmp_path / "failed"

    def fails_once(batches: Any) -> Any:
        for number, batch in enumerate(batches):
            if number == 2 and not failed.exists():
                failed.touch()
                raise RuntimeError("in front of the sink")
            yield batch

    records = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(records, "50")
    try:
        run(job, spark, fails_once)
    finally:
        spark.conf.unset(records)

    assert failed.exists()
    assert_exactly_once(job, VALUES)
