"""A partition has no leader when a transaction that wrote to it ends.

Kafka 4.3.0, 4.3.1 and 4.4.0 leave its marker out then (KAFKA-20734), for good; older ones write it
when the leader is back. Here the only replica's broker is killed, and comes back.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from eo_kafka.broker.embedded import KafkaCluster
from eo_kafka.clients.kafka import control_plane
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.protocol.finisher import Finisher
from eo_kafka.sinks.transactions.task_transaction import TaskTransaction
from eo_kafka.state.ledger import appender
from eo_kafka.testing.processes import wait_until
from hand_made_tasks import HandMadeTasks
from leaderless import (
    GOES,
    STAYS,
    WRITTEN,
    brought,
    died,
    expected,
    losing,
    make,
    run,
    take_away,
    told,
    visible,
)


def test_a_batch_is_done_when_all_of_it_can_be_read(three, torn, caplog):
    run(torn, 0)
    report = torn.write(torn.plan(), brought(1), batch=1)
    take_away(three, torn.topic)
    with ThreadPoolExecutor(1) as driver:
        done = driver.submit(torn.commit, report)
        wait_until(lambda: not torn.open(), "the transaction has ended")
        with pytest.raises(TimeoutError):
            done.result(2)
        three.brokers[GOES].start()
        done.result(60)
    assert visible(torn) == expected(0, 1)
    (said,) = told(caplog)
    assert f"{torn.topic}-1" in said
    assert WRITTEN in said
    run(torn, 2)
    assert visible(torn) == expected(0, 1, 2)


def test_what_was_aborted_does_not_come_back(three, torn, caplog):
    """Whose id is used again writes to the same partition, and commits."""
    run(torn, 0)
    lost = torn.write(torn.plan(), brought(1), batch=1)
    take_away(three, torn.topic)
    committer.abort(torn.options, [lost])
    three.brokers[GOES].start()
    run(torn, *range(1, 7))
    assert visible(torn) == expected(*range(7))
    (said,) = told(caplog)
    assert "(0 committed)" in said


def test_a_driver_that_dies_leaves_it_to_the_next(three, torn, caplog, monkeypatch):
    """It has ended the transactions, and not looked."""
    report = torn.write(torn.plan(), brought(0))
    take_away(three, torn.topic)
    with monkeypatch.context() as dying:
        dying.setattr(Finisher, "end_others", died)
        with pytest.raises(KeyboardInterrupt):
            torn.commit(report)
    three.brokers[GOES].start()
    torn.plan()
    assert visible(torn) == expected(0)
    assert WRITTEN in told(caplog)[0]


def test_tasks_that_commit_by_themselves(three, torn, caplog, monkeypatch):
    torn = HandMadeTasks(torn.servers, torn.topic, "idempotent")
    commit = TaskTransaction.commit

    def commit_alone(transaction: TaskTransaction) -> None:
        take_away(three, torn.topic)
        commit(transaction)

    run(torn, 0)
    plan = torn.plan()
    with monkeypatch.context() as at_this_batch:
        at_this_batch.setattr(TaskTransaction, "commit", commit_alone)
        report = torn.write(plan, brought(1), batch=1)
    with ThreadPoolExecutor(1) as driver:
        done = driver.submit(torn.commit, report)
        with pytest.raises(TimeoutError):
            done.result(2)
        three.brokers[GOES].start()
        done.result(60)
    assert visible(torn) == expected(0, 1)
    assert WRITTEN in told(caplog)[0]
    run(torn, 2)
    assert visible(torn) == expected(0, 1, 2)


def weak_job(three: KafkaCluster, topic: str) -> tuple[HandMadeTasks, str]:
    """Its ledger has one replica, as where there is one broker, which goes."""
    ledger = make(three, "ledger", [GOES], [GOES], **{"cleanup.policy": "compact"})
    job = HandMadeTasks(three.bootstrap_servers, topic)
    given = {"kafka.bootstrap.servers": job.servers, "topic": topic, "jobName": ledger}
    given |= {"ledgerTopic": ledger, "allowWeakReplication": "true"}
    job.options = SinkOptions.parse(given, streaming=True)
    return job, ledger


@pytest.mark.parametrize("record", ["generation", "decision", "DONE"])
def test_a_record_of_the_ledger(three, caplog, monkeypatch, record):
    """The broker is stopped in the middle of a batch."""
    job, ledger = weak_job(three, make(three, "out", [STAYS], [STAYS]))
    run(job, 0)
    number = ["generation", "decision", "DONE"].index(record)
    with (
        losing(three, ledger, appender, monkeypatch, number) as lacks_leader,
        ThreadPoolExecutor(1) as driver,
    ):
        done = driver.submit(run, job, 1)
        assert lacks_leader.wait(60)
        wait_until(lambda: done.done() or not job.open(), "the batch goes on as far as it can")
        three.brokers[GOES].start()
        done.result(120)
    run(job, 2)
    assert visible(job) == expected(0, 1, 2)
    assert WRITTEN in told(caplog)[0]


def test_a_decision_that_is_hidden_says_what_became_of_its_rows(three, monkeypatch):
    """The driver dies after the last EndTxn: the next one reads it before it looks at the rows."""
    job, ledger = weak_job(three, make(three, "out", [STAYS], [GOES]))
    run(job, 0)
    with losing(three, ledger, appender, monkeypatch, 1), monkeypatch.context() as dying:
        dying.setattr(Finisher, "end_others", died)
        with pytest.raises(KeyboardInterrupt):
            run(job, 1)
    three.brokers[GOES].start()
    control_plane.forget(job.options.kafka)
    job.plan()
    assert visible(job) == expected(0, 1)
    run(job, 2)
    assert visible(job) == expected(0, 1, 2)
