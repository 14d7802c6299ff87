"""What a snapshot costs a batch, and how fast it comes back.

    python -m benchmarks.snapshots [--rounds 20] [--partitions 200] [--megabytes 1024]

Run it from the root of the repository. Two measurements, each in turns within one run:

* **Per batch**: `commit()` of a job with one task and a checkpoint of `--partitions` state stores,
  with and without `snapshots`. The checkpoint is made by this program, file by file as Spark's
  HDFS-backed store leaves it: each batch adds a delta a store, and now and then a full file.
* **Restore**: a snapshot of `--megabytes`, against a plain consumer that reads the same topic and
  drops what it reads; with the highest resident memory of the restoring process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import eo_kafka
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import committer, two_phase
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity

DELTA = 2_000  # bytes a store and batch
FULL_EVERY = 10
FILE = 8 << 20


@dataclass(frozen=True)
class Job:
    """A job that is run by the sink's own code, without Spark."""

    servers: str
    name: str
    checkpoint: Path
    snapshots: bool

    @property
    def given(self) -> dict[str, str]:
        """What a user gives the sink."""
        return {
            "kafka.bootstrap.servers": self.servers,
            "topic": self.name,
            "jobName": self.name,
            "snapshots": str(self.snapshots).lower(),
        }

    def put(self, path: str, content: bytes) -> None:
        """A file of the checkpoint."""
        file = self.checkpoint / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)

    def spark_writes(self, batch: int) -> None:
        """The logs, as they are when the tasks of `batch` start."""
        self.put("metadata", b'{"id":"%s"}' % self.name.encode())
        self.put(f"offsets/{batch}", b'v1\n{"batchTimestampMs":1}\n{"in":{"0":%d}}' % batch)
        if batch:
            self.put(f"commits/{batch - 1}", b'v1\n{"nextBatchWatermarkMs":0}')

    def commit(self, batch: int) -> float:
        """S1 to S8; the seconds of S6 to S8."""
        options = SinkOptions.parse(self.given, streaming=True)
        task = TaskIdentity("query", batch, 0, 0, checkpoint=str(self.checkpoint))
        rows = pa.RecordBatch.from_pydict({"value": pa.array([b"row"])})
        report = two_phase.write(options, make_plan(options), task, iter([rows]))
        began = time.monotonic()
        committer.commit(options, [report], batch)
        return time.monotonic() - began


def per_batch(servers: str, folder: Path, rounds: int, partitions: int) -> str:
    """Median milliseconds of a commit, with and without snapshots, in turns."""
    jobs = [_new_job(servers, folder, snapshots) for snapshots in (False, True)]
    seconds: dict[bool, list[float]] = {False: [], True: []}
    for batch in range(rounds + 3):
        for job in jobs if batch % 2 else reversed(jobs):
            job.spark_writes(batch)
            for partition in range(partitions if batch else 0):
                job.put(f"state/0/{partition}/{batch}.delta", os.urandom(DELTA))
                if batch % FULL_EVERY == 0:
                    job.put(f"state/0/{partition}/{batch}.snapshot", os.urandom(DELTA * 5))
            took = job.commit(batch)
            if batch >= 3:  # clients and connections are there
                seconds[job.snapshots].append(took)
    without, with_them = (median(seconds[snapshots]) * 1000 for snapshots in (False, True))
    worst = max(seconds[True]) * 1000
    return (
        f"commit() with {partitions} state stores, {DELTA} new bytes each: {without:.0f} ms "
        f"without snapshots, {with_them:.0f} ms with them (+{with_them - without:.0f} ms; the "
        f"worst {worst:.0f} ms), medians of {rounds} batches"
    )


def restore(servers: str, folder: Path, megabytes: int, rounds: int) -> str:
    """Megabytes a second of a restore and of a plain consumer, in turns."""
    job = _new_job(servers, folder, snapshots=True)
    job.spark_writes(0)
    job.commit(0)
    job.spark_writes(1)
    for number in range(max(1, (megabytes << 20) // FILE)):
        job.put(f"state/0/{number}/1.snapshot", os.urandom(FILE))
    began = time.monotonic()
    job.commit(1)
    first = megabytes / (time.monotonic() - began)
    rates: dict[str, list[float]] = {"consumer": [], "restore": []}
    peak = 0
    for number in range(rounds + 1):
        consumer = _in_own_process(_consume, servers, f"__eo_kafka.{job.name}.state")
        target = folder / f"restored-{number}"
        restored = _in_own_process(_restore, job, str(target))
        shutil.rmtree(target)
        if number:
            rates["consumer"].append(megabytes / consumer[0])
            rates["restore"].append(megabytes / restored[0])
            peak = max(peak, restored[1])
    ratio = median(r / c for r, c in zip(rates["restore"], rates["consumer"], strict=True))
    return (
        f"restore of {megabytes} MB: {median(rates['restore']):.0f} MB/s, a plain consumer of the "
        f"same topic {median(rates['consumer']):.0f} MB/s: {ratio:.2f} of it; at most {peak} MB "
        f"resident; the first snapshot was sent at {first:.0f} MB/s"
    )


def _new_job(servers: str, folder: Path, snapshots: bool) -> Job:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return Job(servers, name, folder / name, snapshots)


def _in_own_process(function, *arguments) -> tuple[float, int]:  # type: ignore[no-untyped-def]
    """Seconds and highest resident megabytes of a call."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_measured, (function, arguments))


def _measured(function, arguments) -> tuple[float, int]:  # type: ignore[no-untyped-def]
    began = time.monotonic()
    function(*arguments)
    took = time.monotonic() - began
    return took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _restore(job: Job, target: str) -> None:
    eo_kafka.restore(target, job.name, job.given, progress=False)


def _consume(servers: str, topic: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "isolation.level": "read_committed",
            "check.crcs": "true",
        }
    )
    at = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(at, timeout=30)
    consumer.assign([at])
    while consumer.position([at])[0].offset < end:
        consumer.consume(32, timeout=0.2)
    consumer.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both and print a line each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshots", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="measured batches")
    parser.add_argument("--partitions", type=int, default=200, help="state stores")
    parser.add_argument("--megabytes", type=int, default=1024, help="of the snapshot to restore")
    options = parser.parse_args(arguments)
    with (
        KafkaBroker() as broker,
        tempfile.TemporaryDirectory(prefix="eo-kafka-bench-") as folder,
    ):
        servers = broker.bootstrap_servers
        print(per_batch(servers, Path(folder), options.rounds, options.partitions), flush=True)
        print(restore(servers, Path(folder), options.megabytes, rounds=3), flush=True)


if __name__ == "__main__":
    sys.exit(main())
