"""The demo in a production's shape: by spark-submit to the Spark of docker/compose.yaml, on three
Kafka brokers. On its way one executor runs out of memory, and the kernel kills it; then a worker's
container is killed; then the driver's, and the checkpoint with it, and another container goes on
from the snapshot in Kafka.

    make demo-cluster

It needs a Docker engine, compose, and the images (docker/README.md). Exits with 0 only if the
output is, row by row, what a batch computation says.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pandas as pd
from compare import committed, compare, computed
from demo import new_run, show_ledger, survive, tell
from flights import airlines_csv, flights
from nemesis import Kill
from run import PER_BATCH, Run, producer

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker" / "compose.yaml"
BROKERS = "kafka-1:9092,kafka-2:9092,kafka-3:9092"  # as containers reach them
MASTER = "spark://spark-master:7077"
SERVICES = ("kafka-1", "kafka-2", "kafka-3", "spark-master", "spark-worker-1", "spark-worker-2")
UP_SECONDS = 300
STALLED_SECONDS = 300.0  # containers share the cores of one machine
PROGRESS = "/tmp/progress.jsonl"
MEMORY, WORKER = "an executor by the kernel (out of memory)", "a worker's container"
DRIVER = "the driver's container and the checkpoint"
# Takes all memory of its container until the kernel has killed an executor there, which it tells
# the kernel to choose
HOG = """
from pathlib import Path

places = "/sys/fs/cgroup/memory/memory.oom_control", "/sys/fs/cgroup/memory.events"
(counts,) = (Path(place) for place in places if Path(place).exists())
for process in Path("/proc").glob("[0-9]*"):
    program, *words = (process / "cmdline").read_bytes().split(b"\\0")
    if program.endswith(b"java") and any(b"CoarseGrainedExecutor" in word for word in words):
        (process / "oom_score_adj").write_text("1000")
before, held = None, []
while before in (None, now := counts.read_text().partition("oom_kill ")[2]):
    before = now
    held.append(b"x" * (16 << 20))
