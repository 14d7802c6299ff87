"""One driver ahead: while a test uses its driver, the next one starts, and need not be waited for.

A driver serves one job and ends with it, killed or not, as one that was started for it does. It is
given out if it is what would be started now: same interpreter, variables, folder and master.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MASTER = "local[2,4]"
SCRIPTS = ("copy_job.py", "stateful_job.py", "enriched_job.py")  # all with the same session
SCRIPT = Path(__file__).parent / "jobs" / "warm_driver.py"


@dataclass(frozen=True)
class Surroundings:
    """What a process inherits."""

    variables: dict[str, str]
    folder: str

    @classmethod
    def of_this_process(cls) -> Surroundings:
        named_for_a_test = {"PYTEST_CURRENT_TEST"}
        variables = {k: v for k, v in os.environ.items() if k not in named_for_a_test}
        return cls(variables, os.getcwd())


@dataclass
class WarmDriver:
    """A driver without a job."""

    process: subprocess.Popen[bytes]
    log: Path
    surroundings: Surroundings

    @classmethod
    def start(cls) -> WarmDriver:
        descriptor, name = tempfile.mkstemp(prefix="eo-kafka-driver-", suffix=".log")
        os.close(descriptor)
        with open(name, "ab") as output:
            process = subprocess.Popen(
                [sys.executable, str(SCRIPT), MASTER],
                stdin=subprocess.PIPE,  # closes with this process, and then the driver ends too
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return cls(process, Path(name), Surroundings.of_this_process())

    def give(self, script: Path, argument: str, log: Path) -> subprocess.Popen[bytes]:
        """The job. All that the driver has said and will say is in `log`, after what is there."""
        if log.exists():
            with self.log.open("ab") as output:
                output.write(log.read_bytes())
        self.log.replace(log)
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it died as it started: its exit code says so
            self.process.stdin.write(json.dumps([str(script), argument]).encode() + b"\n")
            self.process.stdin.close()
        return self.process

    def end(self) -> None:
        """It is not wanted."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)  # its JVM, too
        self.process.wait()
        self.log.unlink(missing_ok=True)


_ahead: list[WarmDriver] = []  # one at most


def take(script: Path, job: dict[str, Any], log: Path) -> subprocess.Popen[bytes] | None:
    """A driver that is given this job; None if it must be one of its own, or none has started."""
    plain = script.name in SCRIPTS and job["master"] == MASTER and not job.get("conf")
    if not plain or "kafka" in (job["source"], job["sink"]):  # Spark's own needs its jars
        return None
    driver = None
    while _ahead:
        found = _ahead.pop()
        if found.surroundings == Surroundings.of_this_process() and found.process.poll() is None:
            driver = found.give(script, json.dumps(job), log)
        else:
            found.end()
    _ahead.append(WarmDriver.start())
    return driver


def leave() -> None:
    """At the end of a worker."""
    while _ahead:
        _ahead.pop().end()
