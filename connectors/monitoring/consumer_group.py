"""`eo_kafka.ConsumerGroup`: commits a query's progress into a consumer group.

A listener, so that it runs after Spark has noted the batch as done, also for the last one of a run.
The group's offsets are for people and monitors: the query itself never reads them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener
from tenacity import retry, stop_after_delay, wait_fixed

from ...clients.kafka.config import consumer
from ...core.offsets import TopicPartition, decode_position
from ...core.options import KafkaSettings, OptionReader

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger(__name__)


class ConsumerGroup(StreamingQueryListener):
    """Commits a query's progress into a consumer group, for tools that watch lag.

    Add it with `spark.streams.addListener` before the query starts. Runs on the driver after each
    batch. The query itself never reads the group, and the group must have no members of its own. If
    several sources of the query read one topic, the slowest one's position is committed. A commit
    that fails is tried again for ten seconds, then logged; the next batch makes up for it.

    Args:
        group: The consumer group's name.
        options: The `kafka.*` options of the query's sources.
        query: The query's name or id.

    Raises:
        OptionsError: A name is empty, or `kafka.bootstrap.servers` is missing or an option wrong.

    Examples:
        >>> lag = eo_kafka.ConsumerGroup("orders-app", kafka, query="totals")
        >>> spark.streams.addListener(lag)
        >>> spark.streams.removeListener(lag)
    """

    def __init__(self, group: str, options: Mapping[str, str], *, query: str) -> None:
        reader = OptionReader(options)
        settings = reader.kafka({})
        if not group.strip():
            reader.problem("The consumer group must have a name.")
        if not query.strip():
            reader.problem("The query must be given by its name or id.")
        reader.finish()
        self._group = group
        self._query = query
        self._settings: KafkaSettings = settings.merged(group_id=group, enable_auto_commit="false")
        self._consumer: Any = None
        self._ends: dict[TopicPartition, int] = {}  # not committed yet

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to do."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to do."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """After a batch is in Spark's commit log."""
        progress = event.progress
        if self._query not in (progress.name, str(progress.id)):
            return
        self._ends.update(slowest(source.endOffset for source in progress.sources))
        self._commit()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """The connection is given back; a query that is started again gets another."""
        self._commit()
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _commit(self) -> None:
        """All that is not committed yet. It must not end the listener, nor hide behind it."""
        if not self._ends:
            return
        try:
            self._try_commit()
        except Exception as error:
            log.warning(
                "The progress of query '%s' was not committed into consumer group '%s': %s",
                self._query,
                self._group,
                error,
            )
        else:
            self._ends.clear()

    # The coordinator of a group that is new takes its time.
    @retry(stop=stop_after_delay(10), wait=wait_fixed(0.2), reraise=True)
    def _try_commit(self) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as Position

        if self._consumer is None:
            self._consumer = consumer(self._settings)
        positions = [Position(*at, offset) for at, offset in sorted(self._ends.items())]
        for answer in self._consumer.commit(offsets=positions, asynchronous=False):
            if answer.error:
                raise KafkaException(answer.error)


def slowest(ends: Iterable[str | None]) -> dict[TopicPartition, int]:
    """The least of what several sources say of a partition; those that are not Kafka's say
    nothing."""
    found: dict[TopicPartition, int] = {}
    for text in ends:
        try:
            positions = decode_position(text).offsets if text else {}
        except ValueError:
            continue
        for at, offset in positions.items():
            found[at] = min(offset, found.get(at, offset))
    return found
