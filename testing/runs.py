"""Runs a job in drivers of its own: to the end of its input, or to its death at a named point."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.crash_points import OTHER_POINTS, POINTS
from . import checkpoint_log, job_program
from .driver import REFUSALS, Driver, python_path
from .errors import FaultMissed, JobFailed
from .half_written import stopped_half_written
from .processes import FOLDER, CrashPoints
from .records import Watch

if TYPE_CHECKING:
    from .topics import Topic
    from .trial import Trial

HALF_WRITTEN = "half-written"  # no crash point: seen from outside, it works with every sink
UNTIL = ("drained", "crashed")
HOW = ("kill-driver", "kill", "raise")
RUN_S = 180.0
SAID = 3000  # characters of a log in a message
OURS = ("bootstrap_servers", "source", "sink", "checkpoint", "job_name")
# What leads to a point that nobody comes past while all goes well.
PROVOKED = {"abort.before_end_txn": {"S6.before_decision": "raise"}}
SETTINGS = {
    "spark.master": "local[2,4]",  # a failed task is tried four times
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


class Runs:
    """One job, run in Spark drivers that may die: what `Job` in job.py stands on."""

    def __init__(
        self,
        trial: Trial,
        build: str,
        source: Topic | None,
        sink: Topic,
        config: Mapping[str, str],
        spark: Mapping[str, str],
    ) -> None:
        self.trial, self.build, self.source, self.sink = trial, build, source, sink
        self.name = f"job{len(trial.jobs) + 1}-{trial.unique}"
        self.folder = trial.folder / self.name
        self.crash_points = CrashPoints(self.folder / "crash-points")
        self.crash_points.folder.mkdir(parents=True, mode=0o700)
        self.checkpoint = self.folder / "checkpoint"
        self.backup = self.folder / "checkpoint-before-the-last-start"
        self.config = {
            "bootstrap_servers": trial.job_servers,
            "sink": sink.real_name,
            "checkpoint": str(self.checkpoint),
            "job_name": self.name,
            **({} if source is None else {"source": source.real_name}),
            **config,
        }
        # A driver that is killed removes nothing: what it leaves goes with the test's folder.
        self.left = self.folder / "left"
        self.left.mkdir()
        options = f'"-Djava.io.tmpdir={self.left}" {spark.get(JAVA_OPTIONS, "")}'.strip()
        self.spark = {**SETTINGS, **spark, JAVA_OPTIONS: options}
        self.driver: Driver | None = None
        self.drained = False  # whether the last run came to the end of the input
        self._starts = 0

    def run(
        self,
        crash: str | None = None,
        *,
        until: str = "drained",
        how: str = "kill-driver",
        seconds: float = RUN_S,
    ) -> None:
        """Run the job: to the end of its input, through a crash if one is named.

        A driver that runs already is killed first.

        Args:
            crash: Where the job dies: one of `CRASH_POINTS` or `OTHER_CRASH_POINTS`, or
                `HALF_WRITTEN` (a batch's rows are in the topic, and Spark has not noted the batch:
                for sinks that have no crash points).
            until: `drained`: it is started again after the crash, and runs until all that was in
                the source at the begin of the run is through. `crashed`: it is left dead.
            how: `kill-driver`: everything of the job dies. `kill`: only the process at that point
                dies. `raise`: an error is raised at that point.
            seconds: How long one driver may take.

        Raises:
            FaultMissed: The job did not come past the crash point, so the run shows nothing.
            JobFailed: A driver ended by itself with an error, took too long, or did not read
                what it should have read.
            ValueError: A word that is not one of those above.
        """
        _check_words(crash, until, how)
        self.kill_driver(quiet=True)
        wanted = self._wanted(crash)
        is_dead = crash is None or self._crash(crash, how, seconds)
        if is_dead and until == "drained":
            self._await_end(self._start(drain=True), seconds)
        if not is_dead or until == "drained":
            self._check_through(wanted)

    def start(self, drain: bool = False) -> None:
        """Start a driver and leave it running, with the query's own trigger.

        Args:
            drain: Let it end when it has read all that is in the source now.
        """
        self.kill_driver(quiet=True)
        self._start(drain)

    def stop(self) -> None:
        """Stop the running driver in order: it calls `query.stop()`.

        Raises:
            JobFailed: It does not end within a minute.
            FaultMissed: No driver is running.
        """
        driver = self.running()
        driver.terminate()
        if driver.wait(60) is None:
            raise self._failed(driver, "did not end within 60 s of being told to stop")
        self._ended(driver, "stopped in order")

    def kill_driver(self, quiet: bool = False) -> None:
        """SIGKILL the running driver, and all that belongs to it.

        Args:
            quiet: Do nothing where none is running.

        Raises:
            FaultMissed: No driver is running.
        """
        if not quiet:
            self.running()
        driver = self.driver
        if driver is not None and driver.exit_code is None:
            self._ended(driver, "driver killed")
        elif driver is not None:
            self._ended(driver, "driver had ended", why=": ".join(driver.reason()))

    def running(self) -> Driver:
        """The running driver. Raises FaultMissed if there is none."""
        if self.driver is None or self.driver.exit_code is not None:
            raise FaultMissed(f"No driver of job '{self.name}' is running: nothing was done to it.")
        return self.driver

    def check_not_refused(self) -> None:
        """Raise JobFailed if the driver has ended by itself, and asks for a person."""
        driver = self.driver
        if driver is not None and driver.exit_code is not None and driver.reason()[0] in REFUSALS:
            raise self._failed(driver, "failed")

    def note(self, what: str, **details: object) -> None:
        """Add to the test's time line."""
        self.trial.history.add(self.name, what, **details)

    def new_driver(
        self, crash_points: Path, drain: bool, spark: Mapping[str, str] | None = None
    ) -> Driver:
        """One more driver. It obeys the crash points in this folder, and no other process does."""
        self._starts += 1
        self.drained = False
        if self.checkpoint.exists():
            shutil.rmtree(self.backup, ignore_errors=True)
            shutil.copytree(self.checkpoint, self.backup)
        words = {
            "build": self.build,
            "config": self.config,
            "spark": {**self.spark, **(spark or {})},
            "drain": drain,
            "may_be_batch": self.source is None,  # else the checkpoint tells what it has read
        }
        log = self.folder / f"driver-{self._starts:03}.log"
        variables = {
            FOLDER: str(crash_points),
            "PYTHONPATH": python_path(),
            "SPARK_LOCAL_DIRS": str(self.left),
        }
        command = [sys.executable, "-c", job_program.COMMAND, json.dumps(words)]
        self.note("started", log=log.name)
        return Driver(command, log, variables)

    def _start(self, drain: bool) -> Driver:
        self.driver = self.new_driver(self.crash_points.folder, drain)
        return self.driver

    def _crash(self, crash: str, how: str, seconds: float) -> bool:
        """Whether the job is dead now; else it has got over it, and drained the source."""
        self.crash_points.clear()
        if crash != HALF_WRITTEN:
            self.crash_points.arm(crash, how)
        for point, action in PROVOKED.get(crash, {}).items():
            self.crash_points.arm(point, action)
        driver = self._start(drain=True)
        if crash == HALF_WRITTEN:
            self._kill_half_written(driver, seconds)
            return True
        self._await_reached(driver, crash, seconds)
        self.note("crash", point=crash, how=how)
        code = driver.wait(seconds)
        if code == 0 and how == "kill-driver":
            self._ended(driver, "survived")
            raise FaultMissed(f"The driver survived '{crash}'.\n{self.trial.report()}")
        if code == 0:
            self._ended(driver, "drained")
            return False
        if code is None:
            raise self._failed(driver, f"did not end within {seconds:.0f} s of the crash")
        self._ended(driver, "dead", exit_code=code)
        return True

    def _await_reached(self, driver: Driver, point: str, seconds: float) -> int:
        """The process that reached a crash point. Raises FaultMissed."""
        deadline = time.monotonic() + seconds
        while not (pid := self.crash_points.reached(point)):
            if driver.exit_code is not None or time.monotonic() > deadline:
                raise self._missed(driver, point)
            time.sleep(0.02)
        return pid

    def _kill_half_written(self, driver: Driver, seconds: float) -> None:
        servers, sink = self.trial.servers, self.sink.real_name
        batch = stopped_half_written(driver, self.checkpoint, servers, sink, seconds)
        if batch is None:
            raise self._missed(driver, HALF_WRITTEN)
        self._ended(driver, "crash", point=HALF_WRITTEN)
        if checkpoint_log.is_noted(self.checkpoint, batch):  # it was on its way to the disk
            raise FaultMissed(
                f"Spark noted batch {batch} while its driver was killed, so this run shows "
                f"nothing.\n{self.trial.report()}"
            )

    def _await_end(self, driver: Driver, seconds: float, keep_points: bool = False) -> None:
        code = driver.wait(seconds)
        if code != 0:
            ended = f"did not end within {seconds:.0f} s" if code is None else "failed"
            raise self._failed(driver, ended)
        self._ended(driver, "drained", keep_points=keep_points)

    def _wanted(self, crash: str | None) -> dict[int, int]:
        """Where the source ends now. Raises FaultMissed if no batch would run before the crash."""
        if self.source is None:
            return {}
        with Watch(self.trial.servers, self.source.real_name) as watch:
            ends = watch.ends()
        if not any(ends.values()):
            raise FaultMissed(f"Topic '{self.source.name}' is empty: the job would do nothing.")
        done = checkpoint_log.committed_ends(self.checkpoint).get(self.source.real_name, {})
        if crash is not None and all(done.get(number, 0) >= end for number, end in ends.items()):
            raise FaultMissed(
                f"The job has read all of '{self.source.name}': no batch would run, and "
                f"'{crash}' would not be reached. Write records before each run that crashes."
            )
        return ends

    def _check_through(self, wanted: Mapping[int, int]) -> None:
        if self.source is not None:
            self._check_read(self.source, wanted)
        self.drained = True

    def _check_read(self, source: Topic, wanted: Mapping[int, int]) -> None:
        done = checkpoint_log.committed_ends(self.checkpoint).get(source.real_name)
        if done is None:
            raise JobFailed(
                f"The job ended in order, and its checkpoint, {self.checkpoint}, does not say that "
                f"it has read topic '{source.real_name}'. Let the function use config['source'] "
                f"and config['checkpoint'].\n{self.trial.report()}"
            )
        behind = {n: (done.get(n, 0), end) for n, end in wanted.items() if done.get(n, 0) < end}
        if behind:
            at = ", ".join(f"{n} at {at} of {end}" for n, (at, end) in behind.items())
            raise JobFailed(
                f"The job ended in order before it had read all of '{source.name}': partition "
                f"{at}.\n{self.trial.report()}"
            )

    def _missed(self, driver: Driver, crash: str) -> FaultMissed:
        why, told = driver.reason() if driver.exit_code is not None else ("still running", "")
        self._ended(driver, "crash missed", point=crash)
        needs = next((of for of, points in OTHER_POINTS.items() if crash in points), None)
        told_needs = f" Only {needs} comes past it." if needs else ""
        return FaultMissed(
            f"Crash point '{crash}' was not reached, so this run shows nothing.{told_needs} The "
            f"driver: {why}{f': {told}' if told else ''}.\n{self.trial.report()}"
        )

    def _failed(self, driver: Driver, ended: str) -> JobFailed:
        self._ended(driver, "failed")
        why, told = driver.reason()
        text = driver.log.read_text(errors="replace")
        said = text.rpartition("\nENDED ")[2][:SAID] if "\nENDED " in text else text[-SAID:]
        return JobFailed(
            f"A driver of job '{self.name}' {ended}: {why}: {told}\n{self.trial.report()}\n"
            f"What it said, from its log, {driver.log}:\n{said}"
        )

    def _ended(
        self, driver: Driver, what: str, keep_points: bool = False, **details: object
    ) -> None:
        driver.kill()
        if not keep_points:
            self.crash_points.clear()
        self.note(what, **details)
        if driver is self.driver:
            self.driver = None


def _check_words(crash: str | None, until: str, how: str) -> None:
    problems = []
    if crash is not None and crash != HALF_WRITTEN and crash not in POINTS:
        problems.append(f"crash='{crash}' is no crash point: see eo_kafka.testing.CRASH_POINTS")
    if until not in UNTIL:
        problems.append(f"until='{until}' is none of {', '.join(UNTIL)}")
    if until == "crashed" and crash is None:
        problems.append("until='crashed' needs crash=...")
    if how not in HOW:
        problems.append(f"how='{how}' is none of {', '.join(HOW)}")
    if problems:
        raise ValueError("; ".join(problems) + ".")
