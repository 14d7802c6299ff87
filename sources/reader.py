"""Reads one offset range into Arrow record batches. On an executor, once for each task attempt."""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from ..clients.kafka.config import consumer, quick_connect
from ..core.errors import ReadTimeout, SourceError
from ..core.offsets import OffsetRange, TopicPartition
from ..core.process.kept import KEPT_STALL_TIMEOUT_S, Kept, Leaders
from .data_loss import TO_COME, tell_loss
from .fetch import plain
from .late_bound import resolved_now
from .lookup import OffsetLookup
from .settings.options import SourceOptions
from .settings.timeouts import stall_timeout_s
from .topic_identity import check_not_replaced, without_replaced

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import KafkaError

log = logging.getLogger(__name__)
Fetch: TypeAlias = Callable[..., Iterator[plain.Fetched]]


@dataclass(frozen=True, repr=False)
class _Client:
    """A consumer, what it was made of, and what its error callback was told."""

    settings: dict[str, str]
    consumer: Any
    errors: list[KafkaError]
    was_kept: bool = False
    leaders: Leaders = field(default_factory=Leaders)


# A worker runs one task at a time; a query may read with more than one set of settings.
_kept: Kept[_Client] = Kept(limit=4, close=lambda client: client.consumer.close())


class _OutOfRange(Exception):
    """A broker says that the log does not hold `offset`; everything below it was handed out.
    `is_cut`: a new leader's log was compared, and is shorter than what was read."""

    def __init__(self, offset: int, is_cut: bool) -> None:
        super().__init__(offset)
        self.offset, self.is_cut = offset, is_cut


class _Stalled(Exception):
    """Nothing moved at `offset` for too long; everything below it was handed out."""

    def __init__(self, offset: int, sentence: str) -> None:
        super().__init__(sentence)
        self.offset = offset


def read_ranges(
    options: SourceOptions, wanted: Iterable[OffsetRange], ids: Mapping[str, str] | None = None
) -> Iterator[pa.RecordBatch]:
    """One range after the other, as `read_range` does, by one consumer.

    `ids` are those of the topics for which the ranges were planned. Raises DataLossError at the end
    if one was replaced by then; where going on is allowed, one that is replaced is not read.
    """
    if ids and not options.fail_on_data_loss:
        same = without_replaced(options, ids)
        wanted = [
            one for one in wanted if one.partition.topic in same or one.partition.topic not in ids
        ]
        ids = {topic: ids[topic] for topic in same}
    for one in wanted:
        yield from read_range(options, one)
    if ids:
        check_not_replaced(options, ids)


