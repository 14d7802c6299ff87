"""docs/quickstart.md, typed by a newcomer: every file and every command, in their order."""

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
from pathlib import Path

import pytest

from processes import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "quickstart.md"
PORT = "9092"
INSTALLED = 4  # lines that set up what these tests run in
FIRST_ROWS, TIMEOUT_S = 1000, 240


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Newcomer:
    """Follows the page in a folder, with a port that is free and the Python of these tests."""

    def __init__(self, folder: Path) -> None:
        text = PAGE.read_text().replace(PORT, str(free_port()))
        self._folder = folder
        self._running: list[subprocess.Popen[str]] = []
        blocks = re.findall(r"```(\w+)\n(.*?)```", text, re.S)
        self.commands = [line for kind, lines in blocks if kind == "sh" for line in split(lines)]
        names = re.findall(r"ave this as `(\w+\.py)`", text)
        files = [content for kind, content in blocks if kind == "python"]
        for name, content in zip(names, files, strict=True):
            (folder / name).write_text(content)

    def start(self, command: str) -> subprocess.Popen[str]:
        """Type a command and leave it running."""
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

    def run(self, command: str) -> str:
        """Type a command, and read what it prints."""
        process = self.start(command)
        output, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, (command, output, errors)
        return output

    def leave(self) -> None:
        for process in reversed(self._running):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def split(lines: str) -> list[str]:
    return [line.partition(" #")[0].strip() for line in lines.splitlines() if line.strip()]


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    found = Newcomer(tmp_path)
    yield found
    found.leave()


def test_the_quick_start_works_as_it_is_written(newcomer: Newcomer) -> None:
    *_, export = newcomer.commands[:INSTALLED]
    assert export == "export PYSPARK_PYTHON=$(command -v python)"
    broker, shout, orders, read, orders_again, kill, shout_again, verify = newcomer.commands[
        INSTALLED:
    ]
    assert (orders, shout, kill) == (orders_again, shout_again, "pkill -9 -f shout.py")

    kafka = newcomer.start(broker)
    assert kafka.stdout is not None
    lines = [kafka.stdout.readline() for _ in range(3)]
    assert lines[0].startswith("bootstrap.servers=127.0.0.1:"), lines
    assert "Topic 'shouted' has been created with 4 partitions." in lines[2]

    query = newcomer.start(shout)
    newcomer.run(orders)

    def rows(count: int) -> bool:
        assert query.poll() is None, "the query has ended"
        return newcomer.run(read).splitlines()[-1] == f"{count} rows"

    wait_until(lambda: rows(FIRST_ROWS), "the rows come out", TIMEOUT_S)
    newcomer.run(orders_again)
    os.kill(query.pid, signal.SIGKILL)  # pkill would kill those of other tests, too
    query = newcomer.start(shout_again)
    wait_until(lambda: rows(2 * FIRST_ROWS), "the rest comes out", TIMEOUT_S)
    print(newcomer.run(verify))
