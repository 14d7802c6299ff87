"""Creates a compacted topic with the settings it needs, or checks an existing one. Runs on the
driver."""

from __future__ import annotations

from typing import Any

from ...clients.kafka import topics
from ...clients.kafka.topics import exists
from ...core.errors import EnvironmentRefused
from . import unused_topic
from .topic_settings import faults, wanted_settings

OURS = "__eo_kafka."


def ensure(admin: Any, name: str, partitions: int, brokers: int) -> list[str]:
    """Create it, or check it; what could lose an acknowledged record, a sentence each. One of ours
    that never held a record is set right: where brokers create what they are asked about, any
    tool's look-up may have made it. Raises EnvironmentRefused where it cannot be used at all."""
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
