"""What a supervisor is to do, as it asks all the time: without a control topic, to go on."""

from __future__ import annotations

from enum import Enum


class Order(Enum):
    """What holds now."""

    GO = "go"
    STAND_BY = "stand by"  # another supervisor has the job
    WAIT = "wait"  # for the end of the driver of one that had it, before what is asked is done
    SUSPEND = "suspend"
    RESTART = "restart"
    CANCEL = "cancel"

    @property
    def is_asked(self) -> bool:
        """Whether a person asked for it."""
        return self in (Order.SUSPEND, Order.RESTART, Order.CANCEL)


class Orders:
    """Nobody asks for anything."""

    elected = False  # whether supervisors of the job are elected at all

    @property
    def pending(self) -> bool:
        """Whether somebody waits for an answer."""
        return False

    def look(self) -> Order:
        """What holds now. Called ten times a second."""
        return Order.GO

    def check_start(self) -> None:
        """Before a driver is started. Raises EnvironmentRefused if it may not be."""

    def why(self) -> str:
        """Who asked for what holds, and when."""
        return ""

    def may_obey(self) -> bool:
        """Before the driver is ended for an order; if not, who asked was told why."""
        return True

    def phase(self, phase: str, said: str = "") -> None:
        """Tell how it is."""

    def obeyed(self, phase: str, said: str) -> None:
        """Answer who waits: it is done. What is to be exported is, before; the driver has ended."""

    def close(self) -> None:
        """The supervisor ends."""
