"""The backend of `shareGroup`: the records of a topic, as a share group hands them out.

Their topic is in the inbox's cluster, but what is acknowledged there and what is written here are
two things: Kafka takes no acknowledgement of a share group into a transaction. So it is as with any
queue: kept first, then acknowledged, and what comes again is known by where it is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ...clients.kafka import control_plane
from ...clients.kafka.cluster import connect
from ...clients.kafka.share_group import ShareGroup
from ...clients.kafka.topics import TIMEOUT_S
from .message import Message, Place, time_ms
from .offset_memory import OffsetMemory
from .options import QueueOptions

log = logging.getLogger(__name__)

_AT_MOST_BELOW = 10_000  # Kafka's highest group.share.partition.max.record.locks
_TIMESTAMP_KINDS = {1: "CreateTime", 2: "LogAppendTime"}


class ShareGroupQueue:
    """See Backend. `memory` says how far each partition was kept."""

    def __init__(self, options: QueueOptions, memory: OffsetMemory) -> None:
        self._options, self._memory = options, memory
        self._group = ShareGroup(
            options.kafka, options.queue, options.share_group, options.prefetch
        )
        self._admin: Any = None
        self._is_behind = False
        self._first: dict[int, int] = {}  # the partitions' ends at the first look
        # Up to where nothing of a topic's partition is missing without a word
        self._told: dict[tuple[str, int], int] = {}

    def ready(self, *, is_first: bool = False) -> tuple[int, int]:
        """How many records there are from where the group may begin, which is 10,000 offsets below
        what was kept. Nobody tells of other members."""
        if self._admin is None:
            admin, _ = connect(self._options.kafka, TIMEOUT_S)
            self._group.check(admin, self._options.max_deliveries)
            self._admin = admin
        topic, topic_id = self._options.queue, self._group.topic_id()
        numbers = self._group.partitions(self._admin)
        asked = [(topic, number, False) for number in numbers]
        found = control_plane.shared(self._options.kafka).look(ends=asked).ends
        ends = dict(zip(numbers, found, strict=True))
        if is_first:
            self._first = ends
        for at, end in ends.items():  # of what was there before the first message, nobody knows
            self._told.setdefault((topic_id, at), self._memory.end(topic_id, at) or end)
        behind = [max(0, end - self._memory.end(topic_id, at)) for at, end in ends.items()]
        self._is_behind = any(behind)
        most = zip(ends.values(), behind, strict=True)
        return sum(min(end, missing + _AT_MOST_BELOW) for end, missing in most), 0

    def _tell_of_deleted(self, topic_id: str, taken: Sequence[Any]) -> None:
        """Kafka says nothing of records that it deletes for their age before it has handed them
        out. Of what another member had, or of markers, nobody can tell: so it is no error. Before
        what was taken is kept, as nobody sees a gap before that any more."""
        asked = [at for of_topic, at in self._told if of_topic == topic_id]
        for at, begin in (self._group.begins(self._admin, asked) if asked else {}).items():
            since = max(self._told[topic_id, at], self._memory.end(topic_id, at))
            mine = [one.offset() for one in taken if one.partition() == at]
            for offset in (*mine, begin):
                if since < (until := min(offset, begin)):
                    log.warning(
                        "Kafka has deleted what was in %s-%d from offset %d up to %d, and nothing "
                        "of it came to inbox '%s'. Records of it (not markers of transactions) that"
                        " no other member of share group '%s' had are lost. Let the topic keep them"
                        " (retention.ms) for longer than this query is away or behind.",
                        *(self._options.queue, at, since, until),
                        *(self._options.inbox, self._options.share_group),
                    )
                since = max(since, offset + 1)
            self._told[topic_id, at] = max(self._told[topic_id, at], begin)

    def take(self, count: int) -> list[Message]:
        """About as many as `prefetch`, whatever `count` is: whole batches of producers."""
        topic_id, found = self._group.take(self._is_behind)
        self._tell_of_deleted(topic_id, found)
        return [message_of(one, topic_id) for one in found]

    def waited(self, taken: Sequence[Message]) -> bool:
        """By offset: how many of those that are there come to this member, nobody knows."""
        places = [one.place for one in taken if one.place is not None]
        return any(at.offset < self._first.get(at.partition, 0) for at in places)

    def acknowledge(self, taken: Sequence[Message]) -> None:
        """Exactly these."""
        places = [one.place for one in taken if one.place is not None]
        self._group.acknowledge((at.partition, at.offset) for at in places)

    def rest(self) -> None:
        """It stays: to join takes seconds, and heartbeats are sent by a thread of the client."""

    def drop(self) -> None:
        """Leave the group."""
        self._group.drop()


def message_of(one: Any, topic_id: str) -> Message:
    """Of a record that a share group has handed out."""
    place = Place(topic_id, one.partition(), one.offset())
    name = f"{one.topic()}-{place.partition}-{place.offset}"
    kind, sent = one.timestamp()
    count = one.delivery_count()
    properties = {"topic": one.topic(), "partition": place.partition, "offset": place.offset}
    if kind in _TIMESTAMP_KINDS:
        properties["timestampType"] = _TIMESTAMP_KINDS[kind]
        if time_ms(sent) is None:
            properties["timestamp"] = sent
    said = {
        "id": name,
        "exchange": None,
        "routingKey": None,
        "redelivered": bool(count and count > 1),
        "deliveries": count - 1 if count else None,
        "sent": time_ms(sent) if kind in _TIMESTAMP_KINDS else None,
        "properties": {key: str(value) for key, value in properties.items()},
    }
    headers = list(one.headers() or ())
    return Message(name.encode(), one.key(), one.value(), said, headers, place=place)
