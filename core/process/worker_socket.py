"""The socket between a Spark worker and the JVM: whether the JVM holds on to it, and no delays.

When the JVM's half of a task fails or is killed, it closes that socket and leaves the worker alone
(`BasePythonRunner` and `PythonWorker.stop` in Spark's core). Between two Arrow batches that looks
like the end of the rows: pyarrow takes both for the same.

TCP's delays cost 40 ms a task. JVM and worker write each other several small messages a task.
Nagle's algorithm holds back the second one until the first is acknowledged, and the receiver's
kernel puts that off for 40 ms. Unix sockets (Spark 4.1, spark.python.unix.domain.socket.enabled)
have no such timers. Over TCP, both sides can be helped from this one: TCP_NODELAY is for what it
sends; what the JVM sends is acknowledged at once while TCP_QUICKACK is set, which the kernel takes
back when something is sent (tcp(7), Linux only).
"""

from __future__ import annotations

import gc
import os
import select
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress

_mine: list[socket.socket] = []
# How a process that Spark starts for one task finds the JVM (pyspark/worker_util.py).
_PATH, _PORT = "PYTHON_WORKER_FACTORY_SOCK_PATH", "PYTHON_WORKER_FACTORY_PORT"
_QUICKACK = getattr(socket, "TCP_QUICKACK", None)


def speak_at_once() -> None:
    """For the rest of this worker's life. Called when a connector is imported; does nothing where
    there is no TCP connection to the JVM that is kept for later tasks."""
    found = _connection() if os.environ.get("SPARK_REUSE_WORKER") else None
    if found is None or found.family == getattr(socket, "AF_UNIX", None) or found in _mine:
        return
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _mine.append(found)
    gc.callbacks.append(_acknowledge_at_once)


def jvm_holds_on() -> bool:
    """In a task, when its rows have ended: whether that is their true end. Costs two calls of the
    kernel. True also where there is no JVM, or where it is not known."""
    found = _connection() or _of_one_task()
    if found is None:
        return True
    try:
        has_more = bool(select.select([found], [], [], 0)[0])
        return not has_more or bool(found.recv(1, socket.MSG_PEEK))
    except OSError:  # reset: it went with something unread
        return False


def _of_one_task() -> socket.socket | None:
    """The same of a process that Spark started for this task (`spark.python.use.daemon=false`)."""
    told = os.environ.get(_PATH) or os.environ.get(_PORT)
    for found in gc.get_objects() if told else ():
        if type(found) is socket.socket:
            with suppress(OSError):  # one that is not connected
                peer = found.getpeername()
                if told == (str(peer[1]) if isinstance(peer, tuple) else peer):
                    return found
    return None


def _connection() -> socket.socket | None:
    """What `worker` in pyspark/daemon.py, which called all this, speaks to the JVM over."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        found = frame.f_locals.get("sock") if frame.f_code.co_name == "worker" else None
        if isinstance(found, socket.socket):
            return found
    return None


def _acknowledge_at_once(phase: str, info: Mapping[str, int]) -> None:
    """After each task, when all is sent: pyspark/daemon.py runs a full garbage collection then."""
    if phase == "stop" and info["generation"] == 2 and _QUICKACK is not None:
        for connection in _mine:
            with suppress(OSError):  # closed: the worker is about to end
                connection.setsockopt(socket.IPPROTO_TCP, _QUICKACK, 1)
