"""A partition has no leader when an attempt of a task ends, and its id is used again at once: what
was left open there would share the end of the next transaction (test_lost_markers.py)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from eo_kafka.broker.embedded import KafkaCluster
from eo_kafka.clients.kafka import control_plane
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import batch, committer
from eo_kafka.sinks.transactions.task_transaction import TaskTransaction
from eo_kafka.testing.processes import wait_until
from hand_made_tasks import HandMadeTasks
from harness import committed
from leaderless import (
    GOES,
    STAYS,
    brought,
    expected,
    make,
    rows,
    run,
    take_away,
    told,
    torn_job,
    visible,
)


class Killed(Exception):
    pass


def only(partition: int, number: int) -> Iterator[pa.RecordBatch]:
    where = pa.array([partition] * 20, pa.int32())
    yield pa.RecordBatch.from_pydict({"value": rows(number), "partition": where})


def named(topic: str, number: int) -> Iterator[pa.RecordBatch]:
    columns = {"key": rows(number), "value": rows(number), "topic": [topic] * 20}
    yield pa.RecordBatch.from_pydict(columns)


def fails(
    three: KafkaCluster, job: HandMadeTasks, some: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Rows that are in the log when the partition loses its leader, and the attempt dies."""
    assert job.topic
    before = high(job, job.topic)
    yield from some
    wait_until(lambda: high(job, job.topic) > before, "rows are in the log")
    take_away(three, job.topic)
    raise Killed


def high(job: HandMadeTasks, topic: str) -> int:
    control = control_plane.shared(job.options.kafka)
    return control.end_offset(topic, 1, committed=False)


@pytest.mark.parametrize(("commit", "attempt"), [("idempotent", 1), ("two-phase", 8)])
@pytest.mark.parametrize("elsewhere", [False, True], ids=["there", "elsewhere"])
def test_an_attempt_takes_the_id_of_one_that_was_aborted(three, commit, attempt, elsewhere, caplog):
    """Of eight slots; and of one with commit=idempotent. It writes to the same partition, or to
    another one."""
    job = torn_job(three)
    job = HandMadeTasks(job.servers, job.topic, commit)
    run(job, 0)
    plan = job.plan()
    first = only(1, 1) if elsewhere else brought(1)
    with pytest.raises(Killed):
        job.write(plan, fails(three, job, first), batch=1)
    three.brokers[GOES].start()
    second = only(0, 1) if elsewhere else brought(1)
    job.commit(job.write(plan, second, batch=1, attempt=attempt))
    assert visible(job) == expected(0, 1)
    assert any("(0 committed)" in said for said in told(caplog))
    run(job, 2)
    assert visible(job) == expected(0, 1, 2)


def test_an_attempt_follows_one_that_had_committed(three, monkeypatch):
    """Its report was lost."""
    job = torn_job(three)
    job = HandMadeTasks(job.servers, job.topic, "idempotent")
    commit = TaskTransaction.commit

    def commit_alone(transaction: TaskTransaction) -> None:
        take_away(three, job.topic)
        commit(transaction)

    run(job, 0)
    plan = job.plan()
    with monkeypatch.context() as first:
        first.setattr(TaskTransaction, "commit", commit_alone)
        job.write(plan, brought(1), batch=1)
    three.brokers[GOES].start()
    job.commit(job.write(plan, brought(1), batch=1, attempt=1))
    run(job, 2)
    assert visible(job) == expected(0, 1, 2)


def test_two_jobs_of_a_process_write_to_one_topic(three):
    a = torn_job(three)
    b = HandMadeTasks(a.servers, a.topic)
    run(a, 0)
    run(b, 10)
    lost = b.write(b.plan(), brought(11), batch=11)
    take_away(three, a.topic)
    committer.abort(b.options, [lost])
    three.brokers[GOES].start()
    run(a, 1)
    run(b, *range(11, 16))
    assert visible(a) == expected(0, 1, *range(10, 16))


def test_rows_that_name_topics(three):
    topic = torn_job(three).topic
    other = make(three, "other", [STAYS])
    job = HandMadeTasks(three.bootstrap_servers, None)

    def run_named(to: str, number: int) -> None:
        job.commit(job.write(job.plan(), named(to, number), batch=number))

    run_named(topic, 0)
    lost = job.write(job.plan(), named(topic, 1), batch=1)
    take_away(three, topic)
    committer.abort(job.options, [lost])
    three.brokers[GOES].start()
    for number in (1, 2, 3):
        run_named(other, number)
    run_named(topic, 4)  # under the id of the one that was aborted
    assert committed(job.servers, topic) == expected(0, 4)


def saved(job: HandMadeTasks) -> tuple[SinkOptions, batch.BatchIdentity, batch.BatchReport]:
    given = {"kafka.bootstrap.servers": job.servers, "topic": job.topic}
    options = SinkOptions.parse(given, streaming=False)
    made = batch.new_batch(options)
    return options, made, batch.write(options, made, 0, 0, brought(0))


def test_a_save_returns_when_it_can_be_read(three, caplog):
    """Its ids are never used again."""
    job = torn_job(three)
    options, made, report = saved(job)
    take_away(three, job.topic)
    with ThreadPoolExecutor(1) as driver:
        ended = driver.submit(batch.commit, options, made, [report])
        with pytest.raises(TimeoutError):
            ended.result(2)
        three.brokers[GOES].start()
        ended.result(60)
    assert visible(job) == expected(0)
    assert told(caplog)


def test_a_save_that_failed_says_what_it_leaves(three, caplog):
    job = torn_job(three)
    options, made, report = saved(job)
    take_away(three, job.topic)
    batch.abort(options, made, [report])
    said = [one.getMessage() for one in caplog.records if one.name == batch.__name__]
    assert len(said) == 1
    assert f"('{job.topic}', 1)" in said[0]
    assert "has failed" in said[0]
    three.brokers[GOES].start()
    batch.abort(options, made, [report])  # as 'eo-kafka txn abort --topic' does
    assert "(0 committed)" in told(caplog)[-1]


def test_a_partition_that_nobody_needs_may_be_away(three):
    job = torn_job(three)
    run(job, 0)
    take_away(three, job.topic)
    control_plane.forget(job.options.kafka)  # as in a new process
    job.commit(job.write(job.plan(), only(0, 1), batch=1))
    three.brokers[GOES].start()
    assert visible(job) == expected(0, 1)
