"""How long brokers are waited for: briefly until they have served, through an outage afterwards."""

from __future__ import annotations

import pytest

from eo_kafka.core import patience
from eo_kafka.core.patience import Wait, in_a_hurry, patience_s, served
from eo_kafka.core.process import driver_directory

SERVERS = "one:9092,two:9092"


class Clock:
    """`time`, as far as `patience` asks it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(patience, "time", clock)
    monkeypatch.setattr(driver_directory, "_seen", set())
    return clock


def lasts(clock: Clock, outage: bool, at_first_s: float = 30.0) -> float:
    """For how many seconds one goes on, asking each second."""
    began, wait = clock.now, Wait(SERVERS, at_first_s)
    while wait.goes_on(outage, "No answer."):
        clock.now += 1
    return clock.now - began


def test_only_who_has_served_is_waited_for_through_an_outage(clock: Clock) -> None:
    assert lasts(clock, outage=True) == 30
    served("others:9092")
    assert lasts(clock, outage=True) == 30
    served(SERVERS)
    assert lasts(clock, outage=True) == patience.OUTAGE_S
    assert lasts(clock, outage=False) == 30
    assert lasts(clock, outage=True, at_first_s=0) == patience.OUTAGE_S
    with in_a_hurry():
        assert lasts(clock, outage=True) == 30
    assert (patience_s(SERVERS, 60), patience_s("nobody:9092", 60)) == (patience.OUTAGE_S, 60)


def test_after_an_outage_errors_of_another_kind_have_their_time(clock: Clock) -> None:
    served(SERVERS)
    wait = Wait(SERVERS)
    clock.now += 100
    assert wait.goes_on(True, "No answer.")
    clock.now += 29
    assert wait.goes_on(False, "The topic is not known.")
    clock.now += 1
    assert not wait.goes_on(False, "The topic is not known.")


def test_who_waits_for_long_says_so_once(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    served(SERVERS)
    lasts(clock, outage=True)
    assert [record.getMessage() for record in caplog.records] == [
        "No answer. It is asked again, for 5 minutes at most."
    ]
