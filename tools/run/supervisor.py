"""Keeps one job running: starts its driver, finds out how it ended, and what is done about it."""

from __future__ import annotations

import logging
import signal
import time
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from ..control import words
from ..shared.command_line import duration
from .driver import Driver
from .guard import UNWATCHED
from .orders import Order, Orders
from .policy import GiveUp, Restarts
from .status import Status
from .verdict import KILLED, OurError, Way, judge, signal_name, to_do

LOOK_S = 0.1
STOP_S = 30.0  # for what comes after the last batch: Spark's own end
LEFT_S = 5.0  # for what a dead driver left; the next start ends what that has open
# For what a driver left that is not started again: sinks/protocol/after_driver.py ends what it has
# open, and waits for 30 s for Spark to be shut down.
LAST_S = 45.0
LOST_S = 5.0  # for a driver whose supervisor has lost the job: another one is started elsewhere
AGAIN_S = 1.0  # from the first SIGTERM to the second, which stops the query in its batch
REPLACED_S = 12.0  # within which a supervisor that was replaced hears of it
SUPERSEDED_MAX = 3  # times in a row that the driver of the elected supervisor gives way to another

LEFT_OPEN = (
    "What a driver that died has open stays open until the next start or its timeout: "
    "'eo-kafka txn list' shows it."
)
OTHER_LIVES = (
    "The driver of another supervisor, which had the job before, may still live: what is asked for "
    "is done when it must have ended, within half a minute."
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
    CANCELLED = 6


class Supervisor:
    """Of one job. `start` starts its driver. All runs in the calling thread but `view`, which any
    thread may ask."""

    def __init__(
        self,
        start: Callable[[], Driver],
        restarts: Restarts,
        grace_s: float,
        stuck_after_s: float,
        orders: Orders | None = None,
    ) -> None:
        self._start = start
        self._restarts = restarts
        self._grace_s = grace_s
        self._stuck_after_s = stuck_after_s
        self._orders = orders or Orders()
        self._asked: list[int] = []  # signals
        self._driver: Driver | None = None
        self._runs = self._superseded = 0
        self._phase = "starting"
        self._how = ""  # the last driver ended, for who asked for it
        self._why = ""  # this ends, for who looks at the job
        self._was_stuck = False

    def obey(self, orders: Orders) -> None:
        """Those, from the first run on."""
        self._orders = orders

    @property
    def is_asked(self) -> bool:
        """Whether it was asked to end."""
        return bool(self._asked)

    def ask_to_end(self, number: int, _frame: object = None) -> None:
        """A signal's handler: takes no lock. The second one stops the job in its batch."""
        self._asked.append(number)

    def run(self) -> ExitCode:
        """Until the job has ended, must not be started again, or was asked to end."""
        try:
            while not self._asked:
                order = self._orders.look()
                if order is Order.STAND_BY:
                    self._wait_in("standby", "Standing by until this supervisor is given the job.")
                elif order is Order.WAIT:
                    self._wait_in("waiting", OTHER_LIVES, OTHER_LIVES)
                elif order is Order.SUSPEND:
                    self._stay_suspended()
                elif order is Order.CANCEL:
                    return self._cancelled()
                elif (final := self._one_run()) is not None:
                    return final
            return self._ended_while_waiting()
        finally:
            self._orders.phase("ended", self._why)
            self._orders.close()

    def _wait_in(self, phase: str, told: str, said: str = "") -> None:
        if self._phase != phase:
            log.warning("%s", told)
            self._phase = phase
            self._orders.phase(phase, said)
        time.sleep(LOOK_S)

    def _stay_suspended(self) -> None:
        told = f"The job is suspended ({self._orders.why()}): no driver is started until "
        self._wait_in("suspended", f"{told}'eo-kafka job resume'.")
        if self._orders.pending:
            self._orders.obeyed("suspended", f"Suspended. {self._how}".strip())

    def _cancelled(self) -> ExitCode:
        why = self._orders.why()
        log.warning("The job is cancelled (%s). 'eo-kafka job resume' lets it start again.", why)
        self._orders.obeyed("cancelled", f"Cancelled. {self._how}".strip())
        return ExitCode.CANCELLED

    def _one_run(self) -> ExitCode | None:
        """Start a driver, and see to its end. None: go on as is asked for then. Raises
        EnvironmentRefused."""
        self._orders.check_start()
        if self._orders.pending:
            self._orders.obeyed("starting", f"{self._how} Its driver is started.".strip())
        self._runs += 1
        began_s = time.monotonic()
        try:
            driver = self._driver = self._start()
        except OSError as error:  # no memory, no process: as if it had died
            log.warning("Driver could not be started: %s.", error.strerror)
            return self._restart(0.0, None, f"it could not be started: {error.strerror}")
        try:
            log.info("Driver started: run %d, process %d.", self._runs, driver.pid)
            self._phase, self._how = "running", ""
            self._orders.phase("running")
            code, order = self._until_it_ends(driver)
            ran_s = time.monotonic() - began_s
            self._phase = "ending"
            is_ended = code is not None and code >= 0  # else nobody waits for what lives on
            is_last = bool(self._asked) or code == 0 or order.is_asked
            driver.await_empty((LAST_S if is_last else LEFT_S) if is_ended else 0.0)
            final = self._after(driver, code, ran_s, order)
            if final is not None and is_ended and not is_last:
                driver.await_empty(LAST_S - LEFT_S)
        finally:
            driver.kill()
        return final

    def _until_it_ends(self, driver: Driver) -> tuple[int | None, Order]:
        """Its exit code; None if it does not end although it should. And what it was ended for."""
        answered, deadline, ending, again = 0, None, Order.GO, None
        while (code := driver.exit_code) is None:
            now, status, order = time.monotonic(), driver.status, self._orders.look()
            if len(self._asked) > answered:
                answered = len(self._asked)
                grace = self._grace_s if answered == 1 else 0.0
                deadline = now + grace + STOP_S
                self._phase = "ending"
                log.info(
                    "Asked to end by %s: its batch has %s for that.",
                    signal_name(self._asked[-1]),
                    duration(grace),
                )
                driver.ask_to_end()
            elif order is Order.STAND_BY and ending is not order:
                ending, deadline, again = order, now + LOST_S, now + AGAIN_S
                log.warning(
                    "The job was given to another supervisor, or Kafka does not answer, or the "
                    "control topic is gone."
                )
                driver.ask_to_end()
            elif order.is_asked and ending is Order.GO and not self._asked:
                if self._orders.may_obey():
                    ending, deadline = order, now + self._grace_s + STOP_S
                    self._end_for(order, driver)
            elif status is not None and status.ended and deadline is None:
                deadline = now + STOP_S
            if again is not None and now > again:
                again = None
                driver.ask_to_end()
            if order is Order.GO and self._orders.pending:
                self._orders.obeyed("running", "It runs.")
            if deadline is not None and now > deadline:
                return None, ending
            self._tell_if_stuck(status, now)
            driver.wait(LOOK_S)
        return code, ending

    def _end_for(self, order: Order, driver: Driver) -> None:
        self._phase = "ending"
        grace = duration(self._grace_s)
        log.info(
            "Asked to %s (%s): its batch has %s for that.", order.value, self._orders.why(), grace
        )
        self._orders.phase("ending", f"its batch has {grace} to end")
        driver.ask_to_end()

    def _after(
        self, driver: Driver, code: int | None, ran_s: float, order: Order
    ) -> ExitCode | None:
        """What is done. None: it is to be started again, and was waited for, or `order` holds."""
        status = driver.status
        if code is None and status is not None and status.ended:
            code = 0 if status.error is None else 1  # its query has ended, only Spark has not
        is_lost = order is Order.STAND_BY or (code == UNWATCHED and self._is_replaced())
        if is_lost and not self._asked:
            log.warning("Driver ended after %s: this supervisor has lost the job.", duration(ran_s))
            return None
        if code is None:
            log.error("Driver does not end: it is killed. %s", LEFT_OPEN)
            self._how = f"Its driver did not end, and was killed. {LEFT_OPEN}"
            return None if order.is_asked else ExitCode.BY_FORCE
        ending = judge(code, status, driver.stderr())
        level = logging.INFO if ending.in_order else logging.WARNING
        log.log(level, "Driver ended after %s: %s.", duration(ran_s), ending.told)
        if (final := self._after_error(ending.error, ran_s)) is not None:
            return final
        if order.is_asked:
            in_order = ending.in_order or self._died_when_asked(code) is ExitCode.IN_ORDER
            self._how = "Its driver has ended in order." if in_order else f"It died. {LEFT_OPEN}"
            return None
        if ending.in_order or self._asked:
            return ExitCode.IN_ORDER if ending.in_order else self._died_when_asked(code)
        return self._restart(ran_s, driver, ending.told)

    def _after_error(self, error: OurError | None, ran_s: float) -> ExitCode | None:
        """None: another start would do."""
        if error is None or self._restarts.was_healthy(ran_s):
            self._superseded = 0
        if error is None:
            return None
        # By the driver of a supervisor that has lost its place: that one ends, too.
        was_superseded = error.way is Way.SUPERSEDED and self._orders.elected
        self._superseded = self._superseded + 1 if was_superseded else 0
        is_passing = was_superseded and self._superseded <= SUPERSEDED_MAX
        if error.way is Way.RESTART or is_passing or self._is_replaced():
            log.warning("%s: %s", error.name, error.said)
            return None
        self._why = f"{error.name}: {error.said}"
        log.error("%s", self._why)
        log.error("It is %s. %s", error.way.value, to_do(error.name))
        return ExitCode.PERSON if error.way is Way.PERSON else ExitCode.SUPERSEDED

    def _is_replaced(self) -> bool:
        """Whether it turns out that another supervisor has the job, so that the error of a driver
        that was in its way needs nobody."""
        deadline = time.monotonic() + REPLACED_S
        while self._orders.elected and not self._asked and time.monotonic() < deadline:
            if self._orders.look() is Order.STAND_BY:
                return True
            time.sleep(LOOK_S)
        return False

    @staticmethod
    def _died_when_asked(code: int) -> ExitCode:
        """A program without a handler ends by the signal; what it has open is ended then."""
        by_signal = code in (KILLED + signal.SIGTERM, KILLED + signal.SIGINT)
        return ExitCode.IN_ORDER if by_signal else ExitCode.BY_FORCE

    def _restart(self, ran_s: float, driver: Driver | None, how: str) -> ExitCode | None:
        found = self._restarts.failed(time.monotonic(), ran_s)
        if isinstance(found, GiveUp):
            self._why = f"Gave up. {found.why}"
            log.error("%s %s", self._why, LEFT_OPEN)
            return ExitCode.GAVE_UP
        again = f"It is started again in {duration(found.seconds)}."
        log.info("%s", again)
        if driver is not None:
            driver.kill()
        self._phase = "waiting"
        ended = f"{words.DRIVER_ENDED} after {duration(ran_s)}: {how}."
        self._orders.phase("waiting", f"{ended} {again}")
        deadline = time.monotonic() + found.seconds
        while not self._asked and (left := deadline - time.monotonic()) > 0:
            if self._orders.look() is not Order.GO:
                break
            time.sleep(min(LOOK_S, left))
        return None

    def _ended_while_waiting(self) -> ExitCode:
        if self._phase == "waiting":
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
