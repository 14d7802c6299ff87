"""What a supervisor that was just elected does about a wish, while the driver of the one before it
may still live."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from eo_kafka.tools.control.words import Told, Wish
from eo_kafka.tools.run import control
from eo_kafka.tools.run.control import ControlledOrders
from eo_kafka.tools.run.orders import Order
from eo_kafka.tools.run.policy import Policy, Restarts
from eo_kafka.tools.run.supervisor import ExitCode, Supervisor

LIVES_S = 0.5


@dataclass
class _Seat:
    """A seat that this supervisor was given, and what stands in its topic."""

    wish: Wish | None
    told: Told | None
    job: str = "shout"
    host: str = "b"
    pid: int = 2
    holds: bool = True
    heard: list[Told] = field(default_factory=list)

    def look(self) -> None:
        pass

    def check_understood(self) -> None:
        pass

    def tell(self, told: Told) -> None:
        self.told = told
        self.heard.append(told)

    def close(self) -> None:
        pass


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When an export was made."""
    made: list[float] = []

    def export_last(*_: object) -> Any:
        made.append(time.monotonic())
        return SimpleNamespace(snapshot=SimpleNamespace(batch=41))

    monkeypatch.setattr(control, "DRIVER_GONE_S", LIVES_S, raising=False)
    monkeypatch.setattr(control, "export_last", export_last)
    return made


def _run(seat: _Seat) -> tuple[float, ExitCode]:
    """Until it has answered: when it was given the seat, and how it ended."""
    restarts = Restarts(Policy(), lambda: 0.5)
    orders = ControlledOrders(seat, {})  # type: ignore[arg-type]
    supervisor = Supervisor(lambda: pytest.fail("no driver"), restarts, 1, 600, orders)
    tell = seat.tell

    def told(one: Told) -> None:
        tell(one)
        if one.done:
            supervisor.ask_to_end(15)

    seat.tell = told  # type: ignore[method-assign]
    began = time.monotonic()
    return began, supervisor.run()


@pytest.mark.parametrize("phase", ["running", "starting", "ending", "waiting", "exporting"])
def test_nothing_is_exported_while_the_driver_of_another_supervisor_may_live(exported, phase):
    """It would write a batch that the export does not know, and a job started from it again."""
    wish = Wish("suspend", "ann@desk", snapshot="upgrade")
    seat = _Seat(wish, Told(phase, host="a", pid=1))
    began, code = _run(seat)
    assert code is ExitCode.IN_ORDER
    assert exported and exported[0] - began >= LIVES_S
    assert "another supervisor" in seat.heard[0].said and not seat.heard[0].done
    assert [one.ok for one in seat.heard if one.done][:1] == [True]


@pytest.mark.parametrize("do", ["suspend", "cancel"])
def test_a_job_is_not_called_ended_while_the_driver_of_another_supervisor_may_live(exported, do):
    seat = _Seat(Wish(do, "ann@desk"), Told("running", host="a", pid=1))
    began, _ = _run(seat)
    assert time.monotonic() - began >= LIVES_S and not exported
    assert next(one.stands for one in seat.heard if one.done) in ("suspended", "cancelled")


@pytest.mark.parametrize("told", [None, Told("suspended", host="a", pid=1), Told("ended")])
def test_where_no_other_driver_lives_a_wish_is_obeyed_at_once(exported, told, monkeypatch):
    monkeypatch.setattr(control, "DRIVER_GONE_S", 600.0, raising=False)
    _run(_Seat(Wish("suspend", "ann@desk", snapshot="upgrade"), told))
    assert len(exported) == 1


def test_a_driver_is_started_at_once_and_restarted_for_an_export_later(exported):
    """The ledger sees to two drivers. An export is of the last state of all."""
    seat = _Seat(Wish("restart", "ann@desk"), Told("running", host="a", pid=1))
    orders = ControlledOrders(seat, {})  # type: ignore[arg-type]
    assert orders.look() is Order.RESTART
    seat.wish = Wish("restart", "ann@desk", snapshot="upgrade")
    assert orders.look() is Order.WAIT
    seat.wish = None
    assert orders.look() is Order.GO


def test_a_supervisor_that_is_given_the_job_again_waits_again(exported):
    seat = _Seat(Wish("suspend", "ann@desk"), Told("running", host="a", pid=1))
    orders = ControlledOrders(seat, {})  # type: ignore[arg-type]
    assert orders.look() is Order.WAIT
    time.sleep(LIVES_S)
    assert orders.look() is Order.SUSPEND
    seat.holds = False
    assert orders.look() is Order.STAND_BY
    seat.holds = True
    assert orders.look() is Order.WAIT


def test_one_that_ends_while_it_waits_leaves_the_waiting_to_the_next(exported, monkeypatch):
    monkeypatch.setattr(control, "DRIVER_GONE_S", 600.0, raising=False)
    seat = _Seat(Wish("suspend", "ann@desk"), Told("running", host="a", pid=1))
    orders = ControlledOrders(seat, {})  # type: ignore[arg-type]
    supervisor = Supervisor(
        lambda: pytest.fail("no driver"), Restarts(Policy(), lambda: 0.5), 1, 600, orders
    )
    threading.Timer(0.5, supervisor.ask_to_end, (15,)).start()
    assert supervisor.run() is ExitCode.IN_ORDER
    assert "another supervisor" in seat.heard[-2].said
    assert ControlledOrders(seat, {}).look() is Order.WAIT  # type: ignore[arg-type]
