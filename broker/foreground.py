"""What commands that run servers in the foreground share: watching and ending them."""

from __future__ import annotations

import argparse
import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn, Protocol

from .errors import BrokerError


class Server(Protocol):
    """A process that is watched."""

    @property
    def running(self) -> bool:
        """Whether it lives."""

    def epitaph(self) -> str:
        """A sentence about its end."""


class AskedToEnd(BaseException):
    """Raised by the signal handler, so that every `with` on the way out cleans up."""


def end_when_asked() -> None:
    """From now on, SIGTERM and Ctrl-C raise AskedToEnd."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ask_to_end)


def watch(servers: Sequence[Server]) -> NoReturn:
    """Come back only with an error: a server that ended without being asked to."""
    while True:
        for server in servers:
            if not server.running:
                raise BrokerError(server.epitaph())
        time.sleep(0.5)  # a signal's exception ends it at once


def port(text: str) -> int:
    """A port, or 0."""
    number = int(text)
    if not 0 <= number <= 65535:
        raise argparse.ArgumentTypeError("must be from 0 to 65535")
    return number


def small_number(text: str) -> int:
    """How many processes."""
    number = int(text)
    if not 1 <= number <= 9:
        raise argparse.ArgumentTypeError("must be from 1 to 9")
    return number


def _ask_to_end(_number: int, _frame: FrameType | None) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)  # once is enough; stopping is bounded
    raise AskedToEnd
