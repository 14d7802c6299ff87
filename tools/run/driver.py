"""One run of a driver: its guard's process, its session, what it said, and how it ended."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from signal import SIGTERM
from typing import IO

from . import processes
from .status import Status

KEPT_BYTES = 4 << 20  # of what it wrote to stderr, the newest
_CHUNK = 1 << 16


class Driver:
    """Started at once. `status_path`: where a driver program of ours tells its status. `lease_s`:
    its guard ends it if this process is not heard of for so long (0: only if it is dead)."""

    def __init__(
        self,
        command: Sequence[str],
        variables: Mapping[str, str],
        status_path: Path | None,
        lease_s: float = 0.0,
    ) -> None:
        self._status_path = status_path
        self._kept = bytearray()
        # An own process, and not a fork of this one: it must live when this one is killed.
        self._guard = subprocess.Popen(
            [sys.executable, "-m", "eo_kafka.tools.run.guard", f"{lease_s}", *command],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **variables},
        )
        assert self._guard.stderr is not None
        self._reader = threading.Thread(target=self._pass_on, args=(self._guard.stderr,))
        self._reader.daemon = True
        self._reader.start()
        if lease_s:
            threading.Thread(target=self._keep_alive, args=(lease_s / 10,), daemon=True).start()

    @property
    def pid(self) -> int:
        """The session's."""
        return self._guard.pid

    @property
    def exit_code(self) -> int | None:
        """The driver's, or 128 and the signal; None while it runs."""
        return self._guard.poll()

    @property
    def status(self) -> Status | None:
        """What it says of itself; None of a program that is not ours."""
        return None if self._status_path is None else Status.read(self._status_path)

    def wait(self, seconds: float) -> None:
        """Until it ends, or for so long."""
        with suppress(subprocess.TimeoutExpired):
            self._guard.wait(seconds)

    def ask_to_end(self) -> None:
        """SIGTERM to the driver itself, wherever it is below its guard."""
        status = self.status
        with suppress(OSError):
            if status is not None and status.pid and os.getsid(status.pid) == self.pid:
                os.kill(status.pid, SIGTERM)
                return
        self._say(b"T")

    def await_empty(self, seconds: float) -> bool:
        """Wait until nothing of it lives, but at most so long; whether it came to that."""
        return processes.await_empty(self.pid, seconds)

    def kill(self) -> None:
        """Nothing of it lives when this returns."""
        processes.kill_all(self.pid)
        self._guard.wait()
        self._reader.join(5)
        assert self._guard.stdin is not None
        with suppress(OSError):
            self._guard.stdin.close()
        processes.reap()

    def stderr(self) -> str:
        """The end of what it wrote there."""
        return bytes(self._kept).decode(errors="replace")

    def _say(self, word: bytes) -> None:
        assert self._guard.stdin is not None
        with suppress(OSError, ValueError):
            os.write(self._guard.stdin.fileno(), word)

    def _keep_alive(self, every_s: float) -> None:
        while self._guard.poll() is None:
            self._say(b"A")
            time.sleep(every_s)

    def _pass_on(self, stderr: IO[bytes]) -> None:
        with stderr:
            while chunk := os.read(stderr.fileno(), _CHUNK):
                self._kept += chunk
                del self._kept[:-KEPT_BYTES]
                with suppress(OSError, ValueError):
                    os.write(2, chunk)
