"""Deletes what a job left in Kafka, if nothing says that it still runs.

The coordinator's transactional id is taken before: a driver that lives all the same is shut out of
its batch, and Kafka is told that the job has no ledger, so that a new one is not taken for a lost
one.
"""

from __future__ import annotations

import time
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Any

from ...clients.kafka import control_plane
from ...clients.kafka.cluster import connect
from ...clients.kafka.topics import TIMEOUT_S, exists
from ...core.errors import EnvironmentRefused, EoKafkaError, LedgerError, OptionsError
from ...state import view
from ...state.ledger.coordinator import Coordinator
from ...state.ledger.job import Job
from ...state.ledger.job_topics import CONTROL_TOPIC, LEDGER_NAME, PLAN_TOPIC, STATE_TOPIC
from ...state.snapshots import export
from ..run.policy import seconds_of
from ..shared.command_line import duration
from .standing import Standing, State
from .survey import survey
from .tails import read_tails

MEANS = (
    "The guarantee starts anew: nobody knows any more what the job wrote. Its query, started again "
    "from its checkpoint, goes on behind the last batch in commits/ there; what it wrote behind "
    "that (it was killed, or the checkpoint is new or older), it writes again."
)


@dataclass(frozen=True)
class Deleted:
    """`deleted` and `kept` are topics. `said` is for people."""

    deleted: list[str]
    kept: list[str]
    said: str


def delete(job: Job, *, quiet_for: str, also_exports: bool, yes: bool) -> Deleted:
    """Delete the job's topics; without `yes` only look. Raises EoKafkaError: it may be running, or
    something is prepared, or nothing is there."""
    problems: list[str] = []
    quiet_s = seconds_of("--quiet-for", quiet_for, problems)
    if problems:
        raise OptionsError(problems)
    name, ledger = job.job_and_ledger
    admin, _ = connect(job.kafka, TIMEOUT_S)
    topics, kept = _topics(admin, job, also_exports)
    if not topics:
        raise EnvironmentRefused(f"Job '{name}' has nothing here: no topic '{ledger}'.")
    _check_ledger(job, topics)
    if ledger in topics:
        for found in survey(job.kafka, {ledger: name}, only=name, prefix=job.prefix):
            _refuse_running(found, quiet_s)
        _check_state_topic(admin, job, topics)
    words = ", ".join(f"'{topic}'" for topic in topics)
    rest = f" Kept: {', '.join(kept)} (--exports deletes them, too)." if kept else ""
    if not yes:
        said = (
            f"To be deleted of job '{name}': topics {words}.{rest} {MEANS} Kafka cannot tell "
            "whether a driver waits for input: stop it before. Nothing was deleted: --yes does it."
        )
        return Deleted([], [*topics, *kept], said)
    if ledger in topics:
        _shut_out(job)
    for topic in topics:  # the ledger is the last of them
        _delete(admin, topic)
    return Deleted(topics, kept, f"Job '{name}' is deleted: topics {words}.{rest} {MEANS}")


def _topics(admin: Any, job: Job, also_exports: bool) -> tuple[list[str], list[str]]:
    name, _ = job.job_and_ledger
    there = sorted(admin.list_topics(timeout=TIMEOUT_S).topics)
    copies = [one for one in there if export.name_in(one, name) or view.name_in(one, name)]
    topics = [one for one in _own(job) if one in there]
    return ([*copies, *topics], []) if also_exports else (topics, copies)


def _own(job: Job) -> list[str]:
    """All but exports and views. The ledger is the last of them."""
    name, ledger = job.job_and_ledger
    return [
        PLAN_TOPIC.format(job=name),
        CONTROL_TOPIC.format(job=name),
        job.state_topic or "",
        ledger,
    ]


