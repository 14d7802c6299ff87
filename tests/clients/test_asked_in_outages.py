"""What a driver asks about topics in an outage: by an admin client that fails as often as a test
says, and by a broker that ends connections in the middle of a request."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.cimpl import NewTopic
from fake_broker import METADATA, broker

from eo_kafka.clients.kafka import topics
from eo_kafka.clients.kafka.cluster import connect
from eo_kafka.core import patience
from eo_kafka.core.patience import in_a_hurry, served
from eo_kafka.core.process import driver_directory
from eo_kafka.errors import EnvironmentRefused, Unreachable
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import preflight
from eo_kafka.state.ledger import topics as ledger_topics

SERVERS = "127.0.0.1:1"
AWAY = KafkaError._TRANSPORT, "Failed to get metadata: Local: Broker transport failure"
SILENT = "no answer"
LIMIT = "transaction.max.timeout.ms"


class Admin:
    """As `connect` makes it. Its next answers are `failing`, then it answers all. Of topics, it
    does not know those in `unknown` at first."""

    servers = SERVERS

    def __init__(self, *failing: Any) -> None:
        self.failing = list(failing)
        self.brokers: list[dict[int, None]] = []

    def _fail(self) -> None:
        if self.failing:
            answer = self.failing.pop(0)
            raise FutureTimeout if answer == SILENT else KafkaException(KafkaError(*answer))

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        assert timeout > 0
        self._fail()
        found = SimpleNamespace(error=None, partitions={0: SimpleNamespace(replicas=[1, 2, 3])})
        brokers = self.brokers.pop(0) if self.brokers else {1: None}
        return SimpleNamespace(topics={topic: found}, brokers=brokers)

    def _future(self, value: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            self._fail()
            future.set_result(value)
        except Exception as error:
            future.set_exception(error)
        return future

    def describe_configs(self, asked: list[Any]) -> Any:
        told = {LIMIT: "900000", "min.insync.replicas": "2"}
        entries = {name: SimpleNamespace(value=value) for name, value in told.items()}
        return {asked[0]: self._future(entries)}

    def create_topics(self, asked: list[Any]) -> Any:
        return {asked[0].topic: self._future(None)}


@pytest.fixture(autouse=True)
def times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short ones, in a process that has met nobody."""
    monkeypatch.setattr(driver_directory, "_seen", set())
    monkeypatch.setattr(patience, "OUTAGE_S", 5.0)
    for module in (topics, preflight):
        monkeypatch.setattr(module, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(preflight, "_allowed_ms", {})


def longest(admin: Admin) -> int | None:
    """With option `transactionTimeout` `max`."""
    given = {"kafka.bootstrap.servers": SERVERS, "topic": "t", "transactionTimeout": "max"}
    options = SinkOptions.parse({**given, "jobName": "j"}, streaming=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preflight, "connect", lambda *_: (admin, 1))
        return preflight.with_allowed_timeout(options).timeout_ms


QUESTIONS: list[Callable[[Any], Any]] = [
    lambda admin: topics.exists(admin, "t"),
    lambda admin: topics.partitions_of(admin, "t"),
    lambda admin: topics.settings_of(admin, "t", must_answer=True),
    lambda admin: topics.create(admin, NewTopic("t", 1), ""),
    lambda admin: preflight._await_topic(admin, "'topic'", "t", None),
    ledger_topics.transaction_log_problems,
    longest,
]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("failure", [AWAY, SILENT, (KafkaError._TIMED_OUT,)])
def test_what_is_asked_waits_through_an_outage(
    question: Callable[[Any], Any], failure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(SERVERS)
    admin = Admin(*[failure] * 7)
    expected = question(Admin())
    monkeypatch.setattr(preflight, "_allowed_ms", {})
    began = time.monotonic()
    assert question(admin) == expected
    assert not admin.failing
    assert 0.6 < time.monotonic() - began < patience.OUTAGE_S


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("is_hurried", [False, True])
def test_who_has_not_served_is_told_soon_and_in_a_sentence(
    question: Callable[[Any], Any], is_hurried: bool
) -> None:
    """A person waits there; or a query that is stopped does."""
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"(?i)'?t'?.* transport failure.*\."):
        if is_hurried:
            served(SERVERS)
            with in_a_hurry():
                question(Admin(*[AWAY] * 1000))
        else:
            question(Admin(*[AWAY] * 1000))
    assert time.monotonic() - began < 3


def test_an_outage_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "OUTAGE_S", 1.0)
    served(SERVERS)
    with pytest.raises(Unreachable, match=rf"{SERVERS} did not answer when asked for topic 't' \("):
        topics.exists(Admin(*[AWAY] * 1000), "t")


def test_what_brokers_refuse_is_told_at_once() -> None:
    served(SERVERS)
    denied = Admin((KafkaError.CLUSTER_AUTHORIZATION_FAILED,))
    with pytest.raises(
        EnvironmentRefused, match="does not tell topic 't': .*authorization"
    ) as told:
        topics.exists(denied, "t")
    assert not told.value.retriable
    assert topics.settings_of(Admin((KafkaError.CLUSTER_AUTHORIZATION_FAILED,)), "t") == {}


def test_a_broker_that_is_away_is_asked_once_for_its_own_limits() -> None:
    """The others may go on without it for as long as they like."""
    served(SERVERS)
    admin = Admin(AWAY)
    assert topics.settings_of(admin, "1", _broker()) == {}
    gone = Admin()
    gone.brokers = [{1: None, 2: None}, {}, {1: None}]
    answers = gone._future

    def of_one(value: Any) -> Future[Any]:
        if len(gone.brokers) == 2:  # listed still, and away
            gone.failing.append(AWAY)
        return answers(value)

    gone._future = of_one  # type: ignore[method-assign]
    assert longest(gone) == 900_000
    assert not gone.brokers


def _broker() -> Any:
    from confluent_kafka.admin import ResourceType

    return ResourceType.BROKER


def test_an_outage_does_not_take_the_time_that_a_new_topic_has() -> None:
    """A broker that was started just now may not have heard of it."""
    served(SERVERS)
    unknown = (KafkaError.UNKNOWN_TOPIC_OR_PART,)
    admin = Admin(*[AWAY] * 5, unknown)
    assert topics.settings_of(admin, "t")[LIMIT] == "900000"


def test_a_connection_that_is_lost_while_one_connects_is_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By librdkafka, for as long as `connect` waits."""
    monkeypatch.setattr(patience, "OUTAGE_S", 20.0)
    with broker() as one:
        served(one.servers)
        answer, lost = one._answer, [1] * 4

        def answered(frame: bytes) -> bytes:
            if struct.unpack_from(">h", frame)[0] == METADATA and lost:
                lost.pop()
                raise OSError
            return answer(frame)

        monkeypatch.setattr(one, "_answer", answered)
        admin, brokers = connect({"bootstrap.servers": one.servers}, 0.3)
        assert (brokers, lost, topics.servers_of(admin)) == (1, [], one.servers)
