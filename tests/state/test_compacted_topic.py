"""What S1 makes of a compacted topic's settings while the brokers are still learning of it."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.state.ledger import topic_settings

GOOD = {"cleanup.policy": "compact", "min.insync.replicas": "2"}


class FakeAdmin:
    """Answers like brokers of which some have not heard of a new topic: real ones do so for a few
    milliseconds after the creation, when nobody can make them."""

    def __init__(self, *answers: dict[str, str] | int) -> None:
        self._answers = list(answers)
        self.asked = 0

    def describe_configs(self, resources):
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        future: Future = Future()
        if isinstance(answer, int):
            future.set_exception(KafkaException(KafkaError(answer)))
        else:
            future.set_result({k: SimpleNamespace(value=v) for k, v in answer.items()})
        return {resources[0]: future}

    def list_topics(self, topic, timeout):
        three = SimpleNamespace(replicas=[1, 2, 3])
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={0: three, 1: three})})


def test_a_broker_that_has_not_heard_of_the_new_ledger_is_asked_again():
    admin = FakeAdmin(KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.UNKNOWN_TOPIC_OR_PART, GOOD)
    assert topic_settings.faults(admin, "ledger", 2, 3) == ([], [])
    assert admin.asked == 3


def test_settings_that_may_not_be_seen_are_told_and_not_taken_for_wrong_ones(caplog):
    admin = FakeAdmin(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    assert topic_settings.faults(admin, "ledger", 2, 3) == ([], [])
    assert "Configuration of ledger not checked" in caplog.text


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"min.insync.replicas": "1"}, "min.insync.replicas=1 of 3 replicas"),
        ({"unclean.leader.election.enable": "true"}, "unclean leader elections"),
    ],
)
def test_settings_that_could_lose_a_decision_are_problems(setting, words):
    _, (problem,) = topic_settings.faults(FakeAdmin({**GOOD, **setting}), "ledger", 2, 3)
    assert words in problem
