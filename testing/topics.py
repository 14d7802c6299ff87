"""A test's topics: created under names of their own, written to and read to the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..clients.kafka import config, topics
from .history import History
from .records import Record, Written, read_to_end, write


@dataclass(frozen=True)
class Topic:
    """A topic of one test: `name` is what the test calls it, `real_name` what Kafka does."""

    name: str
    real_name: str
    servers: str
    history: History

    def write(self, records: Iterable[Written]) -> Topic:
        """Write records and wait until Kafka has them.

        Args:
            records: Values, or pairs of key and value: bytes, text, or what becomes JSON. What has
                no key goes to each partition in turn.

        Returns:
            This topic.

        Raises:
            AssertionError: Kafka did not take all of them.
        """
        self.history.add(self.name, "written", records=write(self.servers, self.real_name, records))
        return self

    def read(self) -> list[Record]:
        """All records, read with `read_committed` to the end, by partition and offset.

        Raises:
            Anomaly: A transaction stays open: nobody can read to the end.
            CheckRefused: The topic's first records are deleted.
        """
        return read_to_end(self.servers, self.real_name)

    def is_compacted(self) -> bool:
        """Whether Kafka keeps the newest record of each key only."""
        admin = config.admin_client({"bootstrap.servers": self.servers})
        return "compact" in topics.settings_of(admin, self.real_name).get("cleanup.policy", "")


def create(
    servers: str, name: str, partitions: int, settings: Mapping[str, str] | None, copies: int
) -> None:
    """Create a topic. Raises EnvironmentRefused."""
    from confluent_kafka.admin import NewTopic

    new = NewTopic(name, partitions, copies, config=dict(settings or {}))
    admin = config.admin_client({"bootstrap.servers": servers})
    topics.create(admin, new, "See the broker's log.")


def delete_all(servers: str, unique: str) -> None:
    """Delete a test's topics, and those of its jobs, from a Kafka that lives on."""
    admin = config.admin_client({"bootstrap.servers": servers})
    names = [name for name in admin.list_topics(timeout=topics.TIMEOUT_S).topics if unique in name]
    for deleted in admin.delete_topics(names).values() if names else ():
        deleted.result(topics.TIMEOUT_S)
