"""Follows a page as a newcomer does: types each of its blocks, in their order, as it stands.

Code runs in this process, where a page speaks of the session `spark`, or as the file that the page
says to save. Commands go to a shell. What a page shows below a command is what it must print.
"""

from __future__ import annotations

import doctest
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import dataclass
from difflib import ndiff
from pathlib import Path
from textwrap import dedent

from eo_kafka.broker.settings import free_port
from eo_kafka.testing.processes import wait_until

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 240
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"ave this as `(\w+\.py)`")
# They would change what the tests run in, which is as they would make it.
NOT_TYPED = (
    *("pip install", "python3 -m venv", ". .venv/bin/activate", "export PYSPARK_PYTHON="),
    "eo-kafka prepare",  # tests/tools/test_prepare.py has a PySpark for it
)
# Blocks of `text` that no command of the page prints, and who compares them
NOT_PRINTED = {
    "README.md": "test_pictures_and_the_demos_figures_are_those_of_the_measurements",
    "docs/progress.md": "test_a_restore_needs_an_empty_folder_and_a_job_with_a_snapshot",
}
# Nobody types it: settings of other programs, and who reads them
SETTINGS = {"docs/how-to/run-a-job.md": "test_settings_of_supervisors_are_those_of_the_command"}
SETTINGS_LANGUAGES = ("ini", "yaml")
# Run until they are ended; each prints first how it is reached, in place of these addresses.
SERVERS = ("eo-kafka broker", "eo-kafka registry", "eo-kafka hazelcast")
ADDRESSES = {
    "bootstrap.servers": "localhost:9092",
    "schema.registry.url": "http://localhost:8081",
    "hazelcast.members": "127.0.0.1:5701,127.0.0.1:5702",
}


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    language: str
    content: str
    file: str | None = None  # the page says to save it as that


@dataclass(frozen=True)
class Typed:
    """A command, or code, in which of three terminals, and what it printed meanwhile."""

    terminal: int
    command: str
    output: str = ""


def blocks(page: str) -> list[Block]:
    """All of a page, `README.md` or `docs/...`."""
    text, found, end = (ROOT / page).read_text(), [], 0
    for match in BLOCK.finditer(text):
        names = SAVED.findall(text[end : match.start()])
        found.append(Block(match[2], dedent(match[3]), *names[-1:]))
        end = match.end()
    return found


def version(diff: str, sign: str) -> str:
    """One side of a diff."""
    return "".join(line[1:] for line in diff.splitlines(True) if line[0] in (" ", sign))