def _check_ledger(job: Job, topics: list[str]) -> None:
    """Raise LedgerError unless there is a ledger of the job's, which says whether it runs. Without
    one exports and views may go: no batch needs them."""
    name, ledger = job.job_and_ledger
    own = [f"'{one}'" for one in _own(job) if one in topics]
    if own and ledger not in topics:
        raise LedgerError(
            f"Whether job '{name}' runs cannot be known: there is no ledger '{ledger}', but "
            f"{', '.join(own)}. Nothing was deleted. If the job has option 'ledgerTopic', give "
            "--ledger-topic; if its ledger is gone, delete these topics by kafka-topics.sh."
        )
    match = LEDGER_NAME.fullmatch(ledger)
    if match and match["job"] != name:
        raise LedgerError(
            f"Topic '{ledger}' is not the ledger of job '{name}': by its name it is that of "
            f"job '{match['job']}'. Nothing was deleted."
        )


def _check_state_topic(admin: Any, job: Job, topics: list[str]) -> None:
    """Raise LedgerError if it may be another job's."""
    name, ledger = job.job_and_ledger
    state = job.state_topic
    if state not in topics or state == STATE_TOPIC.format(job=name):
        return
    tail = read_tails(job.kafka, admin, [ledger], count=None)[ledger]
    if tail.problem:
        raise LedgerError(f"{tail.problem} Nothing was deleted.")
    head = tail.ledger.snapshot
    if state not in (head.topic if head else "", tail.ledger.loading_topic):
        raise LedgerError(
            f"The ledger of job '{name}' does not name state topic '{state}': its snapshots may be "
            "another job's. Nothing was deleted. Leave out --state-topic; if no job uses that "
            "topic any more, delete it by kafka-topics.sh."
        )


def _refuse_running(found: Standing, quiet_s: float) -> None:
    """Raises EoKafkaError with all that speaks against it."""
    reasons, tail = [], found.tail
    if found.state is State.UNREADABLE:
        raise LedgerError(
            f"Whether job '{found.job}' has something prepared cannot be known: {found.problem} "
            "Nothing was deleted. If it must go all the same, delete its topics by "
            "kafka-topics.sh."
        )
    if found.watch is not None and (found.watch.alive or found.watch.problem):
        alive = ", ".join(found.watch.alive) or found.watch.problem
        reasons.append(f"a supervisor has it ({alive}): 'eo-kafka job cancel {found.job}' ends it")
    if found.open_count is None:
        reasons.append(found.problem.rstrip("."))
    if found.open_count:
        reasons.append(
            f"{found.open_count} transactions are open: a driver writes, or one has died, and "
            "'eo-kafka txn list' tells which"
        )
    if found.state is State.DECIDED:
        reasons.append("a batch is decided and not known to be committed: start the query again")
    age_s = quiet_s
    if tail is not None and tail.newest_ms is not None:
        age_s = time.time() - tail.newest_ms / 1000
    if age_s < quiet_s:
        reasons.append(
            f"its ledger was written {duration(age_s)} ago, and its driver may be running: stop "
            f"it, and wait until that is {duration(quiet_s)} (--quiet-for)"
        )
    if reasons:
        raise EoKafkaError(
            f"Job '{found.job}' is not deleted: {'; '.join(reasons)}. Nothing was changed."
        )


def _shut_out(job: Job) -> None:
    coordinator = Coordinator(job, control_plane.shared(job.kafka))
    coordinator.fence()
    ledger = coordinator.read()
    if ledger.unfinished():
        raise EoKafkaError(
            f"Job '{job.job}' is not deleted: a driver has decided a batch just now. It runs: "
            "nothing was deleted. That driver's batch is written again, or goes on."
        )
    coordinator.fence(as_new=True)


def _delete(admin: Any, topic: str) -> None:
    from confluent_kafka import KafkaException

    try:
        admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    except (KafkaException, FutureTimeout) as error:
        raise EoKafkaError(
            f"Topic '{topic}' was not deleted: {error}. Is Kafka up, and the principal allowed to "
            "Delete the topic? Run the command again: what is gone by now stays so."
        ) from None
    deadline = time.monotonic() + TIMEOUT_S
    while exists(admin, topic) and time.monotonic() < deadline:
        time.sleep(0.1)
