"""Decided transactions that Kafka has aborted or forgotten: what EndTxn answers, what Flink's rule
makes of such an answer, and what the token says (C16, C21)."""

from __future__ import annotations

import pytest

from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.core.transaction import DecisionState, TransactionState
from harness import (
    Copy,
    assert_exactly_once,
    committed,
    control_plane,
    fail_at,
    make_copy,
    read_ledger,
    wait_until,
    wait_until_timed_out,
)

VALUES = [b"%d" % number for number in range(300)]
TIMEOUT_MS = 15_000

# KafkaCommitter of flink-connector-kafka: ProducerFencedException and InvalidTxnStateException are
# logged ("most likely data loss"), signalFailedWithKnownReason is called, and the job goes on.
FLINK_GOES_ON = {"PRODUCER_FENCED", "INVALID_TXN_STATE"}


def one_batch(servers: str, make_topic, tmp_path, **settings) -> Copy:
    return make_copy(
        servers, make_topic, tmp_path, VALUES, per_batch=1000, timeout_ms=TIMEOUT_MS, **settings
    )


@pytest.mark.parametrize(
    ("point", "lost"),
    [
        pytest.param("S6.after_decision", 2, id="all-participants", marks=pytest.mark.full),
        pytest.param("S7.after_first_end_txn", 1, id="some-participants"),
    ],
)
def test_flinks_rule_would_lose_the_rows_that_an_outage_outlasts(
    broker, make_topic, spark, crash_points, tmp_path, point, lost
):
    job = one_batch(broker.bootstrap_servers, make_topic, tmp_path)
    fail_at(job, spark, crash_points, point)
    wait_until_timed_out(job)
    (decision,) = read_ledger(job).of_sink("main").values()
    assert decision.state is DecisionState.DECIDED
    identities = [part.identity for part in decision.participants]
    with control_plane(job.servers) as control:
        # What a committer that comes back gets, in the version of Flink's client and in KIP-890's.
        old = control.end(identities, commit=True, version=3)
        new = control.end(identities, commit=True, version=5)
    given_up = {
        part.identity.transactional_id: part.rows
        for part in decision.participants
        if new[part.identity.transactional_id] in FLINK_GOES_ON
    }
    assert len(given_up) == lost
    assert {old[name] for name in given_up} == {"PRODUCER_FENCED"}
    assert {new[name] for name in given_up} == {"INVALID_TXN_STATE"}
    visible = sum(committed(job.servers, job.sink_topic).values())
    gone = sum(given_up.values())
    assert gone > 0
    assert visible + gone == len(VALUES), "Flink's rule goes on, and these rows stay missing"
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.fixture(scope="module")
def forgetful():
    """A Kafka that forgets a transactional id that was idle for twenty seconds, not seven days."""
    properties = {
        "transactional.id.expiration.ms": 20_000,
        "transaction.remove.expired.transaction.cleanup.interval.ms": 1000,
    }
    with KafkaBroker(properties=properties) as broker:
        yield broker


@pytest.mark.full
def test_c21_of_ids_that_kafka_has_forgotten_the_token_knows_the_outcome(
    forgetful, spark, crash_points, tmp_path
):
    servers, make_topic = forgetful.bootstrap_servers, topic_maker(forgetful.bootstrap_servers)
    done = one_batch(servers, make_topic, tmp_path / "committed")
    lost = one_batch(servers, make_topic, tmp_path / "aborted")
    fail_at(done, spark, crash_points, "S7.after_last_end_txn")
    fail_at(lost, spark, crash_points, "S6.after_decision")
    for job in (done, lost):
        wait_until_forgotten(job)
    assert sum(committed(servers, done.sink_topic).values()) == len(VALUES)
    assert not committed(servers, lost.sink_topic)
    for job, rounds in ((done, 0), (lost, 1)):
        job.run(spark)
        assert_exactly_once(job, VALUES)
        (decision,) = read_ledger(job).of_sink("main").values()
        assert (decision.state, decision.round) == (DecisionState.DONE, rounds)


def wait_until_forgotten(job: Copy) -> None:
    (decision,) = read_ledger(job).of_sink("main").values()
    identities = [part.identity for part in decision.participants]
    with control_plane(job.servers) as control:

        def forgotten() -> bool:
            described = control.describe(one.transactional_id for one in identities)
            return {found.state for found in described.values()} == {TransactionState.MISSING}

        wait_until(forgotten, "Kafka forgets the ids of the participants", 90)
        answers = control.end(identities, commit=True, version=decision.end_txn_version)
    assert set(answers.values()) == {"INVALID_PRODUCER_ID_MAPPING"}
