"""The fixture `eo_job`: a job, and what may be done to its processes and its checkpoint."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable, Collection, Iterable

from . import checkpoint_log, nemesis
from .driver import python_path, send
from .errors import FaultMissed
from .processes import FOLDER, wait_until
from .records import Written, control_plane, open_transactions, partitions_of
from .runs import OURS, RUN_S, Runs
from .standalone_spark import SPECULATION, standalone

EXPIRY_S = 150.0
WORKER_S = 60.0


class Job(Runs):
    """A job of the user's, run in Spark drivers of its own that may die.

    Its function is `build(spark, config)`. It returns a DataStreamWriter that is not started, or
    the started query. That of a batch job, whose `source` is None, writes and returns None.
    `config` holds text: `bootstrap_servers`, `source` and `sink` (topics), `checkpoint` (the
    location), `job_name`, and what the test adds.
    """

    def kill_worker(self, seed: int | None = None) -> None:
        """SIGKILL one Python worker of the running driver: a task's, the source's or the commit's.

        Args:
            seed: Chooses among several.

        Raises:
            FaultMissed: No driver is running, or it has no worker within a minute.
        """
        pid = self._worker(seed)
        send([pid], signal.SIGKILL)
        self.note("worker killed", pid=pid)

    def pause_worker(self, seconds: float, seed: int | None = None) -> None:
        """SIGSTOP one Python worker, and let it go on: perhaps as a zombie.

        Args:
            seconds: How long it stands still. This call takes as long.
            seed: Chooses among several.

        Raises:
            FaultMissed: As `kill_worker`.
        """
        self._pause([self._worker(seed)], "worker paused", seconds)

    def pause_driver(self, seconds: float) -> None:
        """SIGSTOP all of the running driver, and let it go on.

        Args:
            seconds: How long it stands still. This call takes as long.

        Raises:
            FaultMissed: No driver is running.
        """
        self._pause(self.running().session(), "driver paused", seconds)

    def expire_transactions(self, seconds: float = EXPIRY_S) -> None:
        """Leave the job dead until Kafka has aborted what it left open in its sink: an outage that
        outlasts `kafka.transaction.timeout.ms`. Let the job's function set that to 10 s in tests.

        Args:
            seconds: How long to wait at most.

        Raises:
            FaultMissed: Nothing is open, or it stays open for longer.
        """
        self.kill_driver(quiet=True)
        with control_plane(self.trial.servers) as control:
            names = open_transactions(control, self.sink.real_name)
            if not names:
                raise FaultMissed(
                    f"The job has nothing open in '{self.sink.name}' that could expire. Let it die "
                    "first: job.run(crash='S6.before_decision', until='crashed')."
                )
            try:
                wait_until(
                    lambda: not open_transactions(control, self.sink.real_name),
                    "Kafka aborts what timed out",
                    seconds,
                )
            except AssertionError:
                raise FaultMissed(
                    f"Kafka has not aborted {', '.join(names)} within {seconds:.0f} s. Let the "
                    "job's function set kafka.transaction.timeout.ms to 10000 in tests."
                ) from None
        self.note("transactions expired", ids=names)

    def lose_checkpoint(self) -> None:
        """Kill the driver and remove its checkpoint: a disk is lost. A job with `snapshots=true`
        goes on from Kafka; another one is refused at its next start.

        Raises:
            FaultMissed: There is no checkpoint.
        """
        self.kill_driver(quiet=True)
        if not self.checkpoint.exists():
            raise FaultMissed(f"There is no checkpoint at {self.checkpoint} that could be lost.")
        shutil.rmtree(self.checkpoint)
        self.note("checkpoint lost")

    def roll_back_checkpoint(self) -> None:
        """Kill the driver, and put its checkpoint back as it was before the last start: a disk is
        restored from a backup. A job of eo-kafka's passes over batches that it has written, and
        where they come back with other records its next run raises JobFailed, which names the
        command to go on with.

        Raises:
            FaultMissed: There was no checkpoint then, or no batch has been committed since.
        """
        self.kill_driver(quiet=True)
        if not self.backup.exists():
            raise FaultMissed("Before the last start there was no checkpoint to go back to.")
        newest = [checkpoint_log.newest(at / "commits") for at in (self.backup, self.checkpoint)]
        if newest[0] >= newest[1]:
            raise FaultMissed("No batch was committed since the last start: it is the same.")
        shutil.rmtree(self.checkpoint)
        shutil.copytree(self.backup, self.checkpoint)
        self.note("checkpoint rolled back", batches=newest[1] - newest[0])

    def second_driver(self, at: str = "S6.before_decision", seconds: float = RUN_S) -> None:
        """Two drivers at once on one checkpoint: the first stands still at a crash point, a second
        one takes over and drains the source, then the first one goes on.

        Args:
            at: Where the first one stands.
            seconds: How long each may take.

        Raises:
            FaultMissed: The first driver does not come past that point.
            JobFailed: The second driver fails.
        """
        self.kill_driver(quiet=True)
        wanted = self._wanted(at)
        self.crash_points.clear()
        self.crash_points.arm(at, "wait")
        first = self._start(drain=True)
        self._await_reached(first, at, seconds)
        self.note("first driver waits", point=at)
        harmless = self.folder / "no-crash-points"
        harmless.mkdir(exist_ok=True)
        self._await_end(self.new_driver(harmless, drain=True), seconds, keep_points=True)
        self.crash_points.release(at)
        first.wait(seconds)
        self._ended(first, "first driver went on", exit_code=first.exit_code)
        self._check_through(wanted)

    def speculate(self, at: str = "S3.while_writing", seconds: float = RUN_S) -> None:
        """Run the job to the end of its input on a Spark cluster of two hosts, on which a task
        stands still, a copy of it overtakes it, and then it goes on.

        Args:
            at: Where the task stands: a crash point of a task.
            seconds: How long it may take.

        Raises:
            FaultMissed: No task came past that point, or no copy overtook it.
            JobFailed: The driver fails.
        """
        self.kill_driver(quiet=True)
        wanted = self._wanted(at)
        folder = self.folder / f"cluster-{time.monotonic_ns()}"
        folder.mkdir()
        with standalone(2, folder) as master:
            self.crash_points.clear()
            self.crash_points.arm(at, "stop")
            settings = {
                "spark.master": master,
                **SPECULATION,
                f"spark.executorEnv.{FOLDER}": str(self.crash_points.folder),
                "spark.executorEnv.PYTHONPATH": python_path(),
            }
            driver = self.driver = self.new_driver(self.crash_points.folder, True, settings)
            pid = self._await_reached(driver, at, seconds)
            # Now: a batch before this one, whose rows were there, may have been noted meanwhile.
            before = checkpoint_log.newest(self.checkpoint / "commits")
            self.note("task stands still", point=at, pid=pid)
            deadline = time.monotonic() + seconds
            while (newest := checkpoint_log.newest(self.checkpoint / "commits")) <= before:
                if driver.exit_code is not None or time.monotonic() > deadline:
                    break
                time.sleep(0.05)
            send([pid], signal.SIGCONT)
            self.note("task goes on", overtaken=newest > before)
            self._await_end(driver, seconds)
        if newest <= before:
            raise FaultMissed(f"No copy of the task at '{at}' overtook it.\n{self.trial.report()}")
        self._check_through(wanted)

    def nemesis(
        self,
        seed: int,
        minutes: float,
        feed: Callable[[int], Iterable[Written]],
        faults: Collection[str] | None = None,
    ) -> None:
        """Faults at random for some minutes, and then a run to the end of the source. The seed
        fixes which faults come in which order, and how long they last.

        Args:
            seed: An anomaly's message shows it.
            minutes: How long faults go on to come.
            feed: Gives the records to write into the source before fault 0, 1, 2, and so on: there
                must be something for it to hit.
            faults: Names of `nemesis.FAULTS`; default: all that this job and its Kafka allow.

        Raises:
            FaultMissed: No fault struck.
            JobFailed: A driver ended by itself with an error where none was due.
            ValueError: An unknown fault.
        """
        nemesis.strike(self, seed, minutes, feed, faults)

    def again(self) -> Job:
        """The same job anew: fresh checkpoint, and a sink of its own, as the first one is."""
        now, numbers = self.trial, len(partitions_of(self.trial.servers, self.sink.real_name))
        sink = now.new_topic(f"{self.sink.name}.again{len(now.jobs)}", numbers)
        given = {name: text for name, text in self.config.items() if name not in OURS}
        job = Job(now, self.build, self.source, sink, given, self.spark)
        now.jobs.append(job)
        return job

    def _worker(self, seed: int | None) -> int:
        driver = self.running()
        deadline = time.monotonic() + WORKER_S
        while not (workers := driver.workers()):
            if time.monotonic() > deadline:
                raise FaultMissed(f"The driver has no Python worker.\n{self.trial.report()}")
            self.running()
            time.sleep(0.02)
        return random.Random(seed).choice(workers)  # noqa: S311 - no secret

    def _pause(self, pids: list[int], what: str, seconds: float) -> None:
        self.note(what, pids=pids, seconds=round(seconds, 1))
        send(pids, signal.SIGSTOP)
        try:
            time.sleep(seconds)
        finally:
            send(pids, signal.SIGCONT)
