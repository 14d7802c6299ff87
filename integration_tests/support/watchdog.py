"""Ends a worker that hangs where pytest-timeout does not reach: after a test's timeout, in its
fixtures' ends. It says where each thread stands; pytest-xdist names the test, and goes on with
another worker.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

GRACE_S = 120.0  # after a test's own timeout
_EXIT_CODE = 70

_stderr = os.dup(sys.__stderr__.fileno()) if sys.__stderr__ else 2  # pytest takes 2 for itself


@contextmanager
def at_most(seconds: float, what: str) -> Iterator[None]:
    """What stands in the block must end within this time."""
    timer = threading.Timer(seconds, _end, (seconds, what))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(seconds: float, what: str) -> None:
    os.write(_stderr, f"\nNo end of {what} within {seconds:.0f} s. All threads:\n".encode())
    faulthandler.dump_traceback(_stderr)
    os._exit(_EXIT_CODE)
