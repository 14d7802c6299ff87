"""What the tests do to processes: crash points to arm, workers that outlive their driver."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

FOLDER = "EO_KAFKA_CRASH_POINTS"  # the variable that names the folder


def wait_until(condition: Callable[[], object], what: str, timeout: float = 60) -> None:
    """Poll until `condition()` is true."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {what}")
        time.sleep(0.05)


class CrashPoints:
    """Arms crash points in the folder that `EO_KAFKA_CRASH_POINTS` names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def arm(self, name: str, action: str) -> None:
        staged = self.folder / f"{name}.staged"
        staged.write_text(action)
        staged.rename(self.folder / name)

    def wait_reached(self, name: str, timeout: float = 240) -> int:
        """Wait until a process reached the point; its id."""
        wait_until(lambda: self.reached(name), f"{name} is reached", timeout)
        pid = self.reached(name)
        assert pid is not None
        return pid

    def reached(self, name: str) -> int | None:
        """The process id that reached the point, once one did."""
        path = self.folder / f"{name}.reached"
        return int(path.read_text()) if path.exists() and path.read_text() else None

    def release(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def clear(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()


def outlive_driver(worker: int) -> None:
    """Kill the daemon above a task's worker, which would end the worker when its driver dies: what
    a machine does that is cut off from its driver. (A worker that waits at a crash point survives
    this; to one that is stopped the kernel sends SIGHUP, as it does to orphaned groups.)"""
    daemon = psutil.Process(worker).parent()
    assert daemon is not None
    assert "pyspark.daemon" in " ".join(daemon.cmdline())
    daemon.kill()


def has_ended(pid: int) -> bool:
    """Whether a process is gone, also if nobody has asked for its exit code."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


@contextmanager
def killed_at_last(pid: int) -> Iterator[None]:
    """Whatever becomes of the test: a process that was stopped is not left behind."""
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def task_workers(driver: int) -> list[psutil.Process]:
    """The Python workers below a driver: what Spark's daemons have forked."""

    def is_daemon(process: psutil.Process | None) -> bool:
        return process is not None and "pyspark.daemon" in " ".join(process.cmdline())

    found = []
    for process in psutil.Process(driver).children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            if is_daemon(process) and is_daemon(process.parent()):
                found.append(process)
    return found


def listening_addresses(pid: int) -> set[str]:
    return {
        one.laddr.ip.removeprefix("::ffff:")
        for one in psutil.Process(pid).net_connections(kind="inet")
        if one.status == psutil.CONN_LISTEN
    }


def await_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=30)
    assert alive == []
