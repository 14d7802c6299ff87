"""Kills the job's processes with SIGKILL: nothing is told, flushed or closed.

The last one takes the checkpoint's folder, too: the job goes on from its snapshot in Kafka. Each
kill has a target and a moment:

    moment "any"        at a random point of a micro-batch
    moment "half done"  after the output grew, before Spark noted the micro-batch as committed:
                        where Spark's own connector writes the same records again
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]
from confluent_kafka import Consumer, TopicPartition
from run import PARTITIONS, Job, Run

DISK = "all processes and the checkpoint"
PLANS = {
    "eo-kafka": [
        ("JVM", "any"),
        ("Python worker", "any"),
        ("JVM", "half done"),
        ("Python driver", "any"),
        ("all processes", "any"),
        ("Python worker", "any"),
        (DISK, "any"),
    ],
    "kafka": [("JVM", "half done")] * 4,
}
PLANS["eo-postgres"] = PLANS["eo-kafka"]
FIRST, LAST = 0.03, 0.88  # of the flights; the kills are spread between
MOMENT_SECONDS = 60.0


@dataclass(frozen=True)
class Kill:
    """What was killed, and where the job stood."""

    target: str
    moment: str
    event_time: str | None


class Nemesis:
    """Strikes when the job has read so many events; the seed fixes thresholds and
    pauses, not what the processes happen to be doing."""

    def __init__(self, run: Run, job: Job, events: int, seed: int, kills: int | None) -> None:
        self._run, self._job = run, job
        self._random = random.Random(seed)
        plan = PLANS[run.format]
        plan = plan if kills is None else plan[len(plan) - kills :]
        width = (LAST - FIRST) / max(1, len(plan))
        self._due = [
            (int(events * (FIRST + width * (number + self._random.random()))), *what)
            for number, what in enumerate(plan)
        ]
        self.kills: list[Kill] = []

    def strike_if_due(self) -> None:
        """Kill, if the job has come so far. Waits for the moment, a few seconds at most."""
        progress = self._job.progress()
        if not self._due or not progress or progress[-1]["read"] < self._due[0][0]:
            return
        _, target, moment = self._due[0]
        if moment == "half done":
            if not self._wait_until_half_done():
                return
        else:
            time.sleep(self._random.uniform(0, 1.5))
        tree = self._job.processes()
        victims = TARGETS[target](tree)
        if not victims:
            return  # no worker just now, or the job died by itself: the next call tries again
        if target == "Python worker":
            victims = self._random.sample(victims, 1)
        killed = [_killed(victim) for victim in victims]
        if not any(killed):
            return  # they have ended meanwhile
        if target != "Python worker":
            self._job.clear(tree)
        if target == DISK:
            shutil.rmtree(self._run.checkpoint)
        newest = [facts["event_time"] for facts in progress if facts["event_time"]]
        self.kills.append(Kill(target, moment, max(newest, default=None)))
        self._due.pop(0)

    def _wait_until_half_done(self) -> bool:
        """Return at the moment; False if it did not come, because the job ended or waits."""
        batch, before = -1, 0
        deadline = time.monotonic() + MOMENT_SECONDS
        watch = Consumer({"bootstrap.servers": self._run.bootstrap_servers, "group.id": "nemesis"})
        try:
            while time.monotonic() < deadline and self._job.exit_code is None:
                newest = _newest(self._run.checkpoint / "offsets")
                if newest != batch:
                    batch, before = newest, self._output_end(watch)
                elif self._output_end(watch) > before and not self._committed(batch):
                    return True
                time.sleep(0.002)
            return False
        finally:
            watch.close()

    def _committed(self, batch: int) -> bool:
        return (self._run.checkpoint / "commits" / str(batch)).exists()

    def _output_end(self, watch: Consumer) -> int:
        partitions = [TopicPartition(self._run.output, number) for number in range(PARTITIONS)]
        return sum(watch.get_watermark_offsets(one, timeout=10)[1] for one in partitions)


def _newest(folder: Path) -> int:
    """The newest micro-batch in one of the checkpoint's logs."""
    names = [path.name for path in folder.iterdir()] if folder.exists() else []
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _named(tree: list[psutil.Process], word: str) -> list[psutil.Process]:
    found = []
    for process in tree[1:]:
        try:
            if word in process.name():
                found.append(process)
        except psutil.NoSuchProcess:
            continue
    return found


TARGETS: dict[str, Callable[[list[psutil.Process]], list[psutil.Process]]] = {
    "Python driver": lambda tree: tree[:1],
    "JVM": lambda tree: _named(tree, "java"),
    "Python worker": lambda tree: _named(tree, "python"),
    "all processes": lambda tree: tree,
    DISK: lambda tree: tree,
}


def _killed(victim: psutil.Process) -> bool:
    """Kill it; False if it was not there any more."""
    try:
        victim.kill()
    except psutil.NoSuchProcess:
        return False
    return True
