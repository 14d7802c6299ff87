"""That a topic is gone only most brokers can say; who refuses to answer says nothing."""

from __future__ import annotations

import asyncio
import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from eo_kafka.clients.kafka import topic_lists
from eo_kafka.clients.kafka.topic_lists import ids_of
from eo_kafka.errors import OutcomeUnknown

HERE = {"out": "id"}


class Manager:
    """Of kafka-python: what each broker answers, an error code of the topic or an exception."""

    def __init__(self, answers: dict[int, int | Exception], topic_id: str | None) -> None:
        self._answers, self._topic_id = answers, topic_id
        brokers = [SimpleNamespace(node_id=node) for node in answers]
        self.cluster = SimpleNamespace(brokers=lambda: brokers, request_update=lambda: None)

    def send(self, _request: object, node_id: int) -> Any:
        answer = self._answers[node_id]
        if isinstance(answer, Exception):
            raise answer

        async def answered() -> Any:
            row = {"name": "out", "topic_id": self._topic_id, "error_code": answer}
            return SimpleNamespace(to_dict=lambda: {"topics": [row], "brokers": []})

        return answered()

    def call_soon(self, method: Any, *args: Any) -> Any:
        return method(*args)


def of_each(
    answers: dict[int, int | Exception], topic_id: str | None = "id"
) -> topic_lists.Answers:
    admin = SimpleNamespace(_manager=Manager(answers, topic_id))
    return asyncio.run(topic_lists.of_each(admin, ["out"]))


def test_only_an_unknown_topic_is_one_that_is_not_there() -> None:
    from kafka import errors

    refused = errors.SaslAuthenticationFailedError("no")
    assert of_each({1: 0, 2: 3, 3: 29, 4: refused}) == {1: HERE, 2: {}, 3: None, 4: None}


def test_what_has_no_id_is_left_out_and_its_broker_says_nothing() -> None:
    """Brokers with ZooKeeper and an old inter.broker.protocol.version: kafka-python says None."""
    rows = [
        {"name": name, "topic_id": topic_id, "error_code": 0}
        for name, topic_id in (("out", None), ("zero", uuid.UUID(int=0)), ("new", "id"))
    ]
    assert ids_of(rows) == {"new": "id"}
    assert of_each({1: 0, 2: 0}, topic_id=None) == {1: None, 2: None}


@pytest.mark.parametrize("answers", [{1: HERE, 2: {}}, {1: {}, 2: None}, {}])
def test_without_most_of_them_saying_the_same_it_is_unknown(
    answers: topic_lists.Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_lists, "AGREE_TIMEOUT_S", 0.0)
    with pytest.raises(OutcomeUnknown, match="do not agree"):
        topic_lists.agreed(lambda: answers, ["out"], "")


def test_most_say_the_same() -> None:
    assert topic_lists.agreed(lambda: {1: None, 2: {}, 3: {}}, ["out"], "") == {}
