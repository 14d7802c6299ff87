"""Loops that take seconds to compile, once a machine: begun in the background, used once they are
there. Runs on executors.

Only where there is another way to the same result meanwhile, and only in a worker that Spark keeps
for later tasks: any other process may end with its first task, and would never have a loop.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)

WAIT_S = 1.0  # which is enough where they are in the cache
_started: dict[tuple[int, Callable[[], None]], _WarmUp] = {}
_lock = threading.Lock()


def is_ready(warm_up: Callable[[], None]) -> bool:
    """Whether `warm_up` has been run in this process, which compiles what is used afterwards. It is
    begun by the first call; that one waits for it, for up to `WAIT_S` where it may go on in the
    background."""
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
            log.info("decoding value by value until %s are compiled", warm_up.__module__)
    return found.is_done


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
            log.warning("decoding value by value: loops cannot be compiled: %s", error)
