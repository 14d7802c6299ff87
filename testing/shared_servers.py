"""Servers that all workers of one test run share: who needs one first starts it, and at the end
stays until nobody uses it any more.

Locks of files say who does; the kernel gives up those of a worker that has died.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import tempfile
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TypeVar

FOLDER = "EO_KAFKA_TESTS_FOLDER"  # of the run; workers inherit it
T = TypeVar("T")

_in_use: dict[str, int] = {}  # file descriptors whose locks say that this process is a user
_started = ExitStack()  # what this process has started


def name_folder() -> None:
    """In the process that starts the workers. It is made when the first server is."""
    name = f"eo-kafka-tests-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    os.environ[FOLDER] = str(Path(tempfile.gettempdir(), name))


def remove_folder() -> None:
    """In that process, when all workers have ended."""
    shutil.rmtree(os.environ.pop(FOLDER, ""), ignore_errors=True)


def address_of(
    name: str, server: Callable[[], AbstractContextManager[T]], address: Callable[[T], str]
) -> str:
    """Where the server of this name is reached, which is started if no worker has done so."""
    folder = Path(os.environ[FOLDER])
    folder.mkdir(mode=0o700, exist_ok=True)
    known = folder / name
    starting = os.open(folder / f"{name}.starting", os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(starting, fcntl.LOCK_EX)
        if name not in _in_use:
            _in_use[name] = os.open(folder / f"{name}.users", os.O_CREAT | os.O_RDWR)
            fcntl.flock(_in_use[name], fcntl.LOCK_SH)
        if not known.exists():
            running = server()
            known.write_text(address(running.__enter__()))
            _started.callback(_forget, known, _in_use[name])  # after it has stopped
            _started.push(running)
            _started.callback(_await_last_user, _in_use[name])  # before it is stopped
        return known.read_text()
    finally:
        os.close(starting)


def check(name: str) -> None:
    """Raise RuntimeError if the server of this name, `host:port`, has ended before its users."""
    known = Path(os.environ.get(FOLDER, os.devnull), name)
    if name in _in_use:
        host, _, port = known.read_text().rpartition(":")
        try:
            socket.create_connection((host, int(port)), 5).close()
        except OSError as error:
            raise RuntimeError(
                f"The server '{name}' at {host}:{port} that all workers share is gone ({error}): "
                "the worker that started it has ended, or look for its log above."
            ) from None


def leave() -> None:
    """At the end of a worker: what it has started ends when the others have left, too."""
    for users in _in_use.values():
        fcntl.flock(users, fcntl.LOCK_UN)
    _started.close()


def _forget(known: Path, users: int) -> None:
    """Whoever has waited meanwhile starts one anew: this process may live on."""
    known.unlink(missing_ok=True)
    fcntl.flock(users, fcntl.LOCK_UN)


def _await_last_user(users: int) -> None:
    fcntl.flock(users, fcntl.LOCK_EX)
