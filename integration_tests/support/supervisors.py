"""A supervisor of a copy's driver, as a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from eo_kafka.tools.run.processes import session
from harness import JOBS, Copy, wait_until

FUNCTION = "jobs.proved_jobs:copy"
CONF = ("spark.master=local[2]", "spark.ui.enabled=false", "spark.log.level=ERROR")
LONG_S = 180


class Supervised:
    """A supervisor of a copy's driver, and what it said."""

    def __init__(self, process: subprocess.Popen, log: Path) -> None:
        self.process = process
        self.log = log

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def living(self) -> list[int]:
        leaders = re.findall(r"Driver started: run \d+, process (\d+)\.", self.said())
        return [pid for leader in leaders for pid in session(int(leader))]

    def kill(self, what: str) -> None:
        """SIGKILL to the newest driver's `java`, its Python `driver`, or to `all` of it."""
        (leader,) = re.findall(r"process (\d+)\.", self.said())[-1:]
        guard = psutil.Process(int(leader))
        wait_until(guard.children, "the guard has started the driver")
        driver = guard.children()[0]
        jvm = [one for one in driver.children() if one.name() == "java"]
        pids = {"java": [one.pid for one in jvm], "driver": [driver.pid], "all": self.living()}
        for pid in pids[what]:
            with suppress(ProcessLookupError):  # it ends with one that was killed before it
                os.kill(pid, signal.SIGKILL)

    def await_ended(self) -> int:
        return self.process.wait(LONG_S)


@contextmanager
def supervised(
    job: Copy,
    folder: Path,
    *words: str,
    script: bool = False,
    function: str = FUNCTION,
    **more: str,
) -> Iterator[Supervised]:
    """Nothing of it is left. `script`: the one of harness.py, with its argument. `more`: what
    `function` is told besides."""
    config = {
        "bootstrap_servers": job.servers,
        "source": job.source_topic,
        "sink": job.sink_topic,
        "checkpoint": str(job.checkpoint),
        "job_name": job.job_name,
        "per_batch": str(job.per_batch),
        "kafka.transaction.timeout.ms": str(job.timeout_ms),
        **job.sink_extra,
        **more,
    }
    log = folder / "supervisor.log"
    command = [sys.executable, "-m", "eo_kafka.tools.cli", "run", *words]
    if script:
        command += [str(JOBS / job.script), json.dumps(job.as_job())]
    else:
        pairs = (f"{name}={value}" for name, value in config.items())
        command += [function, "--conf", *CONF, "--config", *pairs]
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=JOBS.parent
        )
    running = Supervised(process, log)
    try:
        yield running
    finally:
        process.kill()
        process.wait()
        for pid in running.living():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def values(first: int, count: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]
