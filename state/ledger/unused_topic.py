"""Corrects a topic with wrong settings if it never held a record.

Somebody's look-up made it, on a broker that creates what it is asked about. Nothing was in it that
its settings could have lost. One that holds records, or has held some (its offsets do not begin at
0), is left to a person. Runs on the driver.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from ...clients.kafka.topics import TIMEOUT_S, partitions_of
from ...core.errors import EnvironmentRefused
from .topic_settings import faults, wanted_settings

log = logging.getLogger(__name__)


def is_unused(admin: Any, name: str) -> bool:
    """Whether each partition begins and ends at offset 0. False where that cannot be known."""
    from confluent_kafka import KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    there = [TopicPartition(name, number) for number in partitions_of(admin, name)]
    # To its very end: a record that is not committed yet is one, too.
    asked = [
        future
        for word in ("earliest", "latest")
        for future in admin.list_offsets(dict.fromkeys(there, getattr(OffsetSpec, word)())).values()
    ]
    try:
        return bool(there) and all(future.result(TIMEOUT_S).offset == 0 for future in asked)
    except (KafkaException, FutureTimeout) as error:
        log.warning("Whether '%s' ever held a record is not known: %s", name, error)
        return False


def set_right(admin: Any, name: str, partitions: int, brokers: int) -> list[str]:
    """Add partitions and alter settings. What is left that could lose a record, a sentence each.
    Raises EnvironmentRefused."""
    there = partitions_of(admin, name)
    replicas = min(len(partition.replicas) for partition in there.values())
    _alter(admin, name, replicas)
    if len(there) < partitions:
        _add_partitions(admin, name, partitions)
    deadline = time.monotonic() + TIMEOUT_S
    while True:  # each broker hears of it in its own time
        refusals, weak = faults(admin, name, partitions, brokers)
        few = brokers > 1 and replicas < 2
        if not refusals and len(weak) == few:
            break
        if time.monotonic() > deadline:
            raise EnvironmentRefused(" ".join([*refusals, *weak]))
        time.sleep(0.1)
    log.warning(
        "Topic '%s' was there with wrong settings and never held a record: it was set right "
        "(%d partition(s), cleanup.policy=compact, ...).",
        name,
        max(partitions, len(there)),
    )
    if few:
        return [
            f"Topic '{name}' has one replica and never held a record. Delete it, and it is made "
            "again as it must be: "
            f"kafka-topics.sh --bootstrap-server ... --delete --topic {name}"
        ]
    return []


def _alter(admin: Any, name: str, replicas: int) -> None:
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    entries = [
        ConfigEntry(setting, value, incremental_operation=AlterConfigOpType.SET)
        for setting, value in wanted_settings(replicas).items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    futures = admin.incremental_alter_configs([resource])
    _await(futures[resource], name, "AlterConfigs")


def _add_partitions(admin: Any, name: str, partitions: int) -> None:
    from confluent_kafka.admin import NewPartitions

    futures = admin.create_partitions([NewPartitions(name, partitions)])
    _await(futures[name], name, "Alter")


def _await(future: Any, name: str, right: str) -> None:
    from confluent_kafka import KafkaError, KafkaException

    try:
        future.result(TIMEOUT_S)
    except (KafkaException, FutureTimeout) as error:
        found = error.args[0] if error.args else None
        if isinstance(found, KafkaError) and found.code() == KafkaError.INVALID_PARTITIONS:
            return  # another start was quicker
        reason = found.str() if isinstance(found, KafkaError) else "no answer"
        raise EnvironmentRefused(
            f"Topic '{name}' has wrong settings, never held a record, and could not be set right "
            f"({reason}). Grant this principal {right} on it, or delete it: "
            f"kafka-topics.sh --bootstrap-server ... --delete --topic {name}"
        ) from None
