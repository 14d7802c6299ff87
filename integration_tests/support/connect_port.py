"""Spark's own server of Spark Connect, which `spark-pipelines` starts, too: always port 15002."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def connect_port() -> Iterator[None]:
    """One at a time on this machine: another would end at once, as the port is taken."""
    with Path(tempfile.gettempdir(), "eo-kafka-tests-15002.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
