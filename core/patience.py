"""How long one waits for servers that do not answer: brokers, a database, a queue.

Who has not been served yet may have a wrong address, or may not reach the brokers behind it: that
is told soon. What stops answering afterwards is an outage, which is waited for: longer than
Spark's own connector does, and not for ever, as Spark cannot stop a query that waits for its sink.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from .process.driver_directory import is_seen, remember

log = logging.getLogger(__name__)

AT_FIRST_S = 30.0
OUTAGE_S = 300.0
TELL_AFTER_S = 30.0
_in_a_hurry: ContextVar[bool] = ContextVar("_in_a_hurry", default=False)


def served(servers: str) -> None:
    """Who is behind this name (a `bootstrap.servers`: the leaders and coordinators, too) has done
    what a batch needs. All processes that Spark starts on this machine for the application know."""
    remember(_name(servers))


def patience_s(servers: str, at_first_s: float = AT_FIRST_S) -> float:
    """For how many seconds to wait for an answer: `at_first_s` until they have `served`, and where
    one is `in_a_hurry`."""
    is_outage = is_seen(_name(servers)) and not _in_a_hurry.get()
    return OUTAGE_S if is_outage else at_first_s


@contextmanager
def in_a_hurry() -> Iterator[None]:
    """For what a later start does as well, and somebody waits for: a query that is stopped."""
    before = _in_a_hurry.set(True)
    try:
        yield
    finally:
        _in_a_hurry.reset(before)


class Wait:
    """What is asked again and again, and how long that makes sense. From its making on."""

    def __init__(self, servers: str, at_first_s: float = AT_FIRST_S) -> None:
        """`at_first_s`: also how long errors may go on that are none of an outage."""
        self._servers, self._at_first_s = servers, at_first_s
        self._began = self._away = time.monotonic()
        self._told = False

    def goes_on(self, is_outage: bool, problem: str) -> bool:
        """Whether to ask again after an attempt that failed; who waits for long is told why."""
        now = time.monotonic()
        longest_s = patience_s(self._servers, self._at_first_s)
        if is_outage:
            self._away = now
        elif now - self._away >= self._at_first_s:
            return False
        if now - self._began >= longest_s:
            return False
        if now - self._began > TELL_AFTER_S and not self._told:
            self._told = True
            log.warning("%s It is asked again, for %.0f minutes at most.", problem, longest_s / 60)
        return True


def _name(servers: str) -> str:
    return f"served by {servers}"
