"""One JVM in a session of its own that cannot outlive this process.

The session keeps Ctrl-C away from it: its owner decides when it ends. A shell waits at a pipe whose
other end only this process holds, and kills the JVM when that end closes, however this process
died. PR_SET_PDEATHSIG would do it without the shell, but it is Linux's alone and fires when the
*thread* that started the JVM ends.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

_WATCHDOG = 'read -r _; kill -9 "$1"'


class JavaProcess:
    """A running JVM, or another server; its output is appended to `log_path`. As root it may run as
    another `user`."""

    def __init__(self, command: Sequence[str], log_path: Path, *, user: str | None = None) -> None:
        with log_path.open("ab") as log:
            self._log_path, self._log_start = log_path, log.tell()
            self._java = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=user,
            )
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHDOG, "watchdog", str(self.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The JVM's process id."""
        return self._java.pid

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        code = self._java.poll()
        if code is not None:
            self._end_watchdog()  # the id it watches may soon be somebody else's
        return code

    def terminate(self) -> None:
        """Send SIGTERM; don't wait."""
        self._java.send_signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """Send SIGINT; don't wait."""
        self._java.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self._java.kill()
        self.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds; tell whether the process is gone."""
        try:
            self._java.wait(timeout)
        except subprocess.TimeoutExpired:
            return False
        self._end_watchdog()
        return True

    def output(self) -> str:
        """What this process has written so far (not what an earlier one left in the file)."""
        with self._log_path.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def _end_watchdog(self) -> None:
        if self._watchdog.poll() is None:
            self._watchdog.kill()
            self._watchdog.wait()
        if self._watchdog.stdin is not None:
            self._watchdog.stdin.close()
