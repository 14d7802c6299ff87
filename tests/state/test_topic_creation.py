"""Creating a topic where brokers do not say what became of it, which real ones cannot be made to do
at will."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from eo_kafka.clients.kafka import topics
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.state.ledger import compacted_topic
from eo_kafka.state.ledger.topic_settings import few_copies, wanted_settings, weak_points

TOPIC = NewTopic("orders", 4, 1)
SILENT = "no answer"


class FakeAdmin:
    """Its answers, in turn: None (created), SILENT, an error's code, or a code and its text."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[int, dict[str, str], bool]] = []

    def create_topics(self, asked, validate_only=False):
        self.asked.append((asked[0].replication_factor, asked[0].config, validate_only))
        answer, future = self.answers.pop(0), Future()
        if answer is None:
            future.set_result(None)
        elif answer == SILENT:
            future.set_exception(FutureTimeout())
        else:
            told = answer if isinstance(answer, tuple) else (answer,)
            future.set_exception(KafkaException(KafkaError(*told)))
        return {asked[0].topic: future}


AWAY = (
    KafkaError.INVALID_REPLICATION_FACTOR,
    "Unable to replicate the partition 1 time(s): All brokers are currently fenced, or have all "
    "their log directories cordoned.",
)
TOO_FEW = (
    KafkaError.INVALID_REPLICATION_FACTOR,
    "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be "
    "reached because only 1 broker(s) are registered.",
)
POLICY = KafkaError.POLICY_VIOLATION, "Config property 'retention.ms' cannot be set"
THERE, DENIED = KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("answers", "is_new"),
    [
        ([None], True),
        ([THERE], False),
        ([SILENT, None], True),
        ([SILENT, THERE], True),  # that was us
        ([KafkaError._TRANSPORT, KafkaError.REQUEST_TIMED_OUT, THERE], True),
        ([AWAY] * 5 + [None], True),  # more often than ATTEMPTS
        ([AWAY, THERE], False),
    ],
)
def test_an_attempt_that_nobody_answers_is_made_again(answers, is_new):
    admin = FakeAdmin(*answers)
    assert topics.create(admin, TOPIC, "") is is_new
    assert admin.answers == []


@pytest.mark.parametrize(
    ("answers", "told", "is_outage"),
    [
        (
            [SILENT] * topics.ATTEMPTS,
            "Nobody said within 30 s whether topic 'orders' was created",
            True,
        ),
        ([SILENT, DENIED], "'orders' could not be created: .*authorization.* Ask somebody", False),
        ([DENIED], "Topic 'orders' could not be created: .*authorization.* Ask somebody", False),
        ([TOO_FEW], "could not be created: .*only 1 broker.* Ask", False),
        ([KafkaError._TRANSPORT] * topics.ATTEMPTS, "could not be created: .*transport.*", True),
    ],
)
def test_a_topic_that_is_not_created_is_said_with_what_to_do(answers, told, is_outage):
    admin = FakeAdmin(*answers)
    with pytest.raises(EnvironmentRefused, match=f"(?i){told}") as refused:
        topics.create(admin, TOPIC, "Ask somebody.")
    assert refused.value.retriable is is_outage
    assert admin.answers == []


def test_brokers_that_stay_away_are_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(topics, "TIMEOUT_S", 0.5)
    with pytest.raises(EnvironmentRefused, match="All brokers are currently fenced.* Ask") as told:
        topics.create(FakeAdmin(*[AWAY] * 9), TOPIC, "Ask somebody.")
    assert told.value.retriable


@pytest.mark.parametrize(
    "answers",
    [
        [POLICY, POLICY],  # without the setting, too: it is the name, or the number of replicas
        [POLICY, None, None],  # with it: it was something else
        [POLICY, SILENT],
        [POLICY, None, DENIED],
        [POLICY, None, POLICY, POLICY],
    ],
)
def test_a_setting_is_left_out_only_where_it_is_what_brokers_refuse(answers):
    admin = FakeAdmin(*answers)
    topic = NewTopic("orders", 4, 1, config={"retention.ms": "-1", "cleanup.policy": "compact"})
    with pytest.raises(
        EnvironmentRefused, match="Config property 'retention.ms' cannot be set.* A"
    ):
        topics.create(admin, topic, "Ask somebody.", dispensable=["retention.ms"])
    assert admin.answers == []


