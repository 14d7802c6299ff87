"""The memory of a share group's messages: of each partition, the offsets that were kept.

A compacted topic beside the inbox has one record a partition. It is written in the transaction that
keeps the messages, so the two never differ. No I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ...core.errors import EnvironmentRefused
from .backend import Read
from .kept_offsets import SPAN, KeptOffsets
from .message import Message, Record

KEPT = "kept1"  # another number if what it says is ever another
_NOTHING = KeptOffsets()
Partition = tuple[str, int]  # the topic's id and the number


class OffsetMemory:
    """`topic` is its own. Topics that messages come from are told apart by their ids."""

    remembers_all = True

    def __init__(self, topic: str, inbox: str) -> None:
        self.topics = (topic,)
        self._topic, self._inbox = topic, inbox
        self._kept: dict[Partition, KeptOffsets] = {}
        self._next: dict[Partition, KeptOffsets] = {}

    def end(self, topic_id: str, partition: int) -> int:
        """One more than the highest offset that was kept of a partition."""
        return self._kept.get((topic_id, partition), _NOTHING).end

    def recall(self, ends: Mapping[str, int], read: Read) -> None:
        """The newest record of each partition. Raises EnvironmentRefused where it is not what it
        was."""
        newest: dict[bytes, tuple[int, bytes | None]] = {}  # each may have thousands of edges
        for offset, key, value, _ in read(self._topic, 0, ends[self._topic]):
            newest[key] = offset, value
        for key, (offset, value) in newest.items():
            try:
                topic_id, partition = json.loads(key)
                said = json.loads(value or b"")
                steps = said.pop(KEPT)
                if said:
                    raise ValueError(f"it says more: {said}")
                self._kept[topic_id, int(partition)] = KeptOffsets.unpacked(steps)
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                raise EnvironmentRefused(
                    f"Record {offset} of topic '{self._topic}' was not written by this version of "
                    f"eo-queue ({type(error).__name__}): which messages are in inbox "
                    f"'{self._inbox}' is not known, and nothing was taken. If a newer version has "
                    "worked with it, go on with that one; else start with another inbox."
                ) from None
        if not self._kept and any(read(self._inbox, 0, ends[self._inbox])):
            raise EnvironmentRefused(
                f"Topic '{self._topic}' is empty, and inbox '{self._inbox}' is not: which messages "
                "are in it is not known, so they could be repeated. Nothing was taken. That topic "
                "was deleted, or another queue filled the inbox. Start with an inbox of its own."
            )
        if self._kept and not ends[self._inbox]:  # before what is kept there is a trial
            count = sum(kept.count for kept in self._kept.values())
            raise EnvironmentRefused(
                f"Inbox '{self._inbox}' has never had a message, and topic '{self._topic}' "
                f"remembers {count:,} messages of the last {SPAN:,} of each partition that are kept"
                " in it: the inbox was deleted. Those that the query had not read are lost: the "
                "share group hands them out no more. Nothing was taken. Look whether the query has "
                f"written them all; then, or to go on without them, delete '{self._topic}', too."
            )

    def has(self, one: Message, *, is_poison: bool) -> bool:
        """Whether its offset was kept, anywhere: what somebody puts back has another."""
        at = one.place
        assert at is not None
        return at.offset in self._kept.get((at.topic_id, at.partition), _NOTHING)

    def doubt(self, one: Message) -> str | None:
        """Why it is not known. Only what resets a group's offsets makes such a thing come again."""
        at = one.place
        assert at is not None
        kept = self._kept.get((at.topic_id, at.partition), _NOTHING)
        if not kept.is_forgotten(at.offset):
            return None
        return (
            f"its offset {at.offset} is more than {SPAN} below the highest that was kept of "
            f"partition {at.partition}, {kept.end - 1}: whether it was kept is not remembered. The "
            "group's offsets were set back, or the group was deleted and made again"
        )

    def records(self, wanted: Mapping[str, Sequence[Record]]) -> dict[str, list[Record]]:
        """One for each partition that messages are of."""
        offsets: dict[Partition, list[int]] = {}
        for one in (record for records in wanted.values() for record in records):
            assert one.place is not None
            of_partition = (one.place.topic_id, one.place.partition)
            offsets.setdefault(of_partition, []).append(one.place.offset)
        self._next = {
            partition: self._kept.get(partition, _NOTHING).with_more(found)
            for partition, found in offsets.items()
        }
        return {
            self._topic: [
                Record(
                    json.dumps(partition).encode(),
                    json.dumps({KEPT: kept.packed()}).encode(),
                    [],
                )
                for partition, kept in self._next.items()
            ]
        }

    def note(self, wanted: Mapping[str, Sequence[Record]]) -> None:
        """What `records` gave is committed."""
        self._kept.update(self._next)
        self._next = {}
