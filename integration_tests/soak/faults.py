"""What can be done to a job. Each fault returns what it did, or None if it could do nothing."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import psutil
from confluent_kafka import KafkaException, Producer

from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.core.crash_points import POINTS
from eo_kafka.errors import EoKafkaError
from eo_kafka.state.ledger.ledger import DECISION_PARTITION
from eo_kafka.testing.driver import send
from harness import open_transactions, read_ledger
from soak.supervisor import Job
from soak.workload import ABORTED

Details = dict[str, Any]
REACH_S = 20.0
TASK_STEPS = ("S2", "S3", "S4", "S5")
COMMIT_POINTS = ("S6.before_decision", "S6.after_decision", "S7.after_first_end_txn")
COMMITTED_BY_ITSELF = "one-phase.committed"  # a task, with commit=idempotent
# Nothing ever acts at these while all goes well, or only once in a query's life.
RARE = {
    "abort.before_end_txn",
    "source.after_initial_resolution",
    "S6.while_sending_ahead",  # of snapshots larger than the soak's
    "restore.while_writing",
}


def kill_worker(job: Job, chance: random.Random) -> Details | None:
    """SIGKILL one Python worker: a task's, the source's or the commit's."""
    workers = job.driver.workers() if job.driver else []
    if not workers:
        return None
    victim = chance.choice(workers)
    send([victim], signal.SIGKILL)
    return {"pid": victim}


def kill_jvm(job: Job, _chance: random.Random) -> Details | None:
    """SIGKILL the JVM; the Python driver and the workers are left to notice."""
    jvm = job.driver.jvm() if job.driver else None
    if jvm is None:
        return None
    send([jvm], signal.SIGKILL)
    return {"pid": jvm}


def kill_all(job: Job, _chance: random.Random) -> Details | None:
    """SIGKILL every process of the job."""
    with job.in_hand:
        if job.driver is None:
            return None
        job.kill()
    return {}


def pause_worker(job: Job, chance: random.Random) -> Details | None:
    """SIGSTOP one Python worker, and let it go on later: perhaps as a zombie."""
    workers = job.driver.workers() if job.driver else []
    return _pause(job, chance.choice(workers), chance) if workers else None


def pause_jvm(job: Job, chance: random.Random) -> Details | None:
    """SIGSTOP the JVM for a while."""
    jvm = job.driver.jvm() if job.driver else None
    return None if jvm is None else _pause(job, jvm, chance)


def _pause(job: Job, pid: int, chance: random.Random) -> Details:
    too_long = chance.random() < 0.2  # for the transaction
    seconds = job.transaction_timeout_s + 3 if too_long else chance.uniform(0.5, 8)
    send([pid], signal.SIGSTOP)
    time.sleep(seconds)
    send([pid], signal.SIGCONT)
    return {"pid": pid, "seconds": round(seconds, 1)}


def stop_in_order(job: Job, _chance: random.Random) -> Details | None:
    """SIGTERM: the driver calls query.stop(), wherever the query is."""
    with job.in_hand:
        if job.driver is None:
            return None
        job.driver.terminate()
        code = job.driver.wait(30)
        job.kill()
    return {"exit_code": code}


def change_plan(job: Job, chance: random.Random) -> Details:
    """Start again with another number of cores and tasks."""
    with job.down():
        unfinished = _has_unfinished(job)
        job.change(chance, unfinished)
    return {"cores": job.cores, "tasks": job.tasks, "unfinished": unfinished}


def _has_unfinished(job: Job) -> bool:
    """Whether the ledger has a decision that is not finished, or one may still appear in it."""
    control = ControlPlane({"bootstrap.servers": job.kafka.servers})
    try:
        ends = {control.end_offset(job.kafka.ledger, DECISION_PARTITION, c) for c in (True, False)}
        return len(ends) > 1 or bool(read_ledger(job.kafka).unfinished())
    except EoKafkaError:  # a broker is down: nobody can say
        return True
    finally:
        control.close()


def forget_commit(job: Job, _chance: random.Random) -> Details | None:
    """Remove the newest file of Spark's commit log, as if the driver had died before writing it."""
    with job.down():
        commits = job.checkpoint / "commits"
        names = [path.name for path in commits.iterdir()] if commits.exists() else []
        newest = max((int(name) for name in names if name.isdigit()), default=None)
        if newest is None:
            return None
        (commits / str(newest)).unlink()
        (commits / f".{newest}.crc").unlink(missing_ok=True)
    return {"batch": newest}


def lose_disk(job: Job, chance: random.Random) -> Details | None:
    """The checkpoint is gone, in the middle of a commit or at any time: the next driver has nothing
    but Kafka to go on from."""
    points = (COMMITTED_BY_ITSELF,) if job.commits_by_tasks else COMMIT_POINTS
    point = chance.choice([*points, None])
    reached = point is not None and reach(job, point, "kill-driver") is not None
    with job.down():
        if not job.checkpoint.exists():
            return None
        shutil.rmtree(job.checkpoint)
        job.rolled_back = False
    return {"point": point if reached else "any"}


