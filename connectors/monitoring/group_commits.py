"""Commits into a consumer group what a query's sources report of its own cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from tenacity import retry, stop_after_delay, wait_fixed

from ...clients.kafka.config import admin_client, connection_settings, consumer, topic_ids
from ...core.offsets import Position, TopicPartition, names
from ...core.options import KafkaSettings
from ..spark_reports import least, positions

LOOK_S = 10.0

log = logging.getLogger(__name__)


class GroupCommits:
    """For one thread; its clients are made when they are needed."""

    def __init__(self, settings: KafkaSettings, group: str) -> None:
        self._settings, self._group = settings, group
        self._consumer: Any = None
        self._admin: Any = None
        self._ours: dict[tuple[str, str], bool] = {}  # topic and id: whether this cluster has it
        self._told: set[TopicPartition] = set()  # that they cannot be committed

    def commit(self, ends: Iterable[str | None]) -> None:
        """The ends that one batch's sources have reported. Raises KafkaException, and what a login
        raises, after ten seconds; what was committed till then stays committed."""
        self._commit_left(list(positions(ends)), {})

    # The coordinator of a group that is new takes its time.
    @retry(stop=stop_after_delay(10), wait=wait_fixed(0.2), reraise=True)
    def _commit_left(self, positions: list[Position], done: dict[TopicPartition, int]) -> None:
        ends = least(self._of_this_cluster(positions))
        left = {at: end for at, end in ends.items() if at not in done}
        if left:
            self._send(left, done)

    def close(self) -> None:
        """Give the connections back."""
        self._admin = None
        if self._consumer is not None:
            with suppress(Exception):  # it ends either way
                self._consumer.close()

    def _send(self, left: dict[TopicPartition, int], done: dict[TopicPartition, int]) -> None:
        from confluent_kafka import KafkaException
        from confluent_kafka import TopicPartition as End

        if self._consumer is None:
            self._consumer = consumer(self._settings)
        wanted = [End(*at, offset) for at, offset in sorted(left.items())]
        try:
            errors = [
                (TopicPartition(one.topic, one.partition), one.error)
                for one in self._consumer.commit(offsets=wanted, asynchronous=False)
            ]
        except KafkaException as refused:  # it does not say of which
            if not _is_unknown(refused.args[0]):
                raise
            topics = sorted(_topics(left))
            for topic in topics if len(topics) > 1 else ():
                self._send({at: end for at, end in left.items() if at.topic == topic}, done)
            if len(topics) > 1:
                return
            errors = [(at, refused.args[0]) for at in left]
        done.update({at: left[at] for at, error in errors if error is None})
        gone = {at for at, error in errors if error and _is_unknown(error)}
        self._leave_out(gone, done)
        for at, error in errors:
            if error is not None and at not in gone:
                raise KafkaException(error)

    def _leave_out(self, gone: set[TopicPartition], done: dict[TopicPartition, int]) -> None:
        done.update(dict.fromkeys(gone, -1))
        self._ours = {of: found for of, found in self._ours.items() if of[0] not in _topics(gone)}
        if fresh := gone - self._told:
            self._told |= fresh
            log.warning(
                "Consumer group '%s' is given no progress of %s, which Kafka does not have.",
                *(self._group, names(fresh)),
            )

    def _of_this_cluster(self, positions: list[Position]) -> Iterator[Position]:
        """Without the topics that are another cluster's, or were before one of that name here: a
        source says of each which one it is."""
        marks = {mark for position in positions for mark in position.ids.items()}
        if new := {topic for topic, topic_id in marks if (topic, topic_id) not in self._ours}:
            here = self._ids_here(new)
            for topic, topic_id in marks:
                if topic in here:
                    self._ours[topic, topic_id] = here[topic] in (topic_id, None)
        for position in positions:
            ours = {
                at: end
                for at, end in position.offsets.items()
                if (named := position.ids.get(at.topic)) is None
                or self._ours.get((at.topic, named), False)
            }
            yield Position(ours)

    def _ids_here(self, topics: set[str]) -> dict[str, str | None]:
        """None: it may not be seen, as the commit will be told, too."""
        from confluent_kafka import KafkaError, KafkaException, TopicCollection

        if self._admin is None:
            self._admin = admin_client(connection_settings(self._settings))
        asked = TopicCollection(sorted(topics))
        described: dict[str, Any] = {}
        hidden: dict[str, str | None] = {}
        for topic, told in self._admin.describe_topics(asked, request_timeout=LOOK_S).items():
            try:
                described[topic] = told.result()
            except KafkaException as error:
                if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    hidden[topic] = None
                elif not _is_unknown(error.args[0]):
                    raise
        return {**topic_ids(described), **hidden}


def _topics(partitions: Iterable[TopicPartition]) -> set[str]:
    return {at.topic for at in partitions}


def _is_unknown(error: Any) -> bool:
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART)
