"""The topics of an inbox: created where they are missing, checked where they are not. Driver."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ...clients.kafka import topics
from ...core.errors import EnvironmentRefused
from ...state.ledger import compacted_topic
from ...state.ledger.topic_settings import REPLICAS, safe_settings, weak_points
from .options import QueueOptions

log = logging.getLogger(__name__)

# RabbitMQ 4 takes messages of up to 16 MiB, unless it is told otherwise.
MAX_MESSAGE_BYTES = 17 << 20
# Of a record, at most: by their defaults brokers take no request of 100 MiB, nor do readers.
MOST_BYTES = 64 << 20
# So much a part of a poison message takes, which would be dropped in the end
_LEAST_POISON_BYTES = 1_000_000
_KEPT_MS = 7 * 24 * 3600 * 1000  # as Kafka keeps a topic unless it is told otherwise


def ensure_all(options: QueueOptions, remembered: Sequence[str], admin: Any, brokers: int) -> None:
    """The inbox, the poison topic, and the compacted ones that a memory is in. Raises
    EnvironmentRefused where a topic would lose messages that were acknowledged."""
    for name in remembered:
        _judge(options, compacted_topic.ensure(admin, name, 1, brokers))
    for name in (options.inbox, options.poison_topic):
        if not topics.exists(admin, name):
            _create(admin, name)
        config = topics.settings_of(admin, name)
        if "compact" in config.get("cleanup.policy", "delete"):
            raise EnvironmentRefused(
                f"Topic '{name}' is compacted (cleanup.policy={config['cleanup.policy']}): Kafka "
                "would take messages away that are acknowledged and not read yet. Set it to "
                f"'delete': kafka-configs.sh --bootstrap-server ... --alter --topic {name} "
                "--add-config cleanup.policy=delete"
            )
        most = int(config.get("max.message.bytes", _LEAST_POISON_BYTES))
        if name == options.poison_topic and most < _LEAST_POISON_BYTES:
            raise EnvironmentRefused(
                f"Topic '{name}' takes records of {most:,} bytes (max.message.bytes), less than "
                f"Kafka's default. What is too large for it would be dropped by the queue in the "
                "end. Nothing was taken. Raise it: kafka-configs.sh --bootstrap-server ... --alter "
                f"--topic {name} --add-config max.message.bytes={MAX_MESSAGE_BYTES}"
            )
        there = topics.partitions_of(admin, name)
        _judge(options, weak_points(name, there, config, brokers))


def _judge(options: QueueOptions, weak: list[str]) -> None:
    if weak and not options.allow_weak_replication:
        raise EnvironmentRefused(
            " ".join(weak) + " Correct this, or set option 'allowWeakReplication' to true if "
            "losing messages that were acknowledged is acceptable."
        )
    if weak:
        log.warning("allowWeakReplication: %s", " ".join(weak))


def _create(admin: Any, name: str) -> None:
    from confluent_kafka.admin import NewTopic

    def with_replicas(number: int) -> Any:
        config = {
            **safe_settings(number),
            "cleanup.policy": "delete",
            "retention.ms": str(_KEPT_MS),
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
        }
        return NewTopic(name, num_partitions=1, replication_factor=number, config=config)

    topics.create(
        admin,
        with_replicas(REPLICAS),
        "Create it by hand (1 partition, cleanup.policy=delete), or grant Create on it.",
        # `weak_points` judges those that could lose a message; one that is too large is refused
        dispensable={*safe_settings(REPLICAS), "max.message.bytes"},
        with_replicas=with_replicas,
    )
