"""For how long a transactional id is asked for, by what Kafka answers meanwhile."""

from __future__ import annotations

import time
from collections import deque

import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.clients.kafka import outages, transactional_producer
from eo_kafka.clients.kafka.config import contact
from eo_kafka.core.patience import OUTAGE_S, served
from eo_kafka.core.process import driver_directory

SETTINGS = {"bootstrap.servers": "b:1"}
LOGIN = KafkaError(KafkaError._AUTHENTICATION, "b:1/1: wrong password")


class Silent:
    """A producer whose id is given by nobody; each trial takes its time, and ends with `code`.
    Its login is refused at the times in `refused`, which are told as librdkafka does: twice a
    minute at most, and when it is polled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, code: int, refused: range) -> None:
        self.now = self.began = time.monotonic()
        self._code, self._refused = code, list(refused)
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(outages, "_refused", deque(maxlen=1))
        monkeypatch.setattr(driver_directory, "_seen", set())
        monkeypatch.setattr(transactional_producer.kafka_config, "producer", lambda _: self)
        monkeypatch.setattr(transactional_producer, "_wait_connected", lambda *_: None)
        served(contact(SETTINGS))

    def init_transactions(self, timeout_s: float) -> None:
        self.now += timeout_s
        # Of whatever is not fatal, librdkafka says that it may be asked for again.
        raise KafkaException(KafkaError(self._code, None, False, True))

    def poll(self, _: float) -> None:
        while self._refused and self._refused[0] <= self.now - self.began:
            self._refused.pop(0)
            outages.told(LOGIN)


def waited(
    monkeypatch: pytest.MonkeyPatch, code: int, refused: range = range(0)
) -> tuple[float, str]:
    """For how many seconds, and what was refused when that ended."""
    silent = Silent(monkeypatch, code, refused)
    with pytest.raises(KafkaException) as told:
        transactional_producer.take(SETTINGS, "id", 60_000)
    assert told.value.args[0].code() == code
    return silent.now - silent.began, outages.refused_login()


@pytest.mark.parametrize(
    "code",
    [
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.NOT_COORDINATOR,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.CONCURRENT_TRANSACTIONS,
    ],
)
def test_a_coordinator_that_answers_not_now_is_waited_for_as_one_that_is_silent(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert waited(monkeypatch, code) == (OUTAGE_S, "")


@pytest.mark.parametrize(
    "code",
    [KafkaError.UNKNOWN, KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, KafkaError._FENCED],
)
def test_an_answer_that_is_no_outage_is_final(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, code) == (transactional_producer._TRIAL_S, "")


@pytest.mark.parametrize("code", [KafkaError._TIMED_OUT, KafkaError._AUTHENTICATION])
def test_a_login_that_is_refused_for_a_minute_is_told(
    code: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    passed, login = waited(monkeypatch, code, range(1, 1000, 31))
    assert passed == transactional_producer.INIT_TIMEOUT_S
    assert "wrong password" in login
    (line,) = [one.getMessage() for one in caplog.records if "asked again" in one.getMessage()]
    assert "does not let this principal in: b:1/1: wrong password. It is asked again" in line


def test_it_is_an_outage_that_began_with_a_refused_login(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, KafkaError._TIMED_OUT, range(5, 6)) == (OUTAGE_S, "")


def test_a_login_that_is_refused_later_has_its_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    passed, login = waited(monkeypatch, KafkaError._TIMED_OUT, range(101, 1000, 31))
    assert (passed, bool(login)) == (160, True)
