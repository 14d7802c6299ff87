"""What can be done to a job's drivers, its checkpoint and its output by those who run it."""

from __future__ import annotations

import random
import shutil
import signal
import time
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eo_kafka.errors import EoKafkaError
from eo_kafka.testing.driver import send
from eo_kafka.testing.standalone_spark import SPECULATION, standalone
from harness import committed_messages, open_transactions
from soak.faults import Details, Fault, reach, wait
from soak.supervisor import Job
from soak.workload import PARTITIONS

PREPARING = ("S3.while_writing", "S4.after_token", "S5.prepared")
REACH_S = 150.0  # of a driver that is just starting, on a busy machine
CLEARED_S = 10.0  # for the transactions of a query that was stopped


def speculation(job: Job, chance: random.Random) -> Details | None:
    """On a cluster of two hosts a task stops, its copy overtakes it, and then it goes on."""
    point = chance.choice(PREPARING)
    with standalone(2, _new_folder(job, "cluster")) as master:
        with job.down():
            job.elsewhere = (master, SPECULATION)
        try:
            pid, done = reach(job, point, "stop", REACH_S), job.batches_done()
            overtaken = pid is not None and wait(lambda: job.batches_done() > done, 30)
            send([pid] if pid else [], signal.SIGCONT)
            wait(lambda: job.batches_done() > done + 1, 20)
        finally:
            with job.down():
                job.elsewhere = None
    return None if pid is None else {"point": point, "overtaken": overtaken}


def roll_back(job: Job, chance: random.Random) -> Details | None:
    """The checkpoint is put back as it was some batches ago: a disk restored from a backup. The
    query may only stop, and say which command goes on; the supervisor runs that."""
    with job.down():
        if not (job.checkpoint / "commits").exists():
            return None
        copy, done = _new_folder(job, "backup") / "checkpoint", job.batches_done()
        shutil.copytree(job.checkpoint, copy)
    wanted = chance.randint(1, 3)
    if not wait(lambda: job.batches_done() >= done + wanted, 60):
        return None
    with job.down():
        if not job.checkpoint.exists():  # nothing is there to be rolled back
            return None
        shutil.rmtree(job.checkpoint)
        shutil.copytree(copy, job.checkpoint)
        job.rolled_back = True
    return {"batches": job.batches_done() - done}


def twin_driver(job: Job, _chance: random.Random) -> Details | None:
    """A second driver on the same checkpoint, both awake; when only one lives, it stays."""
    with job.in_hand:
        old = job.driver
        if old is None:
            return None
        done, new = job.batches_done(), job.start()
        ended = wait(lambda: {old.exit_code, new.exit_code} != {None}, 60)
        for one in (old, new):
            if one.exit_code is not None or (one is new and not ended):
                job.reap(one)
        if old.exit_code is None:
            job.driver = old
    return {"one_ended": ended, "batches": job.batches_done() - done}


def stop_in_mid_batch(job: Job, chance: random.Random) -> Details | None:
    """query.stop() while a task has rows in its transaction, or SIGTERM to the JVM. What the query
    has prepared must not hold up the readers of the output until it times out."""
    point, by_query = chance.choice(PREPARING), chance.random() < 0.7
    with job.in_hand:
        driver = job.driver
        if driver is None or reach(job, point, "wait") is None:
            return None
        jvm = driver.jvm()
        if by_query or jvm is None:
            driver.terminate()
        else:
            send([jvm], signal.SIGTERM)
        time.sleep(chance.uniform(0, 3))
        job.crash_points.release(point)
        driver.wait(30)
        left: list[str] | None = _left_open(job) if by_query else None
        job.kill()
    return {"point": point, "by_query": by_query, "left_open": left}


def _left_open(job: Job) -> list[str] | None:
    """What is open some seconds after the stop; None if brokers could not be asked."""
    found: list[str] = []

    def none() -> bool:
        found[:] = open_transactions(job.kafka)
        return not found

    try:
        wait(none, CLEARED_S, pause=0.3)
    except (EoKafkaError, KafkaException):
        return None
    return found


def replace_output(job: Job, chance: random.Random) -> Details | None:
    """While the first batch is in the middle of its commit, and nothing of it is committed, the
    output topic is deleted and made again. Later it would take committed rows with it."""
    point = chance.choice([*PREPARING, "S6.before_decision"])
    wait(lambda: job.driver, REACH_S)
    if reach(job, point, "wait", REACH_S) is None:
        return None
    topic, servers = job.kafka.sink_topic, job.kafka.servers
    admin = AdminClient({"bootstrap.servers": servers})
    try:
        if committed_messages(servers, topic):  # by tasks that commit by themselves
            return None
        admin.delete_topics([topic])[topic].result(30)
        wait(lambda: _made(admin, topic), 30, pause=0.2)
    finally:
        job.crash_points.release(point)
    return {"point": point}


def _made(admin: AdminClient, topic: str) -> bool:
    try:
        admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    except KafkaException:  # the old one is not gone yet
        return False
    return True


def _new_folder(job: Job, name: str) -> Path:
    folder = job.folder / f"{name}-{time.monotonic_ns()}"
    folder.mkdir()
    return folder


OPENING = Fault("output replaced", 1, replace_output)  # once a run, before anything is DONE
QUERY_FAULTS = (
    Fault("speculation", 2, speculation),
    Fault("twin driver", 2, twin_driver),
    Fault("stop in mid-batch", 3, stop_in_mid_batch),
    Fault("checkpoint rolled back", 2, roll_back),
)
