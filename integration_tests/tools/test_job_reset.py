"""`eo-kafka job reset`: the ledger goes to a new query, and not back to the one that wrote it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eo_kafka.tools.cli import main
from harness import assert_exactly_once, committed, fail_at, make_copy

VALUES = [b"%d" % number for number in range(300)]


@pytest.mark.parametrize(
    "point", ["S6.after_decision", pytest.param("S8.after_done", marks=pytest.mark.full)]
)
def test_the_query_that_wrote_the_ledger_is_refused_and_repeats_nothing(
    broker, make_topic, tmp_path, spark, crash_points, point
):
    """Its last batch is written and not in Spark's commit log: it would run once more, and the
    ledger knows nothing of it any more."""
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES)
    fail_at(job, spark, crash_points, point)
    where = ["--bootstrap-servers", job.servers]
    for _ in range(2):
        assert main(["job", "reset", job.job_name, *where]) == 0
        with pytest.raises(Exception, match=r"ForeignLedger.*given up by 'eo-kafka job reset'"):
            job.run(spark)
        assert set(committed(job.servers, job.sink_topic).values()) == {1}
    new = replace(job, checkpoint=tmp_path / "new", sink_topic=make_topic("again"))
    new.run(spark)
    assert_exactly_once(new, VALUES)
    with pytest.raises(Exception, match=r"ForeignLedger"):
        job.run(spark)
