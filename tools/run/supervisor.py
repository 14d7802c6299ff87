"""Keeps one job running: starts its driver, finds out how it ended, and what is done about it."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ..shared.command_line import duration
from .driver import Driver
from .policy import GiveUp, Restarts
from .status import Status
from .verdict import KILLED, OurError, Way, error_of_script, to_do

LOOK_S = 0.1
STOP_S = 30.0  # for what comes after the last batch: Spark's own end
LEFT_S = 5.0  # for what a dead driver left; the next start ends what that has open
# For what a driver left that is not started again: sinks/protocol/after_driver.py ends what it has
# open, and waits for 30 s for Spark to be shut down.
LAST_S = 45.0

LEFT_OPEN = (
    "What a driver that died has open stays open until the next start or its timeout: "
    "'eo-kafka txn list' shows it."
)

log = logging.getLogger(__name__)


class ExitCode(IntEnum):
    """Of `eo-kafka run`; 2 is wrong usage."""

    IN_ORDER = 0
    GAVE_UP = 1
    USAGE = 2
    PERSON = 3
    SUPERSEDED = 4
    BY_FORCE = 5


@dataclass(frozen=True)
class Ending:
    """How a driver ended. `error`: one of ours."""

    told: str
    in_order: bool = False
    error: OurError | None = None


def judge(code: int, status: Status | None, stderr: str) -> Ending:
    """By its exit code, by what a driver program of ours told, or what any other one wrote."""
    if code < 0:
        return Ending(f"its guard was killed by {_signal(-code)}")
    told = f"it was killed by {_signal(code - KILLED)}" if code > KILLED else f"exit code {code}"
    if status is None:
        return Ending(told, code == 0, error_of_script(code, stderr))
    if status.error is not None:
        return Ending(told, error=OurError(status.error, status.said))
    if status.ended and code == 0:
        return Ending("its query has ended", in_order=True)
    if code == 0:
        return Ending("exit code 0 before its query had ended")
    return Ending(told)


class Supervisor:
    """Of one job. `start` starts its driver. All runs in the calling thread but `view`, which any
    thread may ask."""

    def __init__(
        self,
        start: Callable[[], Driver],
        restarts: Restarts,
        grace_s: float,
        stuck_after_s: float,
    ) -> None:
        self._start = start
        self._restarts = restarts
        self._grace_s = grace_s
        self._stuck_after_s = stuck_after_s
        self._asked: list[int] = []  # signals
        self._driver: Driver | None = None
        self._runs = 0
        self._phase = "starting"
        self._was_stuck = False

    def ask_to_end(self, number: int, _frame: object = None) -> None:
        """A signal's handler: takes no lock. The second one stops the job in its batch."""
        self._asked.append(number)

    def run(self) -> ExitCode:
        """Until the job has ended, must not be started again, or was asked to end."""
        while not self._asked:
            self._runs += 1
            began_s = time.monotonic()
            try:
                driver = self._driver = self._start()
            except OSError as error:  # no memory, no process: as if it had died
                log.warning("Driver could not be started: %s.", error.strerror)
                if (final := self._restart(0.0, None)) is not None:
                    return final
                continue
            try:
                log.info("Driver started: run %d, process %d.", self._runs, driver.pid)
                self._phase = "running"
                code = self._until_it_ends(driver)
                ran_s = time.monotonic() - began_s
                self._phase = "ending"
                is_ended = code is not None and code >= 0  # else nobody waits for what lives on
                is_last = bool(self._asked) or code == 0
                driver.await_empty((LAST_S if is_last else LEFT_S) if is_ended else 0.0)
                final = self._after(driver, code, ran_s)
                if final is not None and is_ended and not is_last:
                    driver.await_empty(LAST_S - LEFT_S)
            finally:
                driver.kill()
            if final is not None:
                return final
        return self._ended_while_waiting()

    def _until_it_ends(self, driver: Driver) -> int | None:
        """Its exit code; None if it does not end although it should."""
        answered, deadline = 0, None
        while (code := driver.exit_code) is None:
            now = time.monotonic()
            status = driver.status
            if len(self._asked) > answered:
                answered = len(self._asked)
                grace = self._grace_s if answered == 1 else 0.0
                deadline = now + grace + STOP_S
                self._phase = "ending"
                log.info(
                    "Asked to end by %s: its batch has %s for that.",
                    _signal(self._asked[-1]),
                    duration(grace),
                )
                driver.ask_to_end()
            elif status is not None and status.ended and deadline is None:
                deadline = now + STOP_S
            if deadline is not None and now > deadline:
                return None
            self._tell_if_stuck(status, now)
            driver.wait(LOOK_S)
        return code

    def _after(self, driver: Driver, code: int | None, ran_s: float) -> ExitCode | None:
        """What is done; None: it was waited for, and is to be started again."""
        status = driver.status
        if code is None and status is not None and status.ended:
            code = 0 if status.error is None else 1  # its query has ended, only Spark has not
        if code is None:
            log.error("Driver does not end: it is killed. %s", LEFT_OPEN)
            return ExitCode.BY_FORCE
        ending = judge(code, status, driver.stderr())
        way = ending.error.way if ending.error else Way.RESTART
        level = logging.INFO if ending.in_order else logging.WARNING
        log.log(level, "Driver ended after %s: %s.", duration(ran_s), ending.told)
        if ending.error and way is not Way.RESTART:
            log.error("%s: %s", ending.error.name, ending.error.said)
            log.error("It is %s. %s", way.value, to_do(ending.error.name))
            return ExitCode.PERSON if way is Way.PERSON else ExitCode.SUPERSEDED
        if ending.error:
            log.warning("%s: %s", ending.error.name, ending.error.said)
        if ending.in_order:
            return ExitCode.IN_ORDER
        if self._asked:
            return self._died_when_asked(code)
        return self._restart(ran_s, driver)

    @staticmethod
    def _died_when_asked(code: int) -> ExitCode:
        """A program without a handler ends by the signal; what it has open is ended then."""
        by_signal = code in (KILLED + signal.SIGTERM, KILLED + signal.SIGINT)
        return ExitCode.IN_ORDER if by_signal else ExitCode.BY_FORCE

    def _restart(self, ran_s: float, driver: Driver | None) -> ExitCode | None:
        found = self._restarts.failed(time.monotonic(), ran_s)
        if isinstance(found, GiveUp):
            log.error("Gave up. %s %s", found.why, LEFT_OPEN)
            return ExitCode.GAVE_UP
        log.info("It is started again in %s.", duration(found.seconds))
        if driver is not None:
            driver.kill()
        self._phase = "waiting"
        deadline = time.monotonic() + found.seconds
        while not self._asked and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left))
        return None

    def _ended_while_waiting(self) -> ExitCode:
        if self._runs:
            log.warning("Asked to end while no driver runs. %s", LEFT_OPEN)
        return ExitCode.IN_ORDER

    def _tell_if_stuck(self, status: Status | None, now: float) -> None:
        stuck = status is not None and status.stuck_for_s(now) > self._stuck_after_s
        if stuck and not self._was_stuck:
            log.warning(
                "Stuck: no batch has ended for %s, and there is something to do.",
                duration(self._stuck_after_s),
            )
        self._was_stuck = stuck

    def view(self) -> dict[str, Any]:
        """What /live and /ready tell."""
        driver, phase = self._driver, self._phase
        status = driver.status if driver is not None and phase == "running" else None
        shown: dict[str, Any] = {"phase": phase, "restarts": max(0, self._runs - 1)}
        if status is None:
            known = "only whether the driver's process runs, and restarts: it is a script"
            if phase == "running":
                return {**shown, "live": True, "ready": True, "stuck": None, "known": known}
            return {**shown, "live": True, "ready": False, "stuck": None}
        stuck = status.stuck_for_s(time.monotonic()) > self._stuck_after_s
        runs = status.query is not None and not status.ended
        shown |= {"query": status.query, "batch": status.batch, "stuck": stuck}
        return {**shown, "live": not stuck, "ready": runs and not stuck}


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
