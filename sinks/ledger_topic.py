"""The ledger topic: created as it must be, or checked if it is there; and the cluster with it.

What is checked is what could lose an acknowledged decision: deletion by age, a replica set that may
shrink to one, an unclean election. Runs on the driver, once per process and ledger.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from eo_kafka.cluster import connect
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.sinks.options import SinkOptions

log = logging.getLogger(__name__)

PARTITIONS = 2  # 0: generations and decisions. 1: the tokens of sink "main"
TOKEN_PARTITION = 1
TIMEOUT_S = 30.0
CREATE_ATTEMPTS = 3
TRANSACTION_LOG = "__transaction_state"
_checked: set[tuple[str, str]] = set()


def ensure(options: SinkOptions) -> None:
    """Create or check the ledger, and check that the output topic and the cluster can do it.

    Raises EnvironmentRefused with one sentence for each thing that is wrong.
    """
    _, ledger = options.job_and_ledger
    key = (options.kafka.get("bootstrap.servers", ""), ledger)
    if key in _checked:
        return
    admin, brokers = connect(options.kafka, TIMEOUT_S)
    if not exists(admin, ledger):
        _create(admin, ledger, brokers)
    problems = ledger_problems(admin, ledger, brokers)
    if brokers > 1:
        problems += transaction_log_problems(admin)
    elif not options.allow_weak_replication:
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
    if options.topic is not None:
        _check_topic(options.topic, admin)
    _checked.add(key)


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


def check_exists(options: SinkOptions) -> None:
    """Raise EnvironmentRefused if the job has no ledger; for commands, which never make one."""
    job, ledger = options.job_and_ledger
    admin, _ = connect(options.kafka, TIMEOUT_S)
    if not exists(admin, ledger):
        servers = options.kafka.get("bootstrap.servers", "")
        raise EnvironmentRefused(f"Job '{job}' has no ledger at {servers}: no topic '{ledger}'.")


def check_output(options: SinkOptions) -> None:
    """Check what a batch write needs, which has no ledger: the topic and the time allowed."""
    admin, _ = connect(options.kafka, TIMEOUT_S)
    check_timeout(admin, options)
    if options.topic is not None:
        _check_topic(options.topic, admin)


def _check_topic(topic: str, admin: Any) -> None:
    """Raise EnvironmentRefused unless the output topic exists (or the broker just made it)."""
    deadline = time.monotonic() + 5
    while not exists(admin, topic):
        if time.monotonic() > deadline:
            raise EnvironmentRefused(
                f"Topic '{topic}' does not exist and the broker does not create it. "
                "Nothing was written. Create it, or correct option 'topic'."
            )
        time.sleep(0.2)


def exists(admin: Any, topic: str) -> bool:
    """Whether the topic exists and may be described."""
    from confluent_kafka import KafkaError

    found = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if found.error is None:
        return True
    if found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise EnvironmentRefused(
            f"Not authorized for topic '{topic}'. Grant this principal Describe and Write on it"
            " (and Create and Read on the ledger)."
        )
    return False


def _create(admin: Any, ledger: str, brokers: int) -> None:
    from confluent_kafka.admin import NewTopic

    replicas = min(3, brokers)
    topic = NewTopic(
        ledger,
        num_partitions=PARTITIONS,
        replication_factor=replicas,
        config={
            "cleanup.policy": "compact",
            "retention.ms": "-1",
            "min.insync.replicas": str(replicas // 2 + 1),
            "unclean.leader.election.enable": "false",
            # Tombstones and markers may be asked for by a recovery after a long holiday.
            "delete.retention.ms": str(7 * 24 * 3600 * 1000),
        },
    )
    for left in reversed(range(CREATE_ATTEMPTS)):
        if _is_created(admin, topic, may_fail=left > 0):
            break


def _is_created(admin: Any, topic: Any, may_fail: bool) -> bool:
    """Whether the topic was created; False, if that `may_fail`, when nobody said so: then it may be
    there all the same, and the next attempt is told. Raises EnvironmentRefused."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        admin.create_topics([topic])[topic.topic].result(TIMEOUT_S)
    except FutureTimeout:
        if may_fail:
            return False
        raise EnvironmentRefused(
            f"Nobody said within {TIMEOUT_S:.0f} s whether ledger topic '{topic.topic}' was "
            "created. Start the query again when Kafka answers."
        ) from None
    except KafkaException as raised:
        error = raised.args[0]
        if error.code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return True
        unknown = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.REQUEST_TIMED_OUT)
        if may_fail and (error.retriable() or error.code() in unknown):
            return False
        raise EnvironmentRefused(
            f"The ledger topic '{topic.topic}' could not be created: {error.str()}. "
            "Create it by hand (2 partitions, cleanup.policy=compact), or grant Create on it."
        ) from None
    return True


def _partitions(admin: Any, topic: str) -> Any:
    """The topic's partitions. Each broker hears of a new topic in its own time."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def ledger_problems(admin: Any, ledger: str, brokers: int) -> list[str]:
    """What of the ledger's settings could lose an acknowledged decision, a sentence each."""
    partitions = _partitions(admin, ledger)
    config = settings_of(admin, ledger)
    problems = []
    if len(partitions) < PARTITIONS:
        raise EnvironmentRefused(
            f"Ledger '{ledger}' has {len(partitions)} partition(s) and needs {PARTITIONS}: "
            "tokens and decisions may not share one."
        )
    if config.get("cleanup.policy", "compact") != "compact":
        raise EnvironmentRefused(
            f"Ledger '{ledger}' has cleanup.policy={config['cleanup.policy']}: Kafka would delete "
            "decisions by age. It must be 'compact'."
        )
    replicas = min(len(partition.replicas) for partition in partitions.values())
    if brokers > 1 and replicas < 2:
        problems.append(f"Ledger '{ledger}' has one replica.")
    # Settings that may not be seen are not wrong ones: a warning has been given.
    in_sync = int(config.get("min.insync.replicas", replicas))
    if in_sync <= replicas // 2:
        problems.append(
            f"Ledger '{ledger}' has min.insync.replicas={in_sync} of {replicas} replicas: "
            "a majority is needed."
        )
    if config.get("unclean.leader.election.enable") == "true":
        problems.append(f"Ledger '{ledger}' allows unclean leader elections.")
    return problems


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


def settings_of(admin: Any, name: str, kind: Any = None) -> dict[str, str]:
    """The effective settings of a topic (or of a `kind`); none if they may not be seen, or if the
    broker that was asked has not heard of a new topic for long."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    resource = ConfigResource(kind or ResourceType.TOPIC, name)
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            entries = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
        except KafkaException as error:
            new = error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART
            if new and time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            problem = error.args[0].str()
        except FutureTimeout:
            problem = f"no answer in {TIMEOUT_S:.0f} s"
        else:
            return {name: entry.value for name, entry in entries.items() if entry.value is not None}
        log.warning("Configuration of %s not checked: %s", name, problem)
        return {}
