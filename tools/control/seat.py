"""A supervisor's place in a job's election, and what the job's control topic says to who holds it.

The topic has one partition, and the supervisors of the job are a consumer group: whoever the
partition is assigned to runs the driver. That is for order only. Two that believe to hold it do no
harm, as the ledger lets one driver write.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from ...clients.kafka.cluster import connect
from ...clients.kafka.config import connection_settings, consumer, producer
from ...clients.kafka.topics import TIMEOUT_S, exists
from ...core.errors import EnvironmentRefused, Unreachable, cut
from ...state.ledger import compacted_topic
from ...state.ledger.job import Job
from ...state.ledger.job_topics import CONTROL_TOPIC
from . import words
from .words import Told, UnknownWords, Wish

# Whoever was not heard of for so long has lost its place; brokers allow 6 s and more.
SESSION_S = 10.0
_HEARTBEAT_S = 2.0
# What could not be told by then is told again, by who has the place.
_TELL_WITHIN_S = 8.0
# Between two looks a supervisor may export a snapshot.
_LOOK_WITHIN_S = 3600.0
_LOOKS = 1000
_CLOSE_S = 10.0
_REFRESH_S = 60.0  # within which it is seen that the topic is gone
_GONE_S = 10.0  # for a broker that has not heard of the topic yet
_GONE_EVERY_S = 2.0
_BEGINS_WITHIN_S = 5.0

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
        self._assigned = self._read = self._at_end = False
        self._refused = ""
        self._unknown: dict[bytes | None, str] = {}  # by key: the newest record is not understood
        self._gone_s = self._gone_look_s = 0.0  # the topic was said not to be there; next look
        self._admin, brokers = connect(job.kafka, TIMEOUT_S)
        compacted_topic.ensure_one(job, self._admin, self._topic, brokers)
        self._on_way: list[bytes] = []  # what was told and not read yet
        self._is_untold = False
        self._producer = producer(_teller(job.kafka))
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
                break
            self._take(message)
        if self._is_untold and self.holds and self.told is not None:
            self.tell(self.told)
        if self._gone_s:
            self._check_there()
        if self._assigned and self._at_end and not self._read:
            self._read = self._is_whole()

    def check_understood(self) -> None:
        """Before a driver is started. Raises EnvironmentRefused if what holds may stand in a record
        that this version does not understand."""
        for why in self._unknown.values():
            raise EnvironmentRefused(
                f"Job '{self.job}': {why} Nothing is started of a job that may be suspended or "
                "cancelled. Start this supervisor with the version that wrote it; or say by this "
                f"one what is to hold: 'eo-kafka job resume {self.job} --bootstrap-servers ...' "
                "(or 'suspend', 'cancel'), which is recorded although nobody answers, and then "
                "start it again."
            )

    def tell(self, told: Told) -> None:
        """To whoever asks; it is sent meanwhile."""
        from confluent_kafka import KafkaException

        self.told, self._is_untold = told, False
        said = words.encode(told)
        try:
            self._producer.produce(
                self._topic, said, words.TOLD_KEY, 0, on_delivery=self._delivered
            )
        except BufferError:
            pass
        except KafkaException as error:  # what librdkafka knows already, it refuses itself
            self._not_told(error.args[0])
        else:
            self._on_way.append(said)

    def close(self) -> None:
        """Give the place up, so that another takes it at once."""
        if left := self._producer.flush(_CLOSE_S):
            log.warning("What became of job '%s' was not told: %d records.", self.job, left)
        self._assigned = False
        self._consumer.close()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            return
        if (said := message.value()) in self._on_way:
            self._on_way.remove(said)
        self._is_untold = not self._on_way
        self._not_told(error)

    def _not_told(self, error: Any) -> None:
        from confluent_kafka import KafkaError

        log.warning("What becomes of job '%s' could not be told: %s.", self.job, error.str())
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            self._refused = (
                f"The control topic of job '{self.job}' cannot be written: {error.str()}. Grant "
                f"this principal Write on topic '{self._topic}'."
            )

    def _given(self, consumer: Any, partitions: list[Any]) -> None:
        if partitions:
            self._assigned, self._read, self._at_end = True, False, False
            self.wish = self.told = None
            self._is_untold = False
            self._on_way.clear()
            self._unknown.clear()
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
            self._at_end = True
        elif error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            self._gone_s = self._gone_s or time.monotonic()
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

    def _check_there(self) -> None:
        """Without the topic nobody is elected: all would stand by for ever. Raises
        EnvironmentRefused."""
        now = time.monotonic()
        if now < self._gone_look_s:
            return
        self._gone_look_s = now + _GONE_EVERY_S
        try:
            if exists(self._admin, self._topic):
                self._gone_s = 0.0
                return
        except Unreachable:
            return  # nobody answers, so nobody says that it is gone
        if now - self._gone_s > _GONE_S:
            raise EnvironmentRefused(
                f"The control topic of job '{self.job}' is gone: somebody has deleted topic "
                f"'{self._topic}', and what was asked for with it ({self._stood()}). This "
                "supervisor ends. Started again, it makes the topic anew and runs the job; if that "
                "is not to run, start none."
            )

    def _stood(self) -> str:
        if not self._read:
            return "this supervisor stood by, and does not know it"
        held = words.stands(self.wish, self.told)
        return f"the last that this supervisor knows is '{held.value}'"

    def _is_whole(self) -> bool:
        """Whether what was read is all that was wished; False if nobody says so yet. Compaction
        leaves the newest wish, and a topic's beginning where it was. Raises EnvironmentRefused."""
        from confluent_kafka import KafkaException, TopicPartition

        self.check_understood()
        told = self.told
        if self.wish is not None or (told is not None and (told.done or not told.wish)):
            return True
        at = TopicPartition(self._topic, 0)
        try:
            begins, _ = self._consumer.get_watermark_offsets(at, timeout=_BEGINS_WITHIN_S)
        except KafkaException:
            return False
        if begins > 0:
            raise EnvironmentRefused(
                f"The control topic of job '{self.job}' has lost records: '{self._topic}' begins "
                f"at offset {begins}, and does not say what was asked for last. Nothing is started "
                "of a job that may be suspended or cancelled. Say what is to hold: 'eo-kafka job "
                f"resume {self.job} --bootstrap-servers ...' (or 'suspend', 'cancel'), which is "
                "recorded although nobody answers; then start this supervisor again. The topic "
                "needs cleanup.policy=compact."
            )
        return True

    def _apply(self, key: bytes | None, value: bytes | None) -> None:
        if value is None:
            return
        if key == words.TOLD_KEY and self._read:
            self._hear(value)
            return
        try:
            if key == words.WISH_KEY:
                self.wish = words.decode_wish(value)
                self._unknown.clear()  # it takes the place of all before it
            elif key == words.TOLD_KEY:
                self.told = words.decode_told(value)
                self._unknown.pop(key, None)
            else:
                raise UnknownWords(words.not_understood(f"its key is {cut(key)}"))
        except UnknownWords as unknown:
            self._unknown[key] = str(unknown)
            log.error("%s", unknown)

    def _hear(self, said: bytes) -> None:
        """Of later answers our own hold. One of a supervisor that has lost the job, and was cut off
        when it gave it, must not be the last: the next start would go by it."""
        if said in self._on_way:  # those before it are in the topic, or never will be
            del self._on_way[: self._on_way.index(said) + 1]
        elif self._on_way or self.told is None or said == words.encode(self.told):
            return  # what holds comes behind it, or is sent twice
        else:
            log.warning(
                "Job '%s': a late answer of another supervisor came; what holds is told again.",
                self.job,
            )
            self.tell(self.told)


def _teller(settings: Mapping[str, str]) -> dict[str, Any]:
    return {
        **connection_settings(settings),
        "max.in.flight.requests.per.connection": 1,  # one after the other
        "message.timeout.ms": int(_TELL_WITHIN_S * 1000),  # before another has the place
    }


def _member(settings: Mapping[str, str], topic: str, name: str) -> dict[str, Any]:
    return {
        **connection_settings(settings),
        "client.id": name,  # who it is, as 'eo-kafka job list' shows it
        "group.id": topic,
        "session.timeout.ms": int(SESSION_S * 1000),
        "heartbeat.interval.ms": int(_HEARTBEAT_S * 1000),
        "topic.metadata.refresh.interval.ms": int(_REFRESH_S * 1000),
        "max.poll.interval.ms": int(_LOOK_WITHIN_S * 1000),
        # Who comes does not take the place of who is there.
        "partition.assignment.strategy": "cooperative-sticky",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "fetch.wait.max.ms": 500,
    }
