"""Checks by Kafka's topic ids that topics were not deleted and created again.

Such a topic has the same name, and offsets of its own.

The planner compares ids in each look-up, and a task compares when it has read its ranges. That
leaves no gap: a task has the ids of the look-up before it, and Kafka never uses an id again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress

from ..core.errors import DataLossError, UnknownTopic
from ..core.kept import Kept
from ..core.offsets import Marks, Offsets, TopicPartition, encode_text
from .lookup import OffsetLookup
from .options import SourceOptions

log = logging.getLogger(__name__)

WAYS_OUT = (
    "To read the new one from its beginning, take a new checkpoint; or, where the source has "
    "the option 'jobName', set 'failOnDataLoss' to false. Do not just start the query again: "
    "without 'jobName' it cannot recognize the new topic, and would go on at the old offset in "
    "it."
)
# A worker runs one task at a time; a query may read with more than one set of settings.
_kept: Kept[OffsetLookup] = Kept(limit=4, close=lambda lookup: lookup.close())


class KnownTopics:
    """The id of each topic, as the query has read it. Lives in Spark's source process, and begins
    with what `recorded` says: the ids of an earlier run."""

    def __init__(self, recorded: Callable[[], Mapping[str, str]]) -> None:
        self._recorded = recorded
        self._ids: dict[str, str] | None = None
        # Partitions of a topic that was replaced -> the old one's offset: the batch from there
        # reads the new one from its beginning.
        self._anew: dict[TopicPartition, int] = {}

    @property
    def ids(self) -> Mapping[str, str] | None:
        """Of all topics that were looked at; None before the first look."""
        return self._ids

    @property
    def any_anew(self) -> bool:
        """Whether there may be a partition that is read from its first record."""
        return bool(self._anew)

    def replaced(
        self, now: Mapping[str, str], start: Offsets, anew: Marks = (), *, first: bool
    ) -> dict[str, str]:
        """A sentence for each topic that is another than the one `start` is an offset of. `first`
        says that `start` was looked up by this run: it is of what is there now. `anew` are those
        that an earlier run had recognized, for the batch from `start`."""
        known = self._ids
        if known is None:
            known = {} if first or not start else {**self._recorded(), **dict(anew)}
        return {
            topic: _sentence(topic, known[topic], now[topic], start)
            for topic in sorted({at.topic for at in start})
            if topic in known and topic in now and known[topic] != now[topic]
        }

    def accept(self, now: Mapping[str, str], start: Offsets, replaced: Collection[str]) -> None:
        """Go on with the topics that there are, and in the batch from `start` with those that were
        `replaced` from their beginning."""
        self._ids = {**(self._ids or {}), **now}
        self._anew.update({at: offset for at, offset in start.items() if at.topic in replaced})

    def is_read_anew(self, at: TopicPartition, start: Offsets) -> bool:
        """Whether the batch from `start` begins at the partition's first record. One that starts
        elsewhere comes after that batch, and what comes then may be at the old offset again."""
        if at in self._anew and self._anew[at] != start.get(at):
            del self._anew[at]
        return at in self._anew

    def anew(self, start: Offsets) -> Marks:
        """The topics, and their ids, that the batch from `start` reads from their beginning."""
        found = {at.topic for at in start if self.is_read_anew(at, start)}
        return tuple((topic, (self._ids or {})[topic]) for topic in sorted(found))

    def still_there(self, end: Offsets) -> Offsets:
        """`end` without the partitions that the batch from there reads from their beginning: it is
        of a topic that is gone."""
        return {at: offset for at, offset in end.items() if self._anew.get(at) != offset}

    def moved(self, end: Offsets, start: Offsets, begin: Offsets) -> dict[TopicPartition, int]:
        """`end`, where nothing is read of a partition that is read anew and would end at the number
        it started with: that would look like a batch that was not run yet."""
        return {
            at: begin[at] if offset == start.get(at) and self.is_read_anew(at, start) else offset
            for at, offset in end.items()
        }


def _sentence(topic: str, old: str, new: str, start: Offsets) -> str:
    position = encode_text({at: offset for at, offset in start.items() if at.topic == topic})
    return (
        f"Topic '{topic}' was deleted and made again: its id was {old} and is {new} now. The "
        f"query is at {position} of the old topic: its records from there on are lost, and the "
        "new topic's records below would be skipped."
    )


def without_replaced(options: SourceOptions, planned: Mapping[str, str]) -> set[str]:
    """The topics of a task that are still those that were `planned`; told of the others. On an
    executor, before it reads, where going on is allowed: nothing in a new topic belongs to it."""
    replaced = _replaced(options, planned)
    for topic in sorted(replaced):
        log.warning(
            "Topic '%s' was deleted and made again since the batch was planned: nothing more of "
            "the batch is in it, and the next batch reads it from its beginning.",
            topic,
        )
    return planned.keys() - replaced


def check_not_replaced(options: SourceOptions, planned: Mapping[str, str]) -> None:
    """Raise DataLossError if a topic is another than was `planned`. On an executor, when all was
    read: so no record of another topic was."""
    replaced = _replaced(options, planned)
    if replaced:
        going_on = (
            WAYS_OUT
            if options.fail_on_data_loss
            else "The task is run again, and the next batch reads the new topic from its beginning."
        )
        raise DataLossError(
            f"Topic '{min(replaced)}' was deleted and made again while it was read (or since "
            "the batch was planned), so the records may come from both topics. None of them is "
            f"used. {going_on}"
        )


def _replaced(options: SourceOptions, planned: Mapping[str, str]) -> set[str]:
    """Those of `planned` that have another id now. One that is gone has none: nothing else can have
    been read in its place."""
    lookup = _kept.take(options.kafka) or OffsetLookup(options)
    now: dict[str, str] = {}
    try:
        now = lookup.ids(planned)
    except UnknownTopic:
        for topic in planned:
            with suppress(UnknownTopic):
                now |= lookup.ids([topic])
    _kept.put(options.kafka, lookup)
    return {topic for topic in planned if now.get(topic, planned[topic]) != planned[topic]}
