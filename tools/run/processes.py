"""The living processes of a session, found and ended, without what PySpark does not install."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

LOOK_S = 0.05
PROC = Path("/proc")  # of Linux


def session(leader: int) -> list[int]:
    """The processes of a session that live: those of a driver, whatever groups they made."""
    found = []
    for pid in _pids():
        with suppress(OSError):
            if os.getsid(pid) == leader and not _is_zombie(pid):
                found.append(pid)
    return found


def await_empty(leader: int, seconds: float, but: Collection[int] = ()) -> bool:
    """Wait until nothing of the session lives; whether that was so within so many seconds."""
    deadline = time.monotonic() + seconds
    while [pid for pid in session(leader) if pid not in but]:
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True


def kill_all(leader: int, but: Collection[int] = ()) -> None:
    """SIGKILL; returns when nothing of the session lives."""
    while left := [pid for pid in session(leader) if pid not in but]:
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_S)


def reap() -> None:
    """Take the exit codes of what was left to this process: it is a container's first process, and
    nobody else would. No child of our own may be running."""
    if os.getpid() == 1:
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _pids() -> Iterator[int]:
    if PROC.is_dir():
        return (int(path.name) for path in PROC.iterdir() if path.name.isdecimal())
    told = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True, check=True)
    return map(int, told.stdout.split())


def _is_zombie(pid: int) -> bool:
    """Where there is no /proc, the system's first process takes them within moments."""
    with suppress(FileNotFoundError):
        state = (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[0]
        return state in (b"Z", b"X")
    return PROC.is_dir()  # gone
