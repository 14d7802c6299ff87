"""Creates or checks the job's ledger and state topics, and checks the cluster.

Runs on the driver, once per process and ledger.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import Any

from ...clients.kafka.cluster import connect
from ...core.errors import EnvironmentRefused
from ...sinks.option_checks import ALLOWED_BY_BROKERS
from ...sinks.options import SinkOptions
from . import compacted_topic
from .compacted_topic import TIMEOUT_S, exists, settings_of

log = logging.getLogger(__name__)

PARTITIONS = 2  # 0: generations and decisions. 1: the tokens of sink "main"
TOKEN_PARTITION = 1
TRANSACTION_LOG = "__transaction_state"
OUTPUT_TIMEOUT_S = 5.0  # for a topic made a moment ago
_checked: set[tuple[str, str, bool]] = set()
_allowed_ms: dict[str, int] = {}


def ensure(options: SinkOptions) -> None:
    """Create or check ledger and state topic, and check that the output topic and the cluster can
    do it.

    Raises EnvironmentRefused with one sentence for each thing that is wrong.
    """
    _, ledger = options.job_and_ledger
    key = (options.kafka.get("bootstrap.servers", ""), ledger, options.snapshots)
    if key in _checked:
        return
    admin, brokers = connect(options.kafka, TIMEOUT_S)
    if options.topic is not None:
        _check_topic(options.topic, admin)  # first: a refused start leaves no topics behind
    is_new = not exists(admin, ledger)
    problems = []
    for name, partitions in own_topics(options):
        problems += compacted_topic.ensure(admin, name, partitions, brokers)
    if brokers > 1:
        problems += transaction_log_problems(admin)
    elif is_new and not options.allow_weak_replication:  # once: each process comes here
        log.warning(
            "Kafka at %s has a single live broker: the promise holds as long as its disk does.",
            key[0],
        )
    if problems and options.allow_weak_replication:
        log.warning("allowWeakReplication: %s", " ".join(problems))
    elif problems:
        raise EnvironmentRefused(
            " ".join(problems) + " Set this right, or set option 'allowWeakReplication' to true "
            "if losing decisions (and with them rows) is acceptable."
        )
    check_timeout(admin, options)
    _checked.add(key)


def own_topics(options: SinkOptions) -> list[tuple[str, int]]:
    """Names and least numbers of partitions of the topics that belong to the job."""
    _, ledger = options.job_and_ledger
    state = options.state_topic if options.snapshots else None
    return [(ledger, PARTITIONS), *([(state, 1)] if state else [])]


def check_timeout(admin: Any, options: SinkOptions) -> None:
    """A transaction may not ask for more time than any broker gives."""
    from confluent_kafka.admin import ResourceType

    for broker in admin.list_topics(timeout=TIMEOUT_S).brokers:
        config = settings_of(admin, str(broker), ResourceType.BROKER)
        allowed = int(config.get("transaction.max.timeout.ms", options.transaction_timeout_ms))
        if allowed < options.transaction_timeout_ms:
            raise EnvironmentRefused(
                f"Broker {broker} allows transactions of {allowed} ms "
                f"(transaction.max.timeout.ms), and kafka.transaction.timeout.ms is "
                f"{options.transaction_timeout_ms}. Raise the one or lower the other; a batch, "
                "from its first row to its commit, must fit in."
            )


def with_allowed_timeout(options: SinkOptions) -> SinkOptions:
    """With option `transactionTimeout` `max`: the longest that every broker allows. Runs on the
    driver, before tasks are told. Raises EnvironmentRefused if it may not be seen."""
    if options.timeout_ms != ALLOWED_BY_BROKERS:
        return options
    servers = options.kafka.get("bootstrap.servers", "")
    if servers not in _allowed_ms:
        from confluent_kafka.admin import ResourceType

        admin, _ = connect(options.kafka, TIMEOUT_S)
        brokers = admin.list_topics(timeout=TIMEOUT_S).brokers
        found = [settings_of(admin, str(broker), ResourceType.BROKER) for broker in brokers]
        if not all("transaction.max.timeout.ms" in config for config in found):
            raise EnvironmentRefused(
                "Option 'transactionTimeout' is 'max', and this principal may not see what the "
                "brokers allow (transaction.max.timeout.ms). Grant it DescribeConfigs on the "
                "cluster, or give a time."
            )
        _allowed_ms[servers] = min(int(config["transaction.max.timeout.ms"]) for config in found)
    return replace(options, timeout_ms=_allowed_ms[servers])


def check_exists(options: SinkOptions) -> None:
    """Raise EnvironmentRefused if the job has no ledger; for commands, which never make one."""
    job, ledger = options.job_and_ledger
    admin, _ = connect(options.kafka, TIMEOUT_S)
    if not exists(admin, ledger):
        servers = options.kafka.get("bootstrap.servers", "")
        raise EnvironmentRefused(f"Job '{job}' has no ledger at {servers}: no topic '{ledger}'.")


def check_output(options: SinkOptions) -> None:
    """Check what a write needs that has no ledger: the topic, and the time for transactions."""
    key = (options.kafka.get("bootstrap.servers", ""), options.topic or "", False)
    if not options.exactly_once and (options.topic is None or key in _checked):
        return
    admin, _ = connect(options.kafka, TIMEOUT_S)
    if options.exactly_once:
        check_timeout(admin, options)
    if options.topic is not None:
        _check_topic(options.topic, admin)
    _checked.add(key)


def _check_topic(topic: str, admin: Any) -> None:
    """Raise EnvironmentRefused unless the output topic exists. A new one is not known to every
    broker at once."""
    deadline = time.monotonic() + OUTPUT_TIMEOUT_S
    while not exists(admin, topic):
        if time.monotonic() > deadline:
            raise EnvironmentRefused(
                f"Topic '{topic}' does not exist, and a write creates none, whatever the broker's "
                "auto.create.topics.enable. Nothing was written. Create it, or correct option "
                "'topic'."
            )
        time.sleep(0.2)


def transaction_log_problems(admin: Any) -> list[str]:
    """Prepared transactions live in the broker's own log; it must keep what it acknowledged."""
    try:
        if not exists(admin, TRANSACTION_LOG):
            return []  # made with the first transaction, by the broker's settings
    except EnvironmentRefused:
        log.warning("%s not checked: the principal may not Describe it.", TRANSACTION_LOG)
        return []
    topic = admin.list_topics(TRANSACTION_LOG, timeout=TIMEOUT_S).topics[TRANSACTION_LOG]
    replicas = min(len(partition.replicas) for partition in topic.partitions.values())
    in_sync = int(settings_of(admin, TRANSACTION_LOG).get("min.insync.replicas", replicas))
    if replicas < 2 or in_sync <= replicas // 2:
        return [
            f"Kafka's transaction log has {replicas} replica(s) and min.insync.replicas={in_sync}: "
            "a prepared transaction could be lost with one broker."
        ]
    return []
