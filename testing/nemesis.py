"""Faults at random, in an order that a seed fixes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from ..core.crash_points import STREAM_POINTS
from . import checkpoint_log
from .errors import FaultMissed

if TYPE_CHECKING:
    from .brokers import Broker
    from .job import Job
    from .records import Written

AT_WORK_S = 60.0
ONCE = "source.after_initial_resolution"  # only in a query's first batch
HELD_OPEN_BY_TASKS = ("S3.while_writing", "S4.after_token", "S5.prepared")
HELD_OPEN = (*HELD_OPEN_BY_TASKS, "S6.before_decision", "S6.after_decision")


def crash(job: Job, chance: random.Random) -> None:
    """Die, or fail, at a named point."""
    points = [point for point in STREAM_POINTS if point != ONCE]
    how = chance.choice(["kill-driver", "kill-driver", "kill", "raise"])
    job.run(crash=chance.choice(points), until="crashed", how=how)


def kill_driver(job: Job, chance: random.Random) -> None:
    """SIGKILL everything of the job at any moment of a batch."""
    _at_work(job, chance)
    job.kill_driver()


def kill_worker(job: Job, chance: random.Random) -> None:
    """SIGKILL one Python worker."""
    _at_work(job, chance)
    job.kill_worker(chance.randrange(100))


def pause_worker(job: Job, chance: random.Random) -> None:
    """SIGSTOP one Python worker for some seconds."""
    _at_work(job, chance)
    job.pause_worker(chance.uniform(0.5, 5), chance.randrange(100))


def pause_driver(job: Job, chance: random.Random) -> None:
    """SIGSTOP everything of the job for some seconds."""
    _at_work(job, chance)
    job.pause_driver(chance.uniform(0.5, 5))


def stop_in_order(job: Job, chance: random.Random) -> None:
    """query.stop() at any moment of a batch."""
    _at_work(job, chance)
    job.stop()


def second_driver(job: Job, _chance: random.Random) -> None:
    """Another driver on the same checkpoint takes over."""
    job.second_driver()


def lose_checkpoint(job: Job, chance: random.Random) -> None:
    """The checkpoint is gone, and the driver too."""
    kill_driver(job, chance)
    job.lose_checkpoint()


def outlast_transactions(job: Job, chance: random.Random) -> None:
    """The job dies in the middle of a commit, and is down until Kafka has aborted what is open."""
    job.run(crash=chance.choice(HELD_OPEN), until="crashed")
    job.expire_transactions()


def speculate(job: Job, chance: random.Random) -> None:
    """On a Spark cluster of two hosts, a copy of a task overtakes it."""
    job.speculate(chance.choice(HELD_OPEN_BY_TASKS))


def kill_broker(job: Job, chance: random.Random) -> None:
    """SIGKILL a broker, and start it again."""
    broker, number = _broker(job), chance.randrange(100)
    _at_work(job, chance)
    broker.kill(number % len(broker.place.brokers))
    time.sleep(chance.uniform(0, 5))
    broker.start()


def pause_broker(job: Job, chance: random.Random) -> None:
    """SIGSTOP a broker for some seconds."""
    broker, number = _broker(job), chance.randrange(100)
    _at_work(job, chance)
    broker.pause(chance.uniform(0.5, 8), number % len(broker.place.brokers))


def cut_network(job: Job, chance: random.Random) -> None:
    """The job's connections to Kafka are cut for some seconds."""
    broker = _broker(job)
    _at_work(job, chance)
    with broker.network_cut():
        time.sleep(chance.uniform(0.2, 5))


Fault = Callable[["Job", random.Random], None]
JOB_FAULTS: Mapping[str, Fault] = {
    "crash point": crash,
    "kill the driver": kill_driver,
    "kill a worker": kill_worker,
    "pause a worker": pause_worker,
    "pause the driver": pause_driver,
    "stop in order": stop_in_order,
    "second driver": second_driver,
}
BROKER_FAULTS: Mapping[str, Fault] = {"kill a broker": kill_broker, "pause a broker": pause_broker}
# By name, where the test asks for them. The first takes the seconds of
# kafka.transaction.timeout.ms, the second a Spark cluster's start.
SLOW_FAULTS: Mapping[str, Fault] = {
    "outlast the transactions": outlast_transactions,
    "speculation": speculate,
}
# By name, too: a job without snapshots is refused after this one.
SNAPSHOT_FAULTS: Mapping[str, Fault] = {"lose the checkpoint": lose_checkpoint}
NETWORK_FAULTS: Mapping[str, Fault] = {"cut the network": cut_network}
FAULTS = {**JOB_FAULTS, **BROKER_FAULTS, **NETWORK_FAULTS, **SLOW_FAULTS, **SNAPSHOT_FAULTS}


REACHED = {"crash point", "second driver", *SLOW_FAULTS}  # always, with new records


def plan(seed: int, names: Collection[str]) -> Iterator[tuple[str, random.Random]]:
    """Which fault comes first, second, and so on; and what each one throws its dice with."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    ordered = sorted(names)
    while True:
        name = chance.choice(ordered)
        yield name, random.Random(chance.random())  # noqa: S311


def strike(
    job: Job,
    seed: int,
    minutes: float,
    feed: Callable[[int], Iterable[Written]],
    faults: Collection[str] | None,
) -> None:
    """See Job.nemesis."""
    names = possible(job) if faults is None else set(faults)
    if unknown := names - set(FAULTS):
        raise ValueError(f"Unknown faults {sorted(unknown)}; there are: {sorted(FAULTS)}.")
    if job.source is None:
        raise ValueError("The nemesis needs a job with a source, into which it writes.")
    job.trial.seed = seed
    struck, deadline = 0, time.monotonic() + 60 * minutes
    for step, (name, chance) in enumerate(plan(seed, names)):
        if time.monotonic() > deadline:
            break
        job.source.write(feed(step))
        job.note("fault", name=name)
        job.check_not_refused()
        try:
            FAULTS[name](job, chance)
        except FaultMissed as missed:
            if name in REACHED:
                raise
            job.note("fault missed", name=name, why=str(missed).splitlines()[0])
        else:
            struck += 1
    job.check_not_refused()
    if not struck:
        raise FaultMissed(f"No fault struck in {minutes} minutes.\n{job.trial.report()}")
    job.run()


def possible(job: Job) -> set[str]:
    """What can be done to this job and to its Kafka, and must do it no harm."""
    broker = job.trial.broker
    names = set(JOB_FAULTS)
    if broker is not None and broker.place.brokers:
        names |= set(BROKER_FAULTS)
    if broker is not None and broker.place.proxy is not None:
        names |= set(NETWORK_FAULTS)
    return names


def _broker(job: Job) -> Broker:
    assert job.trial.broker is not None
    return job.trial.broker


def _at_work(job: Job, chance: random.Random) -> None:
    """A driver whose query is started and has planned a batch, or goes on with one that was
    planned before; it is anywhere in it."""
    before = checkpoint_log.newest(job.checkpoint / "offsets")
    committed = checkpoint_log.newest(job.checkpoint / "commits")
    job.start()
    driver, deadline = job.running(), time.monotonic() + AT_WORK_S
    while (
        not driver.has_started
        or checkpoint_log.newest(job.checkpoint / "offsets") <= before == committed
    ):
        if driver.exit_code is not None or time.monotonic() > deadline:
            raise FaultMissed(f"The driver planned no batch: {driver.reason()}")
        time.sleep(0.02)
    time.sleep(chance.uniform(0, 1.5))
