"""A query that Spark's own connector started goes on under ours, on the same checkpoint."""

from __future__ import annotations

from harness import Copy, assert_exactly_once, produce

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
