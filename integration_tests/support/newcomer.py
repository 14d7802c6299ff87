"""Follows docs/quickstart.md as a newcomer does: every file, every command, in their order.

A test holds the page to it, and docs/record_quickstart.py shows what it prints.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from processes import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
PORT = "9092"
INSTALLED = 4  # lines that set up what we run in
TIMEOUT_S = 240


@dataclass(frozen=True)
class Typed:
    """A command, in which of the page's three terminals, and what it printed meanwhile."""

    terminal: int
    command: str
    output: str = ""


class Newcomer:
    """In a folder, with a port that is free and the Python that runs this."""

    def __init__(self, folder: Path) -> None:
        self.port = _free_port()
        text = PAGE.read_text().replace(PORT, self.port)
        self._folder = folder
        self._running: list[subprocess.Popen[str]] = []
        blocks = re.findall(r"```(\w+)\n(.*?)```", text, re.S)
        self.commands = [line for kind, lines in blocks if kind == "sh" for line in _split(lines)]
        names = re.findall(r"ave this as `(\w+\.py)`", text)
        files = [content for kind, content in blocks if kind == "python"]
        for name, content in zip(names, files, strict=True):
            (folder / name).write_text(content)

    def follow(self) -> Iterator[Typed]:
        """All that comes after the installation, each command when it has printed what it does.
        The query is killed by its process id: `pkill` would kill those of others, too."""
        broker, shout, orders, read, again, kill, shout_again, read_again, verify = self.commands[
            INSTALLED:
        ]
        assert (orders, shout, read) == (again, shout_again, read_again)
        kafka = self._start(broker)
        assert kafka.stdout is not None
        yield Typed(1, broker, "".join(kafka.stdout.readline() for _ in range(3)))
        query = self._start(shout)
        yield Typed(2, shout)
        yield Typed(3, orders, self._run(orders))
        yield Typed(3, read, self._until(query, read, "1000 rows\n"))
        yield Typed(3, orders, self._run(orders))
        os.kill(query.pid, signal.SIGKILL)
        yield Typed(3, kill)
        query = self._start(shout)
        yield Typed(2, shout)
        yield Typed(3, read, self._until(query, read, "2000 rows\n"))
        yield Typed(3, verify, self._run(verify))

    def _start(self, command: str) -> subprocess.Popen[str]:
        words = shlex.split(command)
        where = Path(sys.executable).parent
        path = f"{where}{os.pathsep}{os.environ['PATH']}"
        process = subprocess.Popen(
            [str(where / words[0]), *words[1:]],
            cwd=self._folder,
            env={**os.environ, "PATH": path, "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if words[0] == "eo-kafka" else subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def _run(self, command: str) -> str:
        process = self._start(command)
        output, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, (command, output, errors)
        return output

    def _until(self, query: subprocess.Popen[str], command: str, ending: str) -> str:
        """Run it again until what it prints ends so."""
        found = ""

        def ends() -> bool:
            nonlocal found
            assert query.poll() is None, "the query has ended"
            found = self._run(command)
            return found.endswith(ending)

        wait_until(ends, f"{command} ends with {ending!r}", TIMEOUT_S)
        return found

    def close(self) -> None:
        """End what runs."""
        for process in reversed(self._running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def _split(lines: str) -> list[str]:
    return [line.partition(" #")[0].strip() for line in lines.splitlines() if line.strip()]