def read_range(options: SourceOptions, wanted: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Every record of `wanted` that its isolation level lets through, in order, and no other.

    Raises DataLossError for offsets that are gone (with failOnDataLoss=false it goes on with the
    first record still there), ReadTimeout when nothing moves for kafkaConsumer.pollTimeoutMs.
    """
    wanted = resolved_now(options, wanted)
    if wanted.start >= wanted.end:
        return
    import confluent_kafka

    at = wanted.partition
    client = _kept_client(options) or _new_client(options)
    is_done = False
    try:
        while wanted.start < wanted.end:
            fetch = _fetcher(client.consumer, at)
            client.consumer.assign([confluent_kafka.TopicPartition(*at, wanted.start)])
            client.leaders.learn(client.consumer, at.topic)
            try:
                yield from _batches(client, fetch, options, wanted)
                break
            except _OutOfRange as gone:
                wanted = wanted._replace(start=_after_loss(options, wanted, gone))
            except _Stalled as stalled:
                if not client.was_kept:
                    raise ReadTimeout(str(stalled)) from None
                log.info("A consumer that was kept is given up: %s", stalled)
                client.consumer.close()
                client = _new_client(options)
                wanted = wanted._replace(start=stalled.offset)
        client.consumer.unassign()
        is_done = not client.errors and _is_emptied(client, fetch, at)
    finally:
        if is_done:
            _kept.put(client.settings, replace(client, was_kept=True))
        else:
            client.consumer.close()


def _new_client(options: SourceOptions) -> _Client:
    settings = consumer_settings(options)
    errors: list[KafkaError] = []
    client = consumer({**settings, "error_cb": errors.append})
    return _Client(_kept_under(settings, options), client, errors)


def _kept_under(settings: dict[str, str], options: SourceOptions) -> dict[str, str]:
    """`settings` without the group, where it is a name of ours, another one each time."""
    mine = "group.id" not in options.kafka
    return {name: value for name, value in settings.items() if not (mine and name == "group.id")}


def _kept_client(options: SourceOptions) -> _Client | None:
    """A consumer that an earlier task left in order, if it still is."""
    client = _kept.take(_kept_under(consumer_settings(options), options))
    if client is None or _is_in_order(client):
        return client
    client.consumer.close()
    return None


def _is_emptied(client: _Client, fetch: Fetch, at: TopicPartition) -> bool:
    """Let librdkafka throw away what it fetched ahead."""
    return any(not list(fetch(client.consumer, *at, 0, timeout=0)) for _ in range(100))


def _is_in_order(client: _Client) -> bool:
    """Whether it has nothing to say of the time since its last task: of a lost connection, say."""
    return client.consumer.poll(0) is None and not client.errors


def _batches(
    client: _Client, fetch: Fetch, options: SourceOptions, wanted: OffsetRange
) -> Iterator[pa.RecordBatch]:
    """The records of `wanted`, from a consumer that is assigned to its start.

    Ends by position, because the last offsets of a range may hold no record for us: transaction
    markers, aborted records, or nothing after compaction. An end-of-partition event, or a record,
    at or behind the end says that all before it was delivered.
    """
    consumer, last_error = client.consumer, client.errors
    (topic, partition), position, end = wanted
    moved = time.monotonic()
    is_there = False
    while position < end:
        for fetched in fetch(
            *(consumer, topic, partition, end),
            include_headers=options.include_headers,
            unread=options.unread,
        ):
            reached = max(fetched.next_offset or 0, fetched.eof_offset or 0)
            if fetched.batch is not None:
                if (first := fetched.batch["offset"][0].as_py()) < position:
                    raise SourceError(
                        f"Kafka's client gave offset {first} of partition {wanted.partition} after "
                        f"{position - 1}. The task stops here, and will be run again."
                    )
                yield fetched.batch
            if reached > position:
                position, moved = reached, time.monotonic()
            if fetched.error is not None:
                _raise(wanted, position, *fetched.error)
            if fetched.eof_offset is not None and position < end and not is_there:
                end, is_there = _end_there(options, wanted), True
        timeout_s = stall_timeout_s(options, moved)
        if client.was_kept:
            timeout_s = min(timeout_s, KEPT_STALL_TIMEOUT_S)
        if time.monotonic() - moved > timeout_s:
            reason = f" The client's last error was: {last_error[-1].str()}." if last_error else ""
            raise _Stalled(
                position,
                f"Reading {wanted} made no progress for {timeout_s:g} s at offset {position}."
                f"{reason} The task will be run again; 'kafkaConsumer.pollTimeoutMs' sets how "
                "long it waits.",
            )


def _fetcher(consumer: Any, at: TopicPartition) -> Fetch:
    """The compiled loop where it can drive this consumer, which is not assigned yet, otherwise the
    plain one."""
    from ..core import librdkafka
    from .fetch import fast

    reason = librdkafka.available()
    if reason is None:
        try:
            fast.set_apart(consumer, *at)
        except librdkafka.Unavailable as refused:
            reason = str(refused)
        else:
            return fast.fetch
    log.info("reading without compiled loops: %s", reason)
    return plain.fetch


def _raise(wanted: OffsetRange, position: int, code: int, text: str) -> None:
    """Turn the client's error into ours, unless it says nothing about reading."""
    from confluent_kafka import KafkaError

    if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
        is_cut = KafkaError(KafkaError._LOG_TRUNCATION).str() in text
        raise _OutOfRange(position, is_cut)
    if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise SourceError(
            f"Not authorized to read {wanted}: the query's principal needs READ on the topic."
        )
    if code != plain.GROUP_AUTHORIZATION_FAILED:
        advice = ""
        if (
            code == KafkaError._BAD_COMPRESSION
        ):  # also of sound records, by zstd, that are too large
            advice = (
                " If other clients can read it, it unpacks to more than option "
                "'kafka.receive.message.max.bytes' (100 MB by default) allows: raise that."
            )
        said = text.rstrip(".")
        raise SourceError(f"Reading {wanted} failed at offset {position}: {said}.{advice}")


def consumer_settings(options: SourceOptions) -> dict[str, str]:
    """Settings of a consumer that is told its partition and offset and commits nothing."""
    return {
        "group.id": f"{options.group_id_prefix}-{uuid.uuid4()}",  # librdkafka insists on one
        # What lies in the queue for long has left the processor's caches before it is copied.
        "queued.max.messages.kbytes": "8192",
        # A full queue makes librdkafka pause for a second otherwise.
        "fetch.queue.backoff.ms": "5",
        # All of a range exists already. Waiting for more would only hold up the answer that says
        # that nothing but a transaction's marker is left before its end.
        "fetch.wait.max.ms": "10",
        # A byte that changed on a disk is an error, as with Java's consumer, whose default this is.
        "check.crcs": "true",
        **quick_connect(options.kafka),
        **options.kafka,
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",
        "enable.partition.eof": "true",
    }


def _end_there(options: SourceOptions, wanted: OffsetRange) -> int:
    """Where `wanted` can end, as the log was seen to end before: at its end if the log reaches it,
    and what is before it is only held back by open transactions; else where the log ends, if going
    on is allowed."""
    at = wanted.partition
    all_of_it = options.kafka.merged(isolation_level="read_uncommitted")
    with closing(OffsetLookup(replace(options, kafka=all_of_it))) as lookup:
        high = lookup.latest([at], {at: wanted.end})[at]
    if high >= wanted.end:
        return wanted.end
    tell_loss(
        f"Reading {wanted} cannot end: the log ends at {high}. Either that end was given too high "
        "('endingOffsets'), or the records from there on were lost, or the topic was deleted and "
        f"made again. {TO_COME}",
        fail=options.fail_on_data_loss,
    )
    return high


def _after_loss(options: SourceOptions, wanted: OffsetRange, gone: _OutOfRange) -> int:
    """Where to go on after an offset turned out to be gone, if going on is allowed."""
    at, offset = wanted.partition, gone.offset
    with closing(OffsetLookup(options)) as lookup:
        low, high = lookup.earliest([at])[at], lookup.latest([at], {at: offset})[at]
    if low <= offset <= high and not gone.is_cut:
        raise SourceError(
            f"A broker said that offset {offset} of partition {at} is out of range while reading "
            f"{wanted}, and the log holds offsets {low} to {high}: that broker was not the leader "
            "any more, or the log grew meanwhile. The task stops here, and will be run again."
        )
    why = "The records in between expired or were deleted"
    if offset >= low:
        why = "It was cut, or 'startingOffsets' names what is not there yet"
    sentence = (
        f"Offset {offset} of partition {at} is out of range while reading {wanted}: the log now "
        f"holds offsets {low} to {high}. {why}, or the topic was deleted and created again."
    )
    sentence += f" {TO_COME}" if offset > high else ""
    tell_loss(sentence, fail=options.fail_on_data_loss)
    # A log that ends before the offset is another log: nothing in it belongs to this range.
    return low if low > offset else wanted.end