"""


def main() -> int:
    arguments = _arguments()
    begin = time.monotonic()
    table = flights(arguments.limit)
    ports = [os.environ.get(f"KAFKA_PORT_{n}", str(29091 + n)) for n in (1, 2, 3)]
    run = new_run(arguments, ",".join(f"127.0.0.1:{port}" for port in ports))
    cluster = Cluster(f"eo-demo-{os.getpid()}", run)
    try:
        cluster.up()
        print(f"{len(table):,} flights go through {len(SERVICES)} containers; logs in {run.folder}")
        run.create_topics()
        job = ContainerJob(
            cluster, run, table["scheduled"].iloc[-1].floor("h") + timedelta(hours=1)
        )
        nemesis = ContainerNemesis(cluster, job, len(table))
        with producer(run) as playing:
            late = survive(run, table, playing, job, nemesis, STALLED_SECONDS)
        found = committed(run.bootstrap_servers, run.output)
        result = compare(computed(table), found)
        tell(run, table, nemesis.kills, found, result, late)
        print(f"drivers     {job.starts}: {', '.join(job.names)}")
        show_ledger(run)
    finally:
        cluster.down()
    print(f"\nIt took {time.monotonic() - begin:.0f} s.")
    struck = len(nemesis.kills) == 3
    return 0 if struck and result.equal and not late else 1


class Cluster:
    """The containers of docker/compose.yaml, in a project of this run's own."""

    def __init__(self, project: str, run: Run) -> None:
        self.project = project
        files = run.folder / "job"  # what containers see as /opt/job
        shutil.copytree(Path(__file__).parent, files, ignore=shutil.ignore_patterns("__pycache__"))
        data = airlines_csv().parent.parent
        shutil.copytree(data, files / data.name, ignore=shutil.ignore_patterns("__pycache__"))
        self._environment = {
            "EO_KAFKA_REGISTRY": "localhost/eo-kafka/",  # what build-local.sh makes
            **os.environ,
            "JOB_FILES": str(files),
        }
        found = subprocess.run(["docker", "compose", "version"], capture_output=True, check=False)
        program = ["docker", "compose"] if found.returncode == 0 else ["docker-compose"]
        self._compose = [*program, "-p", project, "-f", str(COMPOSE_FILE)]
        self._log = run.folder / "compose.log"

    def compose(self, *words: str) -> None:
        """Run compose; its output goes into compose.log."""
        with self._log.open("ab") as log:
            done = subprocess.run(
                [*self._compose, *words],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
        if done.returncode != 0:
            raise SystemExit(f"compose {' '.join(words[:2])} failed: see {self._log}")

    def up(self) -> None:
        """Start the services, and return when all are healthy."""
        self.compose("up", "-d", *SERVICES)
        deadline = time.monotonic() + UP_SECONDS
        while self._healthy() < len(SERVICES):
            if time.monotonic() > deadline:
                raise SystemExit(f"Not healthy after {UP_SECONDS} s: docker ps --all")
            time.sleep(1)

    def _healthy(self) -> int:
        return len(self._containers("--filter", "health=healthy"))

    def _containers(self, *options: str) -> list[str]:
        label = f"label=com.docker.compose.project={self.project}"
        return docker("ps", "--quiet", "--filter", label, *options).split()

    def container(self, service: str) -> str:
        """The id of a service's container; compose's versions name them differently."""
        (found,) = self._containers("--filter", f"label=com.docker.compose.service={service}")
        return found

    def down(self) -> None:
        """End and remove everything, the drivers too."""
        for container in self._containers("--all"):
            with (self._log.parent / f"container-{container}.log").open("wb") as log:
                subprocess.run(["docker", "logs", container], stdout=log, stderr=log, check=False)
            docker("rm", "--force", "--volumes", container)
        self.compose("down", "--volumes")


class ContainerJob:
    """The streaming job as `survive` sees it: each driver in a container of its own."""

    def __init__(self, cluster: Cluster, run: Run, last_window_end: pd.Timestamp) -> None:
        self._cluster, self._run, self._until = cluster, run, last_window_end
        self.names: list[str] = []
        self._past: list[dict[str, Any]] = []  # what the drivers before told

    @property
    def starts(self) -> int:
        """How many drivers there were."""
        return len(self.names)

    def start(self) -> None:
        """Submit it from another container than before."""
        if self.names:
            self._past = self.progress()
        self.names.append(f"{self._cluster.project}-driver-{self.starts + 1}")
        # not --rm: its log and its exit code are asked for
        self._cluster.compose(
            *("run", "-d", "--name", self.names[-1], "job", "/opt/spark/bin/spark-submit"),
            *("--master", MASTER, "--conf", "spark.executor.memory=640m"),
            *("/opt/job/job.py", "--master", MASTER, "--format", self._run.format),
            *("--bootstrap-servers", BROKERS, "--input", self._run.input),
            *("--output", self._run.output, "--job-name", self._run.job_name),
            *("--checkpoint", f"/checkpoints/{self._run.id}", "--progress", PROGRESS),
            *("--per-batch", str(PER_BATCH), "--until", self._until.isoformat()),
        )

    @property
    def exit_code(self) -> int | None:
        """None while the driver runs; 0 when all windows are written."""
        format_ = "{{.State.Running}} {{.State.ExitCode}}"
        running, code = docker("inspect", "--format", format_, self.names[-1]).split()
        return None if running == "true" else int(code)

    def progress(self) -> list[dict[str, Any]]:
        """The micro-batches so far; see `facts_of` in job.py."""
        words = ["docker", "cp", f"{self.names[-1]}:{PROGRESS}", "-"]
        done = subprocess.run(words, capture_output=True, check=False)
        if done.returncode != 0:
            return self._past  # it is not there yet
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            (member,) = archive.getmembers()
            file = archive.extractfile(member)
            assert file is not None
            lines = file.read().decode().splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.endswith("\n")]
        return [*self._past, *told]

    def kill(self) -> None:
        """Kill the driver's container, and delete the checkpoint it shared with the workers."""
        docker("kill", self.names[-1])
        worker = self._cluster.container("spark-worker-2")
        docker("exec", worker, "rm", "-rf", f"/checkpoints/{self._run.id}")

    def close(self) -> None:
        """Nothing: the containers end with the cluster."""


class ContainerNemesis:
    """Strikes after a quarter, a half and three quarters of the flights."""

    def __init__(self, cluster: Cluster, job: ContainerJob, events: int) -> None:
        self._cluster, self._job = cluster, job
        self._due = [
            (events * number // 4, target)
            for number, target in enumerate((MEMORY, WORKER, DRIVER), start=1)
        ]
        self.kills: list[Kill] = []

    def strike_if_due(self) -> None:
        """Kill, if the job has come so far."""
        progress = self._job.progress()
        if not self._due or not progress or progress[-1]["read"] < self._due[0][0]:
            return
        if self._job.exit_code is not None:
            return
        _, target = self._due.pop(0)
        if target == MEMORY:
            worker = self._cluster.container("spark-worker-2")
            docker("exec", worker, "python3", "-c", HOG)
        elif target == WORKER:
            worker = self._cluster.container("spark-worker-1")
            docker("kill", worker)
            docker("start", worker)
        else:
            self._job.kill()
        newest = [facts["event_time"] for facts in progress if facts["event_time"]]
        self.kills.append(Kill(target, "any", max(newest, default=None)))


def docker(*words: str) -> str:
    """What docker answers. Ends the demo with docker's own words if it refuses."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"docker {' '.join(words)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout.strip()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("demo-output"), metavar="FOLDER")
    parser.add_argument("--limit", type=int, help="only the first so many flights")
    parser.add_argument("--seconds", type=float, default=60, help="how long the producer plays")
    parser.set_defaults(format="eo-kafka")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
