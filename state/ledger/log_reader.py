"""Reads a partition up to a given end, by position.

Transaction markers and compaction eat the last records of a log, so "until the last record" never
ends. An end-of-partition event carries the position instead, and a watchdog bounds the wait.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from typing import Any

from ...clients.kafka import outages
from ...clients.kafka.config import connection_settings, consumer, quick_connect
from ...core.errors import EnvironmentRefused, ReadTimeout
from ...core.process.kept import KEPT_STALL_TIMEOUT_S, Kept, Leaders

log = logging.getLogger(__name__)

STALL_TIMEOUT_S = 60.0
LONG_S = 10.0  # a read that takes longer is told of, and again when it has taken twice as long
_DRAIN_MAX = 100_000
# Not "earliest": what is asked for may be gone, and then somebody may have to be told.
_SETTINGS = {"auto.offset.reset": "error"}
_kept: Kept[tuple[Any, Leaders]] = Kept(limit=2, close=lambda client: client[0].close())


class RecordsDeleted(Exception):
    """The log begins at the offset `begin`, behind what is to be read as a whole. Compaction alone
    never moves a log's beginning."""

    def __init__(self, begin: int) -> None:
        super().__init__(f"The log begins at offset {begin}.")
        self.begin = begin


def read_records(
    settings: Mapping[str, str],
    topic: str,
    partition: int,
    start: int,
    end: int,
    at_once: int = 1000,
    *,
    committed: bool = True,
    whole: bool = False,
) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield (offset, key, value) of the committed records in [start, end), in order. `at_once` of
    them are taken from the client at a time. Not `committed`: also of those that are not.

    `end` must be at or below the last stable offset (the high watermark), or the read waits for it.
    The consumer is kept for the next reader. Where the log begins later by now, so does the read;
    of a `whole` one RecordsDeleted is raised. Raises ReadTimeout when nothing moves for a minute,
    or in an outage for longer.
    """
    found = read_messages(
        settings, topic, partition, start, end, at_once, committed=committed, whole=whole
    )
    with closing(found):
        for message in found:
            yield message.offset(), message.key() or b"", message.value()


def read_messages(
    settings: Mapping[str, str],
    topic: str,
    partition: int,
    start: int,
    end: int,
    at_once: int = 1000,
    *,
    committed: bool = True,
    whole: bool = False,
) -> Generator[Any]:
    """`read_records`, as the client gives them."""
    if start >= end:
        return
    wanted = {**reader_settings(settings, committed=committed), **_SETTINGS}
    kept = _kept.take(wanted)
    if kept is not None:
        try:
            for message in _assigned(
                *kept, True, wanted, topic, partition, (start, end), at_once, whole
            ):
                start = message.offset() + 1
                yield message
            return
        except ReadTimeout as error:
            log.info("A consumer that was kept is given up: %s", error)
    # A group's name is required; it is never joined.
    client = consumer({**wanted, "group.id": f"eo-kafka-ledger-{uuid.uuid4()}"})
    yield from _assigned(
        client, Leaders(), False, wanted, topic, partition, (start, end), at_once, whole
    )


def reader_settings(settings: Mapping[str, str], *, committed: bool = True) -> dict[str, str]:
    """Of a consumer that reads a partition up to its end."""
    return {
        **quick_connect(settings),
        **connection_settings(settings),
        "enable.auto.commit": "false",
        "isolation.level": "read_committed" if committed else "read_uncommitted",
        "enable.partition.eof": "true",
        "check.crcs": "true",  # a decision is worth it
        # A log that was cut below our position starts at what is left of it.
        "auto.offset.reset": "earliest",
        # The last record of a log is a transaction's marker, which nobody is given: that the end is
        # reached shows in a fetch that brings nothing, and takes as long as it may wait.
        "fetch.wait.max.ms": "0",
        # By default a fetch brings 1 MiB of a partition: one chunk of a file, and half of the
        # next in vain.
        "fetch.message.max.bytes": str(8 << 20),
        # How long it fetches nothing once enough waits for us: by default a second.
        "fetch.queue.backoff.ms": "5",
    }


def _assigned(
    consumer: Any,
    leaders: Leaders,
    was_kept: bool,
    settings: Mapping[str, str],
    topic: str,
    partition: int,
    between: tuple[int, int],
    at_once: int,
    whole: bool,
) -> Iterator[Any]:
    """The records, by `consumer`, which is kept afterwards if nothing went wrong, else closed."""
    from confluent_kafka import TopicPartition

    is_clean = False
    try:
        is_clean = _is_drained(consumer)
        consumer.assign([TopicPartition(topic, partition, between[0])])
        leaders.learn(consumer, topic)
        yield from _until(consumer, topic, partition, between, at_once, was_kept, whole)
        consumer.unassign()
        is_clean = is_clean and _is_drained(consumer)
    except BaseException:
        is_clean = False
        raise
    finally:
        if is_clean:
            _kept.put(settings, (consumer, leaders))
        else:
            consumer.close()


def _is_drained(consumer: Any) -> bool:
    """Whether nothing is left of what the consumer had to say before."""
    return any(consumer.poll(0) is None for _ in range(_DRAIN_MAX))


def _until(
    consumer: Any,
    topic: str,
    partition: int,
    between: tuple[int, int],
    at_once: int,
    was_kept: bool,
    whole: bool = False,
) -> Iterator[Any]:
    from confluent_kafka import KafkaError

    position, end = between
    moved = time.monotonic()
    long = _Long(moved)
    while True:
        long.tell(topic, partition, position, end)
        # consume() waits for as many as asked for, so only what is there already is asked for.
        first = consumer.poll(0.5)
        # Not `if first`: a message is as true as its value is long, and a tombstone would be lost.
        for message in () if first is None else [first, *consumer.consume(at_once, timeout=0)]:
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                _judge(consumer, error, topic, partition, position, whole)
                continue
            if (message.topic(), message.partition()) != (topic, partition):
                continue  # of what a kept consumer read before; librdkafka should not let it by
            if message.offset() >= end:
                return
            if error is None:
                position = message.offset() + 1
                yield message
                if position >= end:
                    return
                moved = time.monotonic()  # only now: the caller may take its time
            elif message.offset() > position:
                moved = time.monotonic()
        stall_timeout_s = outages.stall_timeout_s(STALL_TIMEOUT_S, moved)
        if was_kept:
            stall_timeout_s = KEPT_STALL_TIMEOUT_S
        if time.monotonic() - moved > stall_timeout_s:
            raise ReadTimeout(
                f"Reading {topic}-{partition} stopped at offset {position} of {end}: the broker "
                f"sent nothing for {stall_timeout_s:.0f} s. Is the partition's leader up? Is "
                "another program holding a transaction open on it?"
            )


def _judge(
    consumer: Any, error: Any, topic: str, partition: int, position: int, whole: bool
) -> None:
    """Raise what an error of a read at `position` means, unless it passes."""
    from confluent_kafka import KafkaError

    # The group is a name that librdkafka insists on; it is never joined.
    passing = (KafkaError._TRANSPORT, KafkaError.GROUP_AUTHORIZATION_FAILED)
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        _begin_later(consumer, topic, partition, position, whole)
    elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise EnvironmentRefused(
            f"Not authorized to read {topic}-{partition}: the principal needs Read on "
            "that topic. Grant it and start the query again."
        )
    elif not error.retriable() and error.code() not in passing:
        raise ReadTimeout(f"Reading {topic}-{partition} at {position}: {error.str()}.")


def _begin_later(consumer: Any, topic: str, partition: int, position: int, whole: bool) -> None:
    """The broker has no such offset: go on at what is left of the log. A leader that is cut off, or
    has lost its newest records, may end before it."""
    from confluent_kafka import OFFSET_BEGINNING, KafkaException, TopicPartition

    if whole:
        try:
            begin, _ = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        except KafkaException as error:
            raise ReadTimeout(
                f"Where {topic}-{partition} begins is not known: {error.args[0].str()}."
            ) from None
        if begin > position:
            raise RecordsDeleted(begin)
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])


class _Long:
    """Tells of a read that takes long, which would stand without a word else."""

    def __init__(self, began: float) -> None:
        self._began, self._most_s = began, LONG_S

    def tell(self, topic: str, partition: int, position: int, end: int) -> None:
        took_s = time.monotonic() - self._began
        if took_s > self._most_s:
            self._most_s = 2 * took_s
            text = "Reading %s-%d takes long: it is at offset %d of %d after %.0f s."
            log.warning(text, topic, partition, position, end, took_s)
