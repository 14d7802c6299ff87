"""A command on a real terminal, and what it draws there."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Sequence
from pathlib import Path

_OF_TERMINALS = ("COLUMNS", "LINES")
COMMAND = (sys.executable, "-m", "eo_kafka.tools.cli")


def on_a_terminal(
    command: Sequence[str],
    columns: int = 100,
    stdout: Path | None = None,
    hear: Callable[[str], bytes | None] = lambda said: None,
) -> tuple[int, str]:
    """The exit code, and all that the terminal was sent; what went to `stdout` is not in it.
    `hear` is told meanwhile of all that there is so far, and what it returns is typed."""
    pid, terminal = pty.fork()
    if pid == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        if stdout is not None:
            os.dup2(os.open(stdout, os.O_WRONLY | os.O_CREAT, 0o600), 1)
        # Not COLUMNS of another terminal, which pytest-xdist sets, and readline beside os.environ
        others = {name: value for name, value in os.environ.items() if name not in _OF_TERMINALS}
        os.execve(command[0], list(command), others)
    said = b""
    while True:
        try:
            said += os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        if typed := hear(said.decode(errors="replace")):
            os.write(terminal, typed)
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode()


def drawn(what: str, said: str) -> list[str]:
    """The bar that begins so, each time that it was drawn over."""
    return re.findall(rf"\r({re.escape(what)}: [^\r\n]*)", said)