LEDGER = "__eo_kafka.pay.ledger"
ONE_ONLY = KafkaError.POLICY_VIOLATION, "Replication factor must be 1"
COLLIDES = KafkaError.TOPIC_EXCEPTION, "Topic collides with existing topics: __eo_kafka.p_y.ledger"


def test_a_ledger_gets_three_replicas_though_a_broker_is_away():
    """Kafka places one on a broker that it knows and that is being restarted."""
    admin = FakeAdmin(None)
    compacted_topic.create(admin, LEDGER, 2, brokers=2)
    assert admin.asked == [(3, wanted_settings(3), False)]


@pytest.mark.parametrize("brokers", [1, 2])
def test_it_gets_fewer_only_where_kafka_knows_of_no_more_brokers(brokers, caplog):
    admin = FakeAdmin(*[TOO_FEW] * (3 - brokers), None)
    with caplog.at_level(logging.WARNING):
        compacted_topic.create(admin, LEDGER, 2, brokers)
    assert admin.asked[-1] == (brokers, wanted_settings(brokers), False)
    assert ("has 2 replicas: so many brokers are all" in caplog.text) is (brokers == 2)
    assert len(caplog.records) == brokers - 1  # of a single one is told with the ledger


def test_a_policy_of_another_number_gets_what_the_brokers_give(caplog):
    """As brokers whose storage is replicated below them: AutoMQ's allow one replica only."""
    admin = FakeAdmin(ONE_ONLY, ONE_ONLY, None, None)
    with caplog.at_level(logging.WARNING):
        compacted_topic.create(admin, LEDGER, 2, brokers=3)
    replicas, config, _ = admin.asked[-1]
    assert (replicas, "min.insync.replicas" in config) == (topics.DEFAULT_REPLICAS, False)
    assert [only_tried for _, _, only_tried in admin.asked] == [False, True, True, False]
    assert "they do not allow 3 (Replication factor must be 1)" in caplog.text


def test_that_is_tried_once(caplog):
    admin = FakeAdmin(ONE_ONLY, ONE_ONLY, ONE_ONLY)
    with pytest.raises(EnvironmentRefused, match="Replication factor must be 1"):
        compacted_topic.create(admin, LEDGER, 2, brokers=3)
    assert admin.answers == []


@pytest.mark.parametrize("answers", [[COLLIDES], [ONE_ONLY] * 3])
def test_for_a_name_that_is_refused_the_options_are_named(answers):
    with pytest.raises(EnvironmentRefused) as refused:
        compacted_topic.create(FakeAdmin(*answers), LEDGER, 2, brokers=3)
    for named in ("'jobName'", "'ledgerTopic'", "'stateTopic'"):
        assert named in str(refused.value)
    assert "grant Create" not in str(refused.value)


@pytest.mark.parametrize(
    ("replicas", "in_sync", "brokers", "weak", "few"),
    [
        (3, 2, 3, False, False),
        (3, 2, 5, False, False),
        (2, 2, 2, False, False),
        (2, 2, 3, False, True),  # nothing is lost; one broker away stops the job
        (1, 1, 1, False, False),
        (1, 1, 3, True, False),
    ],
)
def test_fewer_replicas_than_there_could_be_are_told(replicas, in_sync, brokers, weak, few):
    there = {0: SimpleNamespace(replicas=list(range(replicas)))}
    config = {"min.insync.replicas": str(in_sync)}
    found = weak_points(LEDGER, there, config, brokers)
    assert bool(found) is weak
    assert all("'allowWeakReplication'" in one for one in found[:1])
    assert bool(few_copies(LEDGER, there, brokers)) is few
