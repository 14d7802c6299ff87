"""Remembers what the schema numbers in values mean, and asks the registry no more than it must.

Whatever is in a value's first bytes may be the number of a schema: only the registry knows that it
is none. So bytes of another application cost a question each, and a topic has many of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from .registry import UnknownSchema

log = logging.getLogger(__name__)

T = TypeVar("T")
_ASK_AGAIN_S = 5.0  # for a number that the registry did not know
MANY = 100  # such numbers: from then on they are asked for more slowly
PAUSE_S = 0.02  # between two questions, then


class SchemaNumbers(Generic[T]):
    """Of one task's column."""

    def __init__(self) -> None:
        self._known: dict[int, T] = {}
        self._unknown: dict[int, tuple[float, str]] = {}
        self._next = 0.0  # when the next question may be asked, where there were many
        self._told = False

    def get(self, number: int, ask: Callable[[int], T]) -> T:
        """What it means. Raises UnknownSchema, and what `ask` raises."""
        if number in self._known:
            return self._known[number]
        now, is_many = time.monotonic(), len(self._unknown) >= MANY
        asked, reason = self._unknown.get(number, (0.0, ""))
        # Whoever wrote the value has registered its schema before: a second look is for a registry
        # that was behind, and is not worth waiting for
        if reason and (now - asked < _ASK_AGAIN_S or (is_many and now < self._next)):
            raise UnknownSchema(reason)
        if is_many:
            self._slow_down(number, now)
        try:
            found = ask(number)
        except UnknownSchema as unknown:
            self._unknown[number] = (time.monotonic(), str(unknown))
            raise
        self._unknown.pop(number, None)
        self._known[number] = found
        return found

    def _slow_down(self, number: int, now: float) -> None:
        if not self._told:
            self._told = True
            log.warning(
                "Values of this task name more than %d schemas that the registry does not have "
                "(%d is the next number). Is another application's format in the topic? Each is a "
                "bad record. At most %.0f new numbers are asked for in a second now, so the task "
                "takes longer.",
                *(MANY, number, 1 / PAUSE_S),
            )
        time.sleep(max(0.0, min(PAUSE_S, self._next - now)))
        self._next = time.monotonic() + PAUSE_S
