"""Compiles slow loops in the background; until then a worker uses the plain ones.

Loops that take seconds to compile, once a machine. Runs on executors.

Only where there is another way to the same result meanwhile, and only in a worker that Spark keeps
for later tasks: any other process may end with its first task, and would never have a loop.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Callable

from . import librdkafka

log = logging.getLogger(__name__)

WAIT_S = 1.0  # which is enough where they are in the cache
_started: dict[tuple[int, Callable[[], None]], _WarmUp] = {}
_lock = threading.Lock()


def is_ready(warm_up: Callable[[], None]) -> bool:
    """Whether `warm_up` has been run in this process, which compiles what is used afterwards. It is
    begun by the first call; that one waits for it, for up to `WAIT_S` where it may go on in the
    background. Never, with a warning once, where loops cannot be used at all."""
    reason = librdkafka.available()
    if reason is not None:
        _warn(reason)
        return False
    key = (os.getpid(), warm_up)  # a forked child has no threads
    with _lock:
        found = _started.get(key)
        is_first = found is None
        if found is None:
            found = _started[key] = _WarmUp(warm_up)
    if is_first:
        found.start()
        found.join(WAIT_S if os.environ.get("SPARK_REUSE_WORKER") else None)
        if not found.is_done:
            log.info("Values are decoded one by one until the loops for them are compiled.")
    return found.is_done


@functools.cache
def _warn(reason: str) -> None:
    log.warning("Values are decoded one by one, several times slower than possible: %s.", reason)


class _WarmUp(threading.Thread):
    """Not a daemon: a process that ends waits for it, as LLVM does not like to be cut off."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(name="eo-kafka-warm-up")
        self._work = work
        self.is_done = False

    def run(self) -> None:
        try:
            self._work()
            self.is_done = True
        except Exception as error:
            _warn(f"loops cannot be compiled ({error})")
