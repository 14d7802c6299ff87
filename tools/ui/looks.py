"""Questions to a cluster that are asked once for all who want to know, and their newest answers.

Who asks waits for a moment, and is then given what is known and how old that is: a broker that is
silent holds up no page.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ...core.errors import EoKafkaError, cut

T = TypeVar("T")
WAIT_S = 1.5
REST = 3  # so many times as long as an answer took, nobody asks again
REST_MAX_S = 6.0  # a broker that was silent for long is asked soon whether it is back
LATE_S = 10.0  # an answer that is older is told to be old
KEPT = 64
TOO_MANY = "Kafka was not asked: too many other questions wait. Look again."

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Seen(Generic[T]):
    """What is known. `value` None: nothing yet. `at_s`: since 1970, when it was looked for; what
    happened later is not in it. `problem`: why the newest look for it failed."""

    value: T | None = None
    at_s: float | None = None
    problem: str = ""
    is_asked: bool = False

    def age_s(self, now_s: float) -> float:
        """How old it is; 0 if nothing is known."""
        return 0.0 if self.at_s is None else max(0.0, now_s - self.at_s)

    def is_late(self, now_s: float) -> bool:
        """Whether nobody may take it for what is so now."""
        return bool(self.problem) or self.age_s(now_s) > LATE_S


class Lane:
    """Questions of one kind: one is asked at a time, the others wait without a thread of theirs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_at_work = False

    def add(self, ask: Callable[[], None]) -> None:
        """It is asked when those before it have been."""
        with self._lock:
            self._waiting.append(ask)
            if self._is_at_work:
                return
            self._is_at_work = True
        threading.Thread(target=self._work, name="eo-kafka-ui-look", daemon=True).start()

    def remove(self, ask: Callable[[], None]) -> None:
        """It is not asked any more, unless that goes on."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(ask)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._is_at_work = False
                    return
                ask = self._waiting.popleft()
            ask()


class Look(Generic[T]):
    """One question. `lane`: of those that share it, one is asked at a time."""

    def __init__(self, ask: Callable[[], T], fresh_s: float, lane: Lane) -> None:
        self._ask, self._fresh_s, self._lane = ask, fresh_s, lane
        self._has_ended = False
        self._changed = threading.Condition()
        self._seen: Seen[T] = Seen()
        self._again = 0.0  # on the monotonic clock: when it may be asked again

    def start(self) -> None:
        """Ask, unless that is going on or the answer is new enough."""
        with self._changed:
            if self._has_ended or self._seen.is_asked or time.monotonic() < self._again:
                return
            self._set(is_asked=True)
            self._lane.add(self._look)

    def end(self) -> None:
        """Others are asked instead: who waits for it, waits no longer."""
        with self._changed:
            self._has_ended = True
            self._lane.remove(self._look)
            self._set(problem=TOO_MANY, is_asked=False)
            self._changed.notify_all()

    def forget(self) -> None:
        """Something was changed: the next who wants to know has it asked again."""
        with self._changed:
            self._again = 0.0

    def wait(self, until: float) -> Seen[T]:
        """The newest answer; waits for one that is asked for until then, on the monotonic clock."""
        with self._changed:
            while self._seen.is_asked and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
            return self._seen

    def _look(self) -> None:
        at_s, began = time.time(), time.monotonic()
        value, problem = None, ""
        try:
            value = self._ask()
        except EoKafkaError as error:
            problem = str(error)
        except Exception as error:  # of a client; what it says has no setting in it
            log.info("A look at the cluster failed.", exc_info=True)
            problem = f"Kafka was asked and did not answer ({type(error).__name__}: "
            problem += f"{cut(error)})."
        with self._changed:
            now = time.monotonic()
            rest_s = min(REST * (now - began), max(REST_MAX_S, self._fresh_s))
            self._again = max(began + self._fresh_s, now + rest_s)
            if problem:
                self._set(problem=problem, is_asked=False)
            else:
                self._seen = Seen(value, at_s)
            self._changed.notify_all()

    def _set(self, *, is_asked: bool, problem: str | None = None) -> None:
        before = self._seen
        told = before.problem if problem is None else problem
        self._seen = Seen(before.value, before.at_s, told, is_asked)


@dataclass
class Looks:
    """All questions, by kind and name; the ones that nobody asked for longest are forgotten."""

    kept: OrderedDict[tuple[str, str], Look[Any]] = field(default_factory=OrderedDict)
    lanes: dict[str, Lane] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, kind: str, name: str, ask: Callable[[], T], fresh_s: float) -> Look[T]:
        """The question of this kind about this name."""
        with self.lock:
            if (kind, name) not in self.kept:
                lane = self.lanes.setdefault(kind, Lane())
                self.kept[kind, name] = Look(ask, fresh_s, lane)
                while len(self.kept) > KEPT:
                    self.kept.popitem(last=False)[1].end()
            self.kept.move_to_end((kind, name))
            return self.kept[kind, name]

    def forget(self) -> None:
        """All are asked again when somebody wants to know."""
        with self.lock:
            for one in self.kept.values():
                one.forget()


def all_of(looks: Iterable[Look[Any]], wait_s: float = WAIT_S) -> list[Seen[Any]]:
    """The answers to all of them, which are asked at the same time."""
    wanted = list(looks)
    for one in wanted:
        one.start()
    until = time.monotonic() + wait_s
    return [one.wait(until) for one in wanted]
