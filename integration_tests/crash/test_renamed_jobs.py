"""A query goes on under another job's name: at once where its last batch ended, and not where the
old ledger has decided a batch that Spark runs again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness import assert_exactly_once, committed, fail_at, make_copy, produce

VALUES = [b"%d" % number for number in range(300)]
MORE = [b"more-%d" % number for number in range(150)]


@pytest.mark.parametrize(
    ("point", "extra"),
    [
        ("S6.after_decision", {}),
        pytest.param("S8.after_done", {}, marks=pytest.mark.full),
        pytest.param("S6.before_fence", {"commit": "idempotent"}, marks=pytest.mark.full),
    ],
    ids=str,
)
def test_a_batch_that_the_old_ledger_has_decided_is_not_written_again(
    broker, make_topic, tmp_path, spark, crash_points, point, extra
):
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, sink_extra=extra)
    job.run(spark)
    renamed = replace(job, job_name=f"{job.job_name}-renamed")
    produce(job.servers, job.source_topic, MORE)
    fail_at(job, spark, crash_points, point)
    for _ in range(2):
        with pytest.raises(Exception, match=f"ForeignLedger.*as job '{job.job_name}'"):
            renamed.run(spark)
        assert set(committed(job.servers, job.sink_topic).values()) == {1}
    job.run(spark)
    assert_exactly_once(job, VALUES + MORE)
    last = [b"last"]
    produce(job.servers, job.source_topic, last)
    renamed.run(spark)
    assert_exactly_once(renamed, VALUES + MORE + last)
