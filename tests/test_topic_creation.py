"""Creating a topic where brokers do not say what became of it, which real ones cannot be made to do
at will."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic

from eo_kafka.clients.kafka import topics
from eo_kafka.errors import EnvironmentRefused

TOPIC = NewTopic("orders", 4, 1)
SILENT = "no answer"


class FakeAdmin:
    """Its answers, in turn: None (created), SILENT, an error's code, or a code and its text."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    def create_topics(self, asked, validate_only=False):
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
