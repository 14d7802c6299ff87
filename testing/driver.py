"""A driver and everything below it: one session of processes that is killed or stopped as one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from ..tools.run.verdict import OUR_ERROR, Way, tree, way_of
from .processes import task_workers

# What also comes of brokers that are away, and that the next start may find gone.
OF_BROKERS = {"EnvironmentRefused", "SourceError", "UnknownTopic"}
# Ends that need a person. None of the soak's and the nemesis's faults calls for one: what is read
# again gives the same rows.
REFUSALS = (
    *sorted(name for name in tree() if way_of(name) is Way.PERSON and name not in OF_BROKERS),
    "IllegalMove",  # of no tree: a mistake of ours
)
STARTED = "STARTED the query"  # a line of its log


class Driver:
    """One run of a program. It leads a session, so that what it started is found when it is dead.

    Its standard input closes with this process: a program that reads from it ends then, too. The
    variables go over those of this process.
    """

    def __init__(self, command: Sequence[str], log: Path, variables: Mapping[str, str]) -> None:
        self.log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **variables},
            )

    @property
    def pid(self) -> int:
        """The Python driver's, which is also the session's."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    @property
    def has_started(self) -> bool:
        """Whether it has said that its query is started: before, Spark only boots."""
        return f"\n{STARTED}\n" in self.log.read_text(errors="replace")

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None if it is still running after `seconds`."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def session(self) -> list[int]:
        """All living processes of the session: the JVM, Spark's daemons and their workers too."""
        found = []
        for pid in psutil.pids():
            with suppress(OSError):
                if os.getsid(pid) == self.pid:
                    found.append(pid)
        return found

    def jvm(self) -> int | None:
        """The JVM's process id."""
        for pid in self.session():
            with suppress(psutil.Error):
                if psutil.Process(pid).name() == "java":
                    return pid
        return None

    def workers(self) -> list[int]:
        """Python workers: of tasks, of the source, of the commit."""
        with suppress(psutil.Error):
            return sorted(worker.pid for worker in task_workers(self.pid))
        return []

    def signal_all(self, number: int) -> None:
        """Send a signal to the whole session."""
        send(self.session(), number)

    def terminate(self) -> None:
        """Ask it to stop the query and end."""
        send([self.pid], signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL the whole session; returns when it is gone."""
        deadline = time.monotonic() + 20
        while (left := self._living()) and time.monotonic() < deadline:
            send(left, signal.SIGKILL)
            time.sleep(0.05)
        self._process.wait(20)

    def _living(self) -> list[int]:
        living = []
        for pid in self.session():
            with suppress(psutil.Error):
                if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    living.append(pid)
        return living

    def reason(self) -> tuple[str, str]:
        """How it ended: a word, and what it said."""
        text = self.log.read_text(errors="replace")
        said = text.rpartition("\nENDED ")[2] if "\nENDED " in text else ""
        if said.startswith("in order"):
            return "in order", ""
        ours = OUR_ERROR.findall(said)
        if ours:
            return str(ours[-1][0]), str(ours[-1][1])[:300]
        lines = [line.strip() for line in (said or text).splitlines() if line.strip()]
        if not said:
            return ("killed", "") if (self.exit_code or 0) < 0 else ("died", lines[-1][-300:])
        told = next((line for line in reversed(lines) if "Error" in line), lines[0])
        return "Spark's error", told[:300]


def send(pids: Iterable[int], number: int) -> None:
    """Send a signal to those that still live."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def python_path() -> str:
    """What the test can import, for its drivers and their workers; not what each Python has."""
    own = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    prefixes = (sys.prefix, sys.base_prefix)
    found = [p for p in sys.path if p and p not in own and not p.startswith(prefixes)]
    return os.pathsep.join([*found, *filter(None, [os.environ.get("PYTHONPATH")])])
