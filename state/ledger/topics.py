"""Creates or checks the job's ledger and state topics, and checks the cluster. Driver."""

from __future__ import annotations

import logging
from typing import Any

from ...clients.kafka.cluster import connect
from ...clients.kafka.topics import TIMEOUT_S, exists, metadata, settings_of
from ...core.errors import EnvironmentRefused, Unreachable
from . import compacted_topic
from .job import Job

log = logging.getLogger(__name__)

PARTITIONS = 2  # 0: generations and decisions. 1: the tokens of sink "main"
TOKEN_PARTITION = 1
TRANSACTION_LOG = "__transaction_state"


def ensure(job: Job, admin: Any, brokers: int) -> None:
    """Create or check ledger and state topic, and check that the cluster can keep them.

    Raises EnvironmentRefused with one sentence for each thing that is wrong.
    """
    _, ledger = job.job_and_ledger
    is_new = not exists(admin, ledger)
    problems = []
    for name, partitions in own_topics(job):
        problems += compacted_topic.ensure(admin, name, partitions, brokers)
    if brokers > 1:
        problems += transaction_log_problems(admin)
    elif is_new and not job.allow_weak_replication:  # once: each process comes here
        log.warning(
            "Kafka at %s has a single live broker: exactly-once holds as long as its disk "
            "survives.",
            job.kafka.get("bootstrap.servers", ""),
        )
    compacted_topic.judge(job, problems, "losing decisions (and with them rows)")


def own_topics(job: Job) -> list[tuple[str, int]]:
    """Names and least numbers of partitions of the topics that belong to the job."""
    _, ledger = job.job_and_ledger
    state = job.state_topic if job.snapshots else None
    return [(ledger, PARTITIONS), *([(state, 1)] if state else [])]


def check_exists(job: Job) -> None:
    """Raise EnvironmentRefused if the job has no ledger; for commands, which never make one."""
    name, ledger = job.job_and_ledger
    admin, _ = connect(job.kafka, TIMEOUT_S)
    if not exists(admin, ledger):
        servers = job.kafka.get("bootstrap.servers", "")
        raise EnvironmentRefused(f"Job '{name}' has no ledger at {servers}: no topic '{ledger}'.")


def transaction_log_problems(admin: Any) -> list[str]:
    """Prepared transactions live in the broker's own log; it must keep what it acknowledged."""
    try:
        if not exists(admin, TRANSACTION_LOG):
            return []  # made with the first transaction, by the broker's settings
    except Unreachable:
        raise
    except EnvironmentRefused:
        log.warning("%s not checked: the principal may not Describe it.", TRANSACTION_LOG)
        return []
    topic = metadata(admin, TRANSACTION_LOG).topics[TRANSACTION_LOG]
    replicas = min(len(partition.replicas) for partition in topic.partitions.values())
    in_sync = int(settings_of(admin, TRANSACTION_LOG).get("min.insync.replicas", replicas))
    if replicas < 2 or in_sync <= replicas // 2:
        return [
            f"Kafka's transaction log has {replicas} replica(s) and min.insync.replicas={in_sync}: "
            "a prepared transaction could be lost with one broker."
        ]
    return []
