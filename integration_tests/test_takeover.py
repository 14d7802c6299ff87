"""A query that Spark's own connector started goes on under ours on one checkpoint, and back."""

from __future__ import annotations

from harness import Copy, assert_exactly_once, committed, produce
from test_restore_jobs import SECOND, events, new_job, state_of  # noqa: F401 - a fixture

THIRD = events(300, 450)
VALUES = [b"%d" % number for number in range(1000)]


def test_a_checkpoint_of_the_jvm_connector_is_continued(spark, broker, make_topic, tmp_path):
    source = make_topic("taken", partitions=2)
    produce(broker.bootstrap_servers, source, VALUES[:600])
    job = Copy(
        servers=broker.bootstrap_servers,
        source_topic=source,
        sink_topic=make_topic("over", partitions=2),
        checkpoint=tmp_path / "checkpoint",
        job_name=f"taken-{source}",
        source="kafka",
        sink="kafka",
    )
    log = tmp_path / "log"
    assert job.run_in_own_driver(log) == 0, log.read_text()[-4000:]
    produce(broker.bootstrap_servers, source, VALUES[600:])
    job.source = job.sink = "eo-kafka"
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_a_checkpoint_of_ours_is_continued_by_the_jvm_connector(
    spark, broker, make_topic, tmp_path
):
    """The way back is open: Spark's own connector goes on where we stopped, in order."""
    source = make_topic("given-back", partitions=2)
    produce(broker.bootstrap_servers, source, VALUES[:600])
    job = Copy(
        servers=broker.bootstrap_servers,
        source_topic=source,
        sink_topic=make_topic("back", partitions=2),
        checkpoint=tmp_path / "checkpoint",
        job_name=f"given-back-{source}",
    )
    job.run(spark)
    produce(broker.bootstrap_servers, source, VALUES[600:])
    job.source = job.sink = "kafka"
    log = tmp_path / "log"
    assert job.run_in_own_driver(log) == 0, log.read_text()[-4000:]
    assert_exactly_once(job, VALUES)


def test_a_stateful_checkpoint_is_taken_over_and_given_back(new_job, spark):  # noqa: F811
    """Windows that one connector opened are closed by the other, with all their records."""
    job, same = new_job("changing"), new_job("same")
    expected = {}
    for source, values in (("kafka", SECOND), ("eo-kafka", THIRD), ("kafka", None)):
        job.source, job.sink = source, "eo-kafka"
        job.run(spark)
        same.run(spark)
        expected = committed(job.servers, same.sink_topic)
        assert committed(job.servers, job.sink_topic) == expected
        assert state_of(job, spark) == state_of(same, spark)
        if values is not None:
            produce(job.servers, job.source_topic, values)
    assert expected
