"""A supervisor's place in a job's election, and what the job's control topic says to who holds it.

The topic has one partition, and the supervisors of the job are a consumer group: whoever the
partition is assigned to runs the driver. That is for order only. Two that believe to hold it do no
harm, as the ledger lets one driver write.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ...clients.kafka.cluster import connect
from ...clients.kafka.config import connection_settings, consumer, producer
from ...clients.kafka.topics import TIMEOUT_S
from ...core.errors import EnvironmentRefused
from ...state.ledger import compacted_topic
from ...state.ledger.job import Job
from ...state.ledger.job_topics import CONTROL_TOPIC
from . import words
from .words import Told, UnknownWords, Wish

# Whoever was not heard of for so long has lost its place; brokers allow 6 s and more.
SESSION_S = 10.0
_HEARTBEAT_S = 2.0
# Between two looks a supervisor may export a snapshot.
_LOOK_WITHIN_S = 3600.0
_LOOKS = 1000
_CLOSE_S = 10.0

log = logging.getLogger(__name__)


def topic_of(job: str) -> str:
    """The control topic, which is also the group's name."""
    return CONTROL_TOPIC.format(job=job)


class Seat:
    """Of one supervisor, in one thread. `wish` and `told` are the newest ones."""

    def __init__(self, job: Job) -> None:
        name, _ = job.job_and_ledger
        self.job = name
        self.wish: Wish | None = None
        self.told: Told | None = None
        self.host, self.pid = socket.gethostname(), os.getpid()
        self._topic = topic_of(name)
        self._assigned = self._read = False
        self._refused = ""
        admin, brokers = connect(job.kafka, TIMEOUT_S)
        compacted_topic.ensure_one(job, admin, self._topic, brokers)
        self._producer = producer(connection_settings(job.kafka))
        self._consumer = consumer(_member(job.kafka, self._topic, f"{self.host}:{self.pid}"))
        self._consumer.subscribe(
            [self._topic], on_assign=self._given, on_revoke=self._taken, on_lost=self._taken
        )

    @property
    def holds(self) -> bool:
        """Whether it is ours, and all that stands in the topic was read."""
        return self._assigned and self._read

    def look(self) -> None:
        """Take what has come; called all the time. Raises EnvironmentRefused."""
        self._producer.poll(0)
        if self._refused:
            raise EnvironmentRefused(self._refused)
        for _ in range(_LOOKS):
            message = self._consumer.poll(0)
            if message is None:
                return
            self._take(message)

    def tell(self, told: Told) -> None:
        """To whoever asks; it is sent meanwhile."""
        self.told = told
        with suppress(BufferError):
            self._producer.produce(
                self._topic, words.encode(told), words.TOLD_KEY, 0, on_delivery=self._delivered
            )

    def close(self) -> None:
        """Give the place up, so that another takes it at once."""
        if left := self._producer.flush(_CLOSE_S):
            log.warning("What became of job '%s' was not told: %d records.", self.job, left)
        self._assigned = False
        self._consumer.close()

    def _delivered(self, error: Any, _message: Any) -> None:
        from confluent_kafka import KafkaError

        if error is None:
            return
        log.warning("What becomes of job '%s' could not be told: %s.", self.job, error.str())
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._refused = (
                f"The control topic of job '{self.job}' cannot be written: {error.str()}. Grant "
                f"this principal Write on topic '{self._topic}'."
            )

    def _given(self, consumer: Any, partitions: list[Any]) -> None:
        if partitions:
            self._assigned, self._read = True, False
            self.wish = self.told = None
        consumer.incremental_assign(partitions)

    def _taken(self, consumer: Any, partitions: list[Any]) -> None:
        if partitions:
            self._assigned = False
        consumer.incremental_unassign(partitions)

    def _take(self, message: Any) -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        if error is None:
            self._apply(message.key(), message.value())
        elif error.code() == KafkaError._PARTITION_EOF:
            self._read = True
        elif error.code() in (
            KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
        ):
            raise EnvironmentRefused(
                f"The control topic of job '{self.job}' cannot be used: {error.str()}. Grant this "
                f"principal Read on topic and group '{self._topic}'."
            )
        elif not error.retriable():
            log.warning("Control topic '%s': %s.", self._topic, error.str())

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        try:
            if key == words.WISH_KEY and value is not None:
                self.wish = words.decode_wish(value)
            elif key == words.TOLD_KEY and value is not None and not self._read:
                self.told = words.decode_told(value)  # later ones are our own
        except UnknownWords as unknown:
            log.error("%s", unknown)


def _member(settings: Mapping[str, str], topic: str, name: str) -> dict[str, Any]:
    return {
        **connection_settings(settings),
        "client.id": name,  # who it is, as 'eo-kafka job list' shows it
        "group.id": topic,
        "session.timeout.ms": int(SESSION_S * 1000),
        "heartbeat.interval.ms": int(_HEARTBEAT_S * 1000),
        "max.poll.interval.ms": int(_LOOK_WITHIN_S * 1000),
        # Who comes does not take the place of who is there.
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 500,
    }
