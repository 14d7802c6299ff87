"""When a job that died is started again, and when not any more: a state machine without I/O.

The words are Flink's: a fixed delay, an exponential delay with jitter that begins anew after a
healthy time, a failure rate. Who asks tells the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...core.errors import OptionsError
from ...core.options import time_span_ms
from ..shared.command_line import duration

NONE, FIXED, EXPONENTIAL = "none", "fixed", "exponential"
DEFAULT = "exponential:1s..2m"
HOW = f"'{NONE}', '{FIXED}:10s' or '{DEFAULT},factor=2,jitter=0.1,healthy=10m'"


@dataclass(frozen=True)
class Policy:
    """Times are in seconds.

    A wait is `first_s`, then each time `factor` times as long up to `longest_s`, and up to the
    part `jitter` of it shorter or longer. After a run of `healthy_s` all begins anew.
    """

    restarts: bool = True
    first_s: float = 1.0
    longest_s: float = 120.0
    factor: float = 2.0
    jitter: float = 0.1
    healthy_s: float = 600.0
    failures: int | None = None  # so many, and it gives up
    within_s: float | None = None  # in so long; None: with no healthy run between them


@dataclass(frozen=True)
class Wait:
    """Start it again after `seconds`."""

    seconds: float


@dataclass(frozen=True)
class GiveUp:
    """Do not start it again. `why` is a sentence."""

    why: str


class Restarts:
    """What is to be done after each failure of one job.

    `chance` gives a number from 0 to 1, which places a wait within its jitter.
    """

    def __init__(self, policy: Policy, chance: Callable[[], float]) -> None:
        self._policy = policy
        self._chance = chance
        self._in_a_row = 0
        self._failed_s: list[float] = []  # when, as far back as it counts

    def was_healthy(self, ran_s: float) -> bool:
        """Whether all counts begin anew after a run of so long."""
        return ran_s >= self._policy.healthy_s

    def failed(self, now_s: float, ran_s: float) -> Wait | GiveUp:
        """The job died at `now_s`, by any clock that only goes forward, and had run for `ran_s`."""
        policy = self._policy
        if not policy.restarts:
            return GiveUp("With --restart none it is not started again.")
        if self.was_healthy(ran_s):
            self._in_a_row = 0
            if policy.within_s is None:
                self._failed_s.clear()
        self._failed_s.append(now_s)
        if policy.within_s is not None:
            self._failed_s = [one for one in self._failed_s if now_s - one < policy.within_s]
        if policy.failures is None:
            self._failed_s.clear()
        elif len(self._failed_s) >= policy.failures:
            return GiveUp(self._too_often(len(self._failed_s), policy.within_s))
        return Wait(self._next_wait())

    def _next_wait(self) -> float:
        policy = self._policy
        wait = policy.first_s
        for _ in range(self._in_a_row):
            wait = min(wait * policy.factor, policy.longest_s)
            if wait == policy.longest_s or policy.factor == 1:
                break
        self._in_a_row += 1
        return wait * (1 + policy.jitter * (2 * self._chance() - 1))

    @staticmethod
    def _too_often(times: int, within_s: float | None) -> str:
        if within_s is None:
            return f"It died {times} times without a healthy run between."
        return f"It died {times} times within {duration(within_s)}."


def parse(restart: str, give_up_after: str | None) -> Policy:
    """The policy that `--restart` and `--give-up-after` describe.

    Raises OptionsError with all that is wrong.
    """
    problems: list[str] = []
    found = {**_restart(restart, problems), **_give_up(give_up_after, problems)}
    if problems:
        raise OptionsError(problems)
    return Policy(**found)


def _restart(text: str, problems: list[str]) -> dict[str, Any]:
    kind, _, rest = text.strip().partition(":")
    times, *words = [part.strip() for part in rest.split(",")]
    if kind == NONE and not rest:
        return {"restarts": False}
    if kind not in (FIXED, EXPONENTIAL):
        problems.append(f"--restart takes {HOW}, and '{text}' is none of them.")
        return {}
    found: dict[str, Any] = {}
    if kind == FIXED:
        delay = seconds_of("--restart fixed", times, problems)
        found = {"first_s": delay, "longest_s": delay, "factor": 1.0, "jitter": 0.0}
    else:
        first, dots, longest = times.partition("..")
        if not dots:
            problems.append(
                f"--restart exponential takes the first and the longest wait, as in '{DEFAULT}'; "
                f"'{times}' has no '..'."
            )
        else:
            found["first_s"] = seconds_of("--restart's first wait", first, problems)
            found["longest_s"] = seconds_of("--restart's longest wait", longest, problems)
            if 0 < found["longest_s"] < found["first_s"]:
                problems.append(f"--restart's longest wait is shorter than its first: '{times}'.")
    known = ("healthy",) if kind == FIXED else ("factor", "jitter", "healthy")
    for word in words:
        found.update(_setting(word, known, problems))
    return found


def _setting(word: str, known: tuple[str, ...], problems: list[str]) -> dict[str, float]:
    name, _, value = word.partition("=")
    if name not in known:
        problems.append(f"--restart has {', '.join(known)}, and '{word}' is none of them.")
        return {}
    if name == "healthy":
        return {"healthy_s": seconds_of("--restart's healthy", value, problems)}
    least, most = (1.0, 100.0) if name == "factor" else (0.0, 1.0)
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not least <= number <= most:
        problems.append(
            f"--restart's {name} is a number from {least:g} to {most:g}, not '{value}'."
        )
    return {name: number}


def _give_up(text: str | None, problems: list[str]) -> dict[str, Any]:
    if text is None:
        return {}
    number, slash, within = (part.strip() for part in text.partition("/"))
    if not (number.isdecimal() and int(number) > 0):
        problems.append(
            "--give-up-after takes a number of failures, and the time within which they count: "
            f"'10/1h', or '10' in a row; not '{text}'."
        )
        return {}
    if not slash:
        return {"failures": int(number)}
    return {"failures": int(number), "within_s": seconds_of("--give-up-after", within, problems)}


def seconds_of(what: str, text: str, problems: list[str]) -> float:
    """The seconds of a time that must be more than 0. What is wrong with it goes to `problems`."""
    try:
        found = time_span_ms(text) / 1000
    except ValueError:
        found = 0.0
    if found <= 0:
        problems.append(f"{what} is a time such as '10s', '2m' or '1h', not '{text}'.")
    return found
