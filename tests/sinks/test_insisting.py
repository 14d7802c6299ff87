"""What is tried again after an outage: the time that work took before it says nothing of one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eo_kafka.errors import OutcomeUnknown, ReadTimeout
from eo_kafka.sinks import insisting as module
from eo_kafka.sinks.insisting import insisting
from eo_kafka.sources.queues import receiver
from eo_kafka.sources.queues.receiver import Receiver, _Counts


class Clock:
    """`time`, as far as who insists asks it."""

    now = 1.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for one in (module, receiver):
        monkeypatch.setattr(one, "time", made)
    return made


@pytest.mark.parametrize("work_s", [0, 90, 1000])
def test_a_long_statement_that_an_outage_ends_is_tried_again(clock: Clock, work_s: int) -> None:
    tried: list[float] = []

    def do() -> None:
        tried.append(clock.now)
        if len(tried) == 1:
            clock.now += work_s
            raise ReadTimeout("terminating connection due to administrator command")

    insisting(do, 7, "table 'x'", (ReadTimeout,), 0.2)
    assert len(tried) == 2


@pytest.mark.parametrize(("each_s", "most"), [(0, 302), (45, 3), (90, 2)])
def test_an_outage_is_waited_for_no_longer_than_it_was(
    clock: Clock, each_s: int, most: int
) -> None:
    tried: list[float] = []

    def do() -> None:
        tried.append(clock.now)
        clock.now += each_s
        raise ReadTimeout("nobody there")

    with pytest.raises(OutcomeUnknown, match="Batch 7 is decided"):
        insisting(do, 7, "table 'x'", (ReadTimeout,), 0.2)
    assert len(tried) <= most
    assert tried[-1] - each_s <= 1 + module.APPLY_TIMEOUT_S + 0.2


@pytest.mark.parametrize(("kept", "tries"), [(0, 4), (5, 5)])
def test_a_queue_is_waited_for_since_the_last_message_that_was_kept(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, kept: int, tries: int
) -> None:
    """Each attempt works for minutes; the first ones keep what they have taken."""
    seen: list[float] = []
    one = Receiver.__new__(Receiver)
    options: Any = SimpleNamespace(patience_s=100, place="rabbit:5672", queue="q", window=1)
    one._options = options
    one._queue = one._inbox = None

    def received(all_there: bool, counts: _Counts) -> int:
        seen.append(clock.now)
        clock.now += 40
        if len(seen) < 3:
            counts.taken += kept
        raise ReadTimeout("Connection reset")

    told: Any = SimpleNamespace(served=0)
    monkeypatch.setattr(one, "_received", received)
    monkeypatch.setattr(receiver, "served", lambda _: setattr(told, "served", told.served + 1))
    with pytest.raises(ReadTimeout):
        one.receive(all_there=True)
    assert len(seen) == tries
    assert told.served == (2 if kept else 0)
