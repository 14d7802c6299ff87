"""A server process in a session of its own that cannot outlive this process.

The session keeps Ctrl-C away from it: its owner decides when it ends. A shell waits at a pipe whose
other end only this process holds, and kills the server when that end closes, however this process
died. PR_SET_PDEATHSIG would do it without the shell, but it is Linux's alone and fires when the
*thread* that started the server ends.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .errors import BrokerError

_WATCHDOG = 'read -r _; kill -9 "$1"'


class ServerProcess:
    """A running server; its output is appended to `log_path`. As root it may run as
    another `user`."""

    def __init__(self, command: Sequence[str], log_path: Path, *, user: str | None = None) -> None:
        with log_path.open("ab") as log:
            self._log_path, self._log_start = log_path, log.tell()
            self._server = subprocess.Popen(
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
        """Its process id."""
        return self._server.pid

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        code = self._server.poll()
        if code is not None:
            self._end_watchdog()  # the id it watches may soon be somebody else's
        return code

    def ask(self, number: signal.Signals) -> None:
        """Send a signal; don't wait."""
        self._server.send_signal(number)

    def kill(self) -> None:
        """SIGKILL; returns when the process is gone."""
        self._server.kill()
        self.wait()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds; tell whether the process is gone."""
        try:
            self._server.wait(timeout)
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


class OneProcess:
    """A server that is one process: it can be killed, ended in order, and started again."""

    called = "The server"  # what sentences begin with
    stop_signal = signal.SIGTERM
    stop_timeout = 30.0  # seconds

    _process: ServerProcess | None = None

    @property
    def pid(self) -> int:
        """Process id of the server that runs, or ran last. Raises BrokerError."""
        if self._process is None:
            raise BrokerError(f"{self.called} was not started: use 'with'.")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives; it may still be starting, or just be going down."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL, as a crash would; returns when the process is gone."""
        if self._process is not None:
            self._process.kill()

    def stop(self) -> None:
        """End it in order; SIGKILL if it has not gone within `stop_timeout`."""
        self._ask_to_stop()
        if self._process is not None and not self._process.wait(self.stop_timeout):
            self._process.kill()

    def _ask_to_stop(self) -> None:
        if self._process is not None and self.running:
            self._process.ask(self.stop_signal)

    def _said(self) -> str:
        """What it has written since its last start."""
        return self._process.output() if self._process else ""

    def _log_end(self) -> str:
        return tail(self._said())


def tail(output: str, lines: int = 15) -> str:
    """The end of what a process wrote."""
    return "\n".join(output.splitlines()[-lines:]) or "(nothing)"