def crash(job: Job, chance: random.Random) -> Details | None:
    """Die, fail or stop at a named step of the protocol."""
    elsewhere = "S6 S7 S8" if job.commits_by_tasks else "one-phase"
    usual = [name for name in sorted(POINTS - RARE) if name.split(".")[0] not in elsewhere]
    point = chance.choice(usual)
    action = chance.choice(["kill", "kill-driver", "raise", "stop"])
    pid = reach(job, point, action)
    if pid is None:
        return None
    seconds = chance.uniform(1, 8) if action == "stop" else 0
    time.sleep(seconds)
    send([pid] if action == "stop" else [], signal.SIGCONT)
    return {"point": point, "action": action, "seconds": round(seconds, 1)}


def long_outage(job: Job, chance: random.Random) -> Details:
    """Die in the middle of a commit, and stay down for longer than the transaction timeout."""
    point = chance.choice(COMMIT_POINTS)
    reached = reach(job, point, "kill-driver") is not None
    seconds = job.transaction_timeout_s + chance.uniform(2, 6)
    with job.down():
        time.sleep(seconds)
    return {"point": point if reached else "any", "seconds": round(seconds, 1)}


def zombie_driver(job: Job, chance: random.Random) -> Details | None:
    """Stop all of a driver, start another, and let the first go on when the second is at work."""
    point = chance.choice([*COMMIT_POINTS, "S1.after_generation", "S8.after_done", None])
    with job.in_hand:
        old = job.driver
        if old is None or (point is not None and reach(job, point, "stop") is None):
            return None
        old.signal_all(signal.SIGSTOP)
        at_work = _start_another(job)
        old.signal_all(signal.SIGCONT)
        new = job.driver
        wait(lambda: old.exit_code is not None or new is None or new.exit_code is not None, 40)
        killed = old.exit_code is None
        job.reap(old)
    return {"point": point or "any", "second_at_work": at_work, "first_killed": killed}


def zombie_worker(job: Job, chance: random.Random) -> Details | None:
    """Stop a task, kill its driver, start another, and let the task go on when that is at work."""
    point = chance.choice([name for name in sorted(POINTS) if name[:2] in TASK_STEPS])
    with job.in_hand:
        pid, old = reach(job, point, "stop"), job.driver
        if pid is None or old is None:
            return None
        send([one for one in old.session() if one != pid], signal.SIGKILL)
        at_work = _start_another(job)
        send([pid], signal.SIGCONT)
        wait(lambda: not psutil.pid_exists(pid), 10)
        job.reap(old)
    return {"point": point, "second_at_work": at_work}


def _start_another(job: Job) -> bool:
    """Start a driver beside the one there is. Tells whether it got a batch DONE."""
    new, done = job.start(), job.batches_done()
    wait(lambda: job.batches_done() > done or new.exit_code is not None, 120)
    return job.batches_done() > done


def hijack(job: Job, chance: random.Random) -> Details | None:
    """Another program takes transactional ids of prepared transactions and writes under one."""
    point = chance.choice(COMMIT_POINTS[:2])
    if reach(job, point, "wait") is None:
        return None
    taken = []
    try:
        found = open_transactions(job.kafka)
        for name in chance.sample(found, chance.randint(1, len(found))) if found else ():
            taken.append(".".join(name.split(".")[2:]))
            _take(job, name)
    except (EoKafkaError, KafkaException):  # a broker is down: what was taken was taken
        pass
    finally:
        job.crash_points.release(point)
        time.sleep(0.2)  # the process that waits looks every 0.02 s
    return {"point": point, "taken": taken} if taken else None


def _take(job: Job, transactional_id: str) -> None:
    thief = Producer(
        {
            "bootstrap.servers": job.kafka.servers,
            "transactional.id": transactional_id,
            "allow.auto.create.topics": False,
            "transaction.timeout.ms": job.transaction_timeout_s * 1000,
            "log_level": 0,
        }
    )
    thief.init_transactions(20)
    thief.begin_transaction()
    thief.produce(job.kafka.sink_topic, f"{ABORTED}hijack")
    thief.flush(5)
    thief.abort_transaction(10)


def reach(job: Job, point: str, action: str, seconds: float = REACH_S) -> int | None:
    """Arm a crash point; the process that reached it, or None if none did in time."""
    driver = job.driver
    job.crash_points.clear()
    job.crash_points.arm(point, action)
    wait(
        lambda: job.crash_points.reached(point) or driver is None or driver.exit_code is not None,
        seconds,
    )
    (job.crash_points.folder / point).unlink(missing_ok=True)
    return job.crash_points.reached(point)


def wait(condition: Callable[[], object], seconds: float, pause: float = 0.02) -> bool:
    """Whether it came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


class Fault(NamedTuple):
    """`weight` is how often it is picked, beside the others'."""

    name: str
    weight: int
    strike: Callable[[Job, random.Random], Details | None]


FAULTS = (
    Fault("kill a worker", 3, kill_worker),
    Fault("kill the JVM", 2, kill_jvm),
    Fault("kill all", 2, kill_all),
    Fault("pause a worker", 2, pause_worker),
    Fault("pause the JVM", 2, pause_jvm),
    Fault("zombie driver", 3, zombie_driver),
    Fault("zombie worker", 3, zombie_worker),
    Fault("stop in order", 1, stop_in_order),
    Fault("another plan", 2, change_plan),
    Fault("long outage", 2, long_outage),
    Fault("commit forgotten", 2, forget_commit),
    Fault("disk lost", 3, lose_disk),
    Fault("crash point", 6, crash),
    Fault("ids hijacked", 3, hijack),
)
