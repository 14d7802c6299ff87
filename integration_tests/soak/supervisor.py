"""Keeps one job running: starts its driver, notes how it ended, and starts it again."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from eo_kafka.testing.driver import Driver
from eo_kafka.testing.history import History
from eo_kafka.testing.processes import FOLDER
from harness import Copy, CrashPoints
from soak.workload import WATERMARK_DELAY_S, WINDOW_S, Workload

PROGRAM = Path(__file__).parent / "job.py"
PER_BATCH = 300
REDO = "job redo"
WAYS_BACK = (REDO, "snapshots restore")


class Job:
    """One of the soak's jobs. The nemesis takes it `in_hand` while it does something to it.

    The number of writing tasks changes only where nothing is decided and unfinished: a partly
    lost batch can be mended by an equal replay only, and RepairNeeded would then be in order.
    """

    def __init__(
        self, workload: Workload, servers: str, timeout_s: int, folder: Path, history: History
    ) -> None:
        self.workload = workload
        self.name = workload.name
        self.folder = folder / workload.name
        self.folder.mkdir()
        self.history = history
        self.transaction_timeout_s = timeout_s
        self.checkpoint = self.folder / "checkpoint"
        (self.folder / "crash-points").mkdir()
        self.crash_points = CrashPoints(self.folder / "crash-points")
        self.cores, self.tasks = 2, 3
        self.driver: Driver | None = None
        self.in_hand = threading.RLock()
        # Another cluster's URL, and settings for it; else the driver runs its tasks itself.
        self.elsewhere: tuple[str, dict[str, str]] | None = None
        self.rolled_back = False  # the checkpoint is an old one: a refusal is in order
        self._starts = 0
        self._to_the_end = False
        # The names under which harness.py knows a job.
        self.kafka = Copy(
            servers,
            source_topic=f"{self.name}-in",
            sink_topic=f"{self.name}-out",
            checkpoint=self.checkpoint,
            job_name=f"soak-{self.name}",
            per_batch=PER_BATCH,
            timeout_ms=timeout_s * 1000,
            sink_extra={"snapshots": "true", **(workload.sink_options or {})},
        )

    @property
    def commits_by_tasks(self) -> bool:
        return self.kafka.sink_extra.get("commit") == "idempotent"

    def start(self) -> Driver:
        """Start a driver; whatever runs already is left alone."""
        self._starts += 1
        master, conf = self.elsewhere or (f"local[{self.cores},4]", {})
        words = {
            **self.kafka.as_job(),
            "master": master,
            "conf": {
                **conf,
                f"spark.executorEnv.{FOLDER}": str(self.crash_points.folder),
            },
            "workload": self.workload.transform,
            "tasks": self.tasks,
            "window_s": WINDOW_S,
            "watermark_delay_s": WATERMARK_DELAY_S,
            "to_the_end": self._to_the_end,
        }
        log = self.folder / f"driver-{self._starts:03}.log"
        command = [sys.executable, str(PROGRAM), json.dumps(words)]
        self.driver = Driver(command, log, {FOLDER: str(self.crash_points.folder)})
        self.history.add(self.name, "start", cores=self.cores, tasks=self.tasks, log=log.name)
        return self.driver

    def reap(self, driver: Driver) -> None:
        """Note how a driver ended, and end what is left of it."""
        driver.kill()
        why, told = driver.reason()
        said = driver.log.read_text(errors="replace") if self.rolled_back else ""
        if any(command in said for command in WAYS_BACK):
            why = "rolled back"
            self._go_back(REDO in said)
        self.history.add(self.name, "end", why=why, told=told, log=driver.log.name)
        if driver is self.driver:
            self.driver = None

    def _go_back(self, redo: bool) -> None:
        """What the refusal asks for: `job redo`; or, and where that is refused too (a plan with
        state goes on from a snapshot only), to give the checkpoint up for the newest snapshot."""
        done, told = -1, ""
        if redo:
            where = [str(self.checkpoint), "--bootstrap-servers", self.kafka.servers]
            tool = str(Path(sys.executable).with_name("eo-kafka"))
            command = [tool, *REDO.split(), self.kafka.job_name, *where]
            run = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            done, told = run.returncode, (run.stdout + run.stderr)[-400:]
        if done:
            shutil.rmtree(self.checkpoint)
        self.history.add(self.name, "went back", rewound=not done, told=told)
        self.rolled_back = False

    def kill(self) -> None:
        """SIGKILL everything of the job."""
        if self.driver is not None:
            self.reap(self.driver)

    def tick(self) -> None:
        """Start it again if it ended, unless the nemesis has it in hand."""
        if not self.in_hand.acquire(blocking=False):
            return
        try:
            if self.driver is not None and self.driver.exit_code is not None:
                self.reap(self.driver)
            if self.driver is None:
                self.start()
        finally:
            self.in_hand.release()

    @contextmanager
    def down(self) -> Iterator[None]:
        """The job while nothing of it runs."""
        with self.in_hand:
            self.kill()
            yield
            if self.driver is None:
                self.start()

    def change(self, chance: random.Random, unfinished: bool) -> None:
        """Another number of cores, and of tasks unless that must stay (see the class)."""
        self.cores = chance.choice([1, 2, 3])
        if self.workload.repartitioned and not unfinished:
            self.tasks = chance.choice([1, 2, 3, 5])

    def run_to_the_end(self, seconds: float) -> bool:
        """Run until all that is in the input is through. Tells whether it came to that.

        In one batch: a watermark is every partition's, and the last records of one partition
        would make the last but one of another late.
        """
        deadline = self.history.seconds + seconds
        with self.in_hand:
            self.crash_points.clear()
            self.kafka.per_batch = 10**9
            self._to_the_end = True
            while (left := deadline - self.history.seconds) > 0:
                driver = self.start()
                code = driver.wait(left)
                self.reap(driver)
                if code == 0:
                    return True
        return False

    def batches_done(self) -> int:
        """How many batches were seen to be DONE."""
        return self.history.count(self.name, "done")
