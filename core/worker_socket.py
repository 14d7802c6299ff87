"""Turns off TCP's delays (40 ms a task) between a Spark worker and the JVM.

Spark's JVM and its Python workers write each other several small messages a task. Nagle's algorithm
holds back the second one until the first is acknowledged, and the receiver's kernel puts that off
for 40 ms, so that a task takes at least as long. Unix sockets (Spark 4.1,
spark.python.unix.domain.socket.enabled) have no such timers. Over TCP, both sides can be helped
from this one: TCP_NODELAY is for what it sends; what the JVM sends is acknowledged at once while
TCP_QUICKACK is set, which the kernel takes back when something is sent (tcp(7), Linux only).
"""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress

_mine: list[socket.socket] = []
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
