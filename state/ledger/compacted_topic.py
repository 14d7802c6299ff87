"""Creates a compacted topic with the settings it needs, or checks an existing one.

What is checked is what could lose an acknowledged record: deletion by age, a replica set that may
shrink to one, an unclean election. Runs on the driver.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from ...clients.kafka import topics
from ...core.errors import EnvironmentRefused

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0
MAX_MESSAGE_BYTES = 8 << 20  # a decision names every task of its batch
OURS = "__eo_kafka."


def exists(admin: Any, topic: str) -> bool:
    """Whether the topic exists and may be described."""
    from confluent_kafka import KafkaError

    found = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic]
    if found.error is None:
        return True
    if found.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise EnvironmentRefused(
            f"Not authorized for topic '{topic}': the principal needs Describe on it, and what else"
            " 'Least ACLs' in docs/security.md asks for."
        )
    return False


def ensure(admin: Any, name: str, partitions: int, brokers: int) -> list[str]:
    """Create it, or check it; what could lose an acknowledged record, a sentence each. One of ours
    that never held a record is set right: where brokers create what they are asked about, any
    tool's look-up may have made it. Raises EnvironmentRefused where it cannot be used at all."""
    from . import unused_topic

    if not exists(admin, name):
        create(admin, name, partitions, brokers)
    refusals, weak = faults(admin, name, partitions, brokers)
    if (refusals or weak) and name.startswith(OURS) and unused_topic.is_unused(admin, name):
        try:
            return unused_topic.set_right(admin, name, partitions, brokers)
        except EnvironmentRefused as error:
            if refusals:
                raise
            return [*weak, str(error)]
    if refusals:
        raise EnvironmentRefused(" ".join(refusals))
    return weak


def wanted_settings(replicas: int) -> dict[str, str]:
    """What the topic is created with."""
    return {
        "cleanup.policy": "compact",
        "retention.ms": "-1",
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        "min.insync.replicas": str(replicas // 2 + 1),
        "unclean.leader.election.enable": "false",
        # Tombstones and markers may be asked for by a recovery after a long holiday.
        "delete.retention.ms": str(7 * 24 * 3600 * 1000),
    }


def create(admin: Any, name: str, partitions: int, brokers: int) -> None:
    """Create it, unless somebody has. Raises EnvironmentRefused."""
    from confluent_kafka.admin import NewTopic

    replicas = min(3, brokers)
    topic = NewTopic(
        name,
        num_partitions=partitions,
        replication_factor=replicas,
        config=wanted_settings(replicas),
    )
    topics.create(
        admin,
        topic,
        f"Create it by hand ({partitions} partition(s), cleanup.policy=compact), or grant Create "
        "on it.",
    )


def partitions_of(admin: Any, topic: str) -> Any:
    """The topic's partitions. Each broker hears of a new topic in its own time."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        if found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def faults(admin: Any, name: str, partitions: int, brokers: int) -> tuple[list[str], list[str]]:
    """Sentences about why it cannot be used at all, and about what could lose a record."""
    there = partitions_of(admin, name)
    config = settings_of(admin, name)
    refusals, weak = [], []
    if len(there) < partitions:
        refusals.append(
            f"Topic '{name}' has {len(there)} partition(s) and needs {partitions}: tokens and "
            "decisions may not share one."
        )
    if config.get("cleanup.policy", "compact") != "compact":
        refusals.append(
            f"Topic '{name}' has cleanup.policy={config['cleanup.policy']}: Kafka would delete by "
            "age what a restart needs. It must be 'compact'."
        )
    replicas = min((len(partition.replicas) for partition in there.values()), default=0)
    if brokers > 1 and replicas < 2:
        weak.append(
            f"Topic '{name}' has one replica: let kafka-reassign-partitions.sh give it more."
        )
    # Settings that may not be seen are not wrong ones: a warning has been given.
    in_sync = int(config.get("min.insync.replicas", replicas))
    if in_sync <= replicas // 2:
        weak.append(
            f"Topic '{name}' has min.insync.replicas={in_sync} of {replicas} replicas: "
            "a majority is needed."
        )
    if config.get("unclean.leader.election.enable") == "true":
        weak.append(f"Topic '{name}' allows unclean leader elections.")
    return refusals, weak


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
