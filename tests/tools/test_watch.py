"""How `eo-kafka watch` fills a terminal, and how it ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
from ui_world import NOW, job

from eo_kafka.tools.jobs import report
from eo_kafka.tools.jobs.watch import _rows, _until_interrupted


def test_where_there_is_no_room_the_least_is_left_out():
    found = [job("a-job-with-a-name-of-its-own", said="me")]
    wide = report.listing(found, NOW)
    room = max(map(len, wide.splitlines()))
    assert report.listing(found, NOW, room) == wide
    for width, missing in ((room - 1, {"format"}), (80, {"format", "oldest", "snapshot"})):
        titles = report.listing(found, NOW, width).split("\n")[0].split()
        assert set(report.TITLES) - set(titles) == missing


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("", [""]),
        ("job    state  batch", ["job    state  batch"]),
        ("job    state  batch   written", ["job    state  batch "]),
        ("  No Kafka broker is reached.", ["  No Kafka broker is", "  reached."]),
    ],
)
def test_a_table_is_cut_and_a_sentence_goes_on_below(line: str, rows: list[str]) -> None:
    assert _rows(line, 20) == rows


@pytest.fixture
def _handler_of_pytest() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("_handler_of_pytest")
@pytest.mark.parametrize("what_a_library_makes_of_it", [None, TypeError("of the interrupt"), ...])
def test_an_interrupt_ends_it_whatever_a_library_makes_of_it(what_a_library_makes_of_it) -> None:
    looks = []

    def look() -> None:
        looks.append(1)
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            if isinstance(what_a_library_makes_of_it, Exception):
                raise what_a_library_makes_of_it from None
            if what_a_library_makes_of_it is None:
                raise

    assert (_until_interrupted(look, 60), len(looks)) == (0, 1)


def _came_to_an_interrupt_at(step: int) -> bool:
    """One run, interrupted at that step of what follows its first look; or else by its second."""
    looks: list[int] = []
    steps = 0

    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    def look() -> None:
        looks.append(1)
        if len(looks) > 1:
            interrupt()

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        steps += len(looks) == 1
        if steps == step:
            sys.settrace(None)
            interrupt()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        assert _until_interrupted(look, 0.001) == 0
    finally:
        sys.settrace(before)
    return steps == step


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("_handler_of_pytest")
def test_wherever_the_interrupt_comes_it_ends() -> None:
    """Also in the middle of what it waits with: a lock taken there is not free for the handler."""
    step = 1
    while _came_to_an_interrupt_at(step):
        step += 1
    assert step > 5


@pytest.mark.usefixtures("_handler_of_pytest")
def test_an_error_without_an_interrupt_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        _until_interrupted(lambda: 1 / 0, 60)
