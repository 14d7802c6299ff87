"""Checks the topic that a map is written into. Runs on the driver."""

from __future__ import annotations

from ...clients.kafka.cluster import connect
from ...clients.kafka.topics import TIMEOUT_S, exists, settings_of
from ...core.errors import EnvironmentRefused
from ..options import SinkOptions

_checked: set[tuple[str, str]] = set()


def check_is_map(options: SinkOptions) -> None:
    """Raise EnvironmentRefused unless Kafka keeps the newest record of each key, for good. Once a
    process and topic. A topic that is not there is left to the sink to tell."""
    topic = options.topic or ""
    key = (options.kafka.get("bootstrap.servers", ""), topic)
    if key in _checked:
        return
    admin, _ = connect(options.kafka, TIMEOUT_S)
    if not exists(admin, topic):
        return
    policy = settings_of(admin, topic).get("cleanup.policy", "compact")
    if policy != "compact":
        raise EnvironmentRefused(
            f"Topic '{topic}' has cleanup.policy={policy}, so Kafka deletes entries by their age: "
            "it is no map. Nothing was written. Set the policy to 'compact'."
        )
    _checked.add(key)
