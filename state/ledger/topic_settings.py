"""The settings of a compacted topic of ours, and what is wrong with those it has.

What is looked for could lose an acknowledged record: deletion by age, a replica set that may shrink
to one, an unclean election. Runs on the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...clients.kafka.topics import partitions_of, settings_of

REPLICAS = 3
GIVE_MORE = (
    "One broker away stops each commit until it is back. If there are more brokers, let "
    "kafka-reassign-partitions.sh give it three replicas."
)
# Not less: hosted brokers set a minimum, and of a state of gigabytes each segment is an open file.
SEGMENTS = {"segment.ms": str(4 * 3600 * 1000), "segment.bytes": str(128 << 20)}
MAX_MESSAGE_BYTES = 8 << 20  # a decision names every task of its batch


def raise_limit(topic: str) -> str:
    """What to do where the topic refuses a record as too large: the beginning of a sentence."""
    return (
        f"Raise the topic's 'max.message.bytes', which eo-kafka sets to {MAX_MESSAGE_BYTES} "
        f"(kafka-configs.sh --bootstrap-server ... --alter --entity-type topics --entity-name "
        f"{topic} --add-config max.message.bytes=...)"
    )


def wanted_settings(replicas: int) -> dict[str, str]:
    """What the topic is created with."""
    return {
        **safe_settings(replicas),
        "cleanup.policy": "compact",
        "retention.ms": "-1",
        "max.message.bytes": str(MAX_MESSAGE_BYTES),
        # A segment is compacted when a newer one has begun. By default that takes seven days or
        # 1 GiB, and each process that starts reads all of it.
        **SEGMENTS,
        # Tombstones and markers may be asked for by a recovery after a long holiday.
        "delete.retention.ms": str(7 * 24 * 3600 * 1000),
    }


def safe_settings(replicas: int) -> dict[str, str]:
    """By which no record is lost that was acknowledged. Where the brokers choose the number of
    replicas (-1), theirs are the settings that depend on it, too."""
    majority = {"min.insync.replicas": str(replicas // 2 + 1)} if replicas > 0 else {}
    return {**majority, "unclean.leader.election.enable": "false"}


def faults(admin: Any, name: str, partitions: int, brokers: int) -> tuple[list[str], list[str]]:
    """Sentences about why it cannot be used at all, and about what could lose a record."""
    there = partitions_of(admin, name)
    config = settings_of(admin, name)
    refusals: list[str] = []
    if len(there) < partitions:
        refusals.append(
            f"Topic '{name}' has {len(there)} partition(s) and needs {partitions}: tokens and "
            "decisions may not share one."
        )
    # Of a topic that is only compacted, retention.ms and retention.bytes delete nothing.
    if config.get("cleanup.policy", "compact") != "compact":
        refusals.append(
            f"Topic '{name}' has cleanup.policy={config['cleanup.policy']}: Kafka deletes by age "
            "what must stay in it. Set it to 'compact': kafka-configs.sh --bootstrap-server ... "
            f"--alter --topic {name} --add-config cleanup.policy=compact. What was deleted by then "
            "is not known any more."
        )
    return refusals, weak_points(name, there, config, brokers)


def weak_points(name: str, there: Any, config: Mapping[str, str], brokers: int) -> list[str]:
    """Sentences about what of a topic's partitions and settings could lose an acknowledged
    record."""
    weak = []
    replicas = min((len(partition.replicas) for partition in there.values()), default=0)
    if brokers > 1 and replicas < 2:
        weak.append(
            f"Topic '{name}' has one replica: let kafka-reassign-partitions.sh give it more. (Of "
            "brokers whose storage keeps copies of its own, as an object store does, that is "
            "right: there 'allowWeakReplication' accepts it.)"
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
    return weak


def few_copies(name: str, there: Any, brokers: int) -> list[str]:
    """A sentence if the topic has fewer replicas than it could have: it loses nothing, and stops
    more often. (One of a single replica is among the weak points.)"""
    replicas = min((len(partition.replicas) for partition in there.values()), default=0)
    if not 2 <= replicas < min(REPLICAS, brokers):
        return []
    return [f"Topic '{name}' has {replicas} replicas, on {brokers} brokers. {GIVE_MORE}"]