class Newcomer:
    """In a folder. `names` is what the page takes for granted, `addresses` what to type in place of
    the page's, and `endings` what the runs of a script end with, in their order: it is run again
    until it does."""

    def __init__(
        self,
        page: str,
        folder: Path,
        names: Mapping[str, object] | None = None,
        addresses: Mapping[str, str] | None = None,
        endings: Mapping[str, list[str]] | None = None,
    ) -> None:
        self.page = page
        self.names = dict(names or {})
        self.addresses = {"/data/": f"{folder}/", **(addresses or {})}
        self._endings = {script: iter(found) for script, found in (endings or {}).items()}
        self._folder = folder
        self._files: dict[str, str] = {}
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._variables = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYSPARK_PYTHON": sys.executable,
        }
        self._code = 0  # with which the last command exited

    def follow(self) -> Iterator[Typed]:
        """Type the next block, and tell of each command in it."""
        said = ""
        for block in blocks(self.page):
            if block.language == "text" and self.page not in NOT_PRINTED:
                self._compare(block.content, said)
            for typed in self.type(block):
                said = typed.output
                if not typed.command.startswith(NOT_TYPED):
                    yield typed

    def type(self, block: Block) -> Iterator[Typed]:
        """One block."""
        content = block.content
        for written, real in self.addresses.items():
            content = content.replace(written, real)
        if block.file:
            (self._folder / block.file).write_text(content)
            self._files[block.file] = content
        elif block.language in ("python", "diff"):
            code = content if block.language == "python" else version(content, "+")
            with redirect_stdout(io.StringIO()) as said:
                exec(compile(code, self.page, "exec"), self.names)
            yield Typed(2, code, said.getvalue())
        elif block.language == "sh":
            for command in _commands(content):
                yield (typed := self._command(command))
                assert self._code == 0, typed
        elif block.language == "console":
            for part in re.split(r"^\$ ", content, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                yield (typed := self._command(*_commands(command)))
                if not typed.command.startswith(NOT_TYPED):
                    self._compare(shown, typed.output)
        elif block.language != "text":
            assert block.language in SETTINGS_LANGUAGES, f"nobody types '{block.language}'"
            assert self.page in SETTINGS, self.page

    def type_all(self, block: Block) -> None:
        """The same, to its end."""
        for _ in self.type(block):
            pass

    def _command(self, command: str) -> Typed:
        program, _, rest = command.partition(" ")
        if command.startswith(NOT_TYPED):
            return Typed(3, command)
        if command.startswith("pkill"):  # by its id: others may run a script of that name
            killed = self._running.pop(rest.split()[-1])
            os.killpg(killed.pid, signal.SIGKILL)
            killed.communicate()
            return Typed(3, command)
        if re.match(r"[A-Z]+=", program):
            name, value = shlex.split(command)[0].split("=", 1)
            self._variables[name] = value
            return Typed(3, command)
        if command.startswith(SERVERS):
            return Typed(1, command, self._serve(command))
        if program == "python" and "awaitTermination" in self._files.get(rest, ""):
            self._start(command, rest, stderr=subprocess.DEVNULL)
            return Typed(2, command)
        if program == "make":
            return Typed(3, command, self._run(f"{command} --dry-run", ROOT))
        ending = next(self._endings.get(rest, iter(())), "")
        return Typed(3, command, self._until_it_ends(command, ending))

    def _start(self, command: str, name: str, stderr: int) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=self._folder,
            env=self._variables,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
        )
        self._running[name] = process
        return process

    def _serve(self, command: str) -> str:
        """Start a server; what it says first."""
        free = command.replace("--port 9092", f"--port {free_port()}")  # others may have it
        server = self._start(free, command, stderr=subprocess.STDOUT)
        assert server.stdout is not None
        said = [server.stdout.readline() for _ in range(1 + command.count("--topic"))]
        name, _, address = said[0].strip().partition("=")
        self.addresses[ADDRESSES[name]] = address
        return "".join(said)

    def _run(self, command: str, folder: Path) -> str:
        ended = subprocess.run(
            ["bash", "-c", f"(exit {self._code})\n{command}"],
            cwd=folder,
            env=self._variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        self._code = ended.returncode
        return ended.stdout or ended.stderr

    def _until_it_ends(self, command: str, ending: str) -> str:
        """Run it, and again until what it prints ends so."""
        said = ""

        def ends() -> bool:
            nonlocal said
            for name, process in self._running.items():
                assert process.poll() is None, f"{name} has ended"
            said = self._run(command, self._folder)
            return said.endswith(ending)

        wait_until(ends, f"{command} ends with {ending!r}", TIMEOUT_S)
        return said

    def _compare(self, shown: str, said: str) -> None:
        """Numbers, times and names that a machine gives are others each time."""
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        wanted, found = _shape(shown), _shape(said)
        assert doctest.OutputChecker().check_output(wanted, found, flags), "\n".join(
            (f"{self.page} shows something else:", *ndiff(wanted.split("\n"), found.split("\n")))
        )

    def as_on_the_page(self, text: str) -> str:
        """With the page's addresses again."""
        for written, real in self.addresses.items():
            text = text.replace(real, written)
        return text

    def close(self) -> None:
        """End what runs."""
        for process in reversed(self._running.values()):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def quick_start(folder: Path) -> Newcomer:
    """Who follows docs/quickstart.md in this folder."""
    endings = {"read.py": ["1000 rows\n", "2000 rows\n"]}
    return Newcomer(
        "docs/quickstart.md", folder, addresses={"9092": str(free_port())}, endings=endings
    )


def _commands(content: str) -> list[str]:
    lines = content.replace("\\\n", " ").splitlines()
    return [line.partition(" #")[0].strip() for line in lines if line.strip()]


def _shape(text: str) -> str:
    text = re.sub(r"(?<![\w.])/[\w./+-]+", "/...", text)
    return re.sub(r"\b[0-9a-f-]{12,}\b|-?[0-9][0-9.,:-]*", "#", text)
