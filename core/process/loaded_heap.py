"""Freezes loaded modules (gc.freeze) so that Spark's gc.collect() after each task skips them.

Spark's daemon makes a worker run a full collection after each task (`gc.collect()` in
pyspark/daemon.py). It looks at every object there is, and with pandas, Arrow and the compiled
loops' libraries these are some 150,000: 70 ms of CPU a task, each time to find that all is in use.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Mapping

_last: dict[str, int] = {}  # how many modules there were


def spare_in_worker() -> None:
    """From now on, each full collection that follows an import is the last to look at what it has
    found in use (`gc.freeze`). Called when a connector is imported; does nothing but in a worker
    that Spark keeps for later tasks.

    Only collections that Spark's daemon asks for count, for no task runs meanwhile: cycles of what
    is frozen are never freed, and a task has some, with connections in them.
    """
    if os.environ.get("SPARK_REUSE_WORKER") and _put_aside not in gc.callbacks:
        gc.callbacks.append(_put_aside)


def _put_aside(phase: str, info: Mapping[str, int]) -> None:
    if phase != "stop" or info["generation"] != 2:
        return
    caller = sys._getframe().f_back  # None: a thread of a library's
    if caller is None or caller.f_globals is not sys.modules["__main__"].__dict__:
        return  # not the daemon, the worker's program; functions of the user's are not in that
    if _last.get("modules") != len(sys.modules):
        _last["modules"] = len(sys.modules)
        gc.freeze()
