"""What `startingOffsets` and `endingOffsets` mean, in each of their forms. Runs on the driver."""

from __future__ import annotations

import logging
from collections.abc import Collection

from ..core.errors import SourceError
from ..core.offsets import EARLIEST, LATEST, Offsets, TopicPartition, encode_text, names
from .data_loss import tell_loss
from .lookup import OffsetLookup
from .settings.limits import ByGroup, ByTime, ByTopic, Limit, Word
from .settings.options import SourceOptions

log = logging.getLogger(__name__)


class GivenOffsets:
    """Asks brokers for what is given by a word, a time or a consumer group."""

    def __init__(self, options: SourceOptions, lookup: OffsetLookup) -> None:
        self._options = options
        self._lookup = lookup

    def resolved(
        self, name: str, limit: Limit, present: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """An offset for each partition; EARLIEST and LATEST stay what they are. Raises
        SourceError."""
        if isinstance(limit, ByGroup):
            found = self.of_group(limit.group, present)
            return self.within(limit.group, found, self._lookup.latest(present, found))
        if isinstance(limit, ByTime):
            times = limit.times(present)
            _check_assigned(f"{name}ByTimestamp", times, present)
            return self._at_times(times, limit.or_latest)
        if isinstance(limit, ByTopic):
            named = {
                at: _offset(limit.words[at.topic]) for at in present if at.topic in limit.words
            }
            limit = {**limit.offsets, **named}
        if isinstance(limit, dict):
            _check_assigned(name, limit, present)
            return limit
        return dict.fromkeys(present, _offset(limit))

    def of_group(
        self, group: str, present: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Where the group is; told of partitions where it is not. Raises SourceError if it is in
        none of them."""
        found = self._lookup.committed(group, present)
        if present and not found:
            raise SourceError(
                f"Consumer group '{group}' has committed nothing for any partition of "
                f"{', '.join(sorted({at.topic for at in present}))}. Nothing was read. Either no "
                "group of this id has read them ('kafka-consumer-groups.sh --list' shows the "
                "groups), or its offsets have expired, seven days after its last member left "
                "('offsets.retention.minutes'). Give the right id; or say where to start: "
                "'startingOffsets' as JSON, or as earliest, which reads again what the group has "
                "read."
            )
        if without := set(present) - found.keys():
            log.warning(
                "Consumer group '%s' has committed nothing for %s: they are read from their "
                "earliest offsets.",
                group,
                names(without),
            )
        return found

    def within(self, group: str, found: Offsets, newest: Offsets) -> dict[TopicPartition, int]:
        """Where a read starts, of all partitions. `newest` was looked up after `found`, and with it
        known: the group goes on, and may have read what an open transaction wrote."""
        earliest = self._lookup.earliest(newest)
        for at, offset in sorted(found.items()):
            if not earliest[at] <= offset <= newest[at]:
                tell_loss(
                    f"Consumer group '{group}' is at offset {offset} of partition {at}, which has "
                    f"records from {earliest[at]} to {newest[at]}; some data may have been missed.",
                    fail=self._options.fail_on_data_loss,
                )
        within = {at: min(max(found[at], earliest[at]), newest[at]) for at in found}
        return {at: within.get(at, earliest[at]) for at in newest}

    def _at_times(self, times: Offsets, or_latest: bool) -> dict[TopicPartition, int]:
        found = self._lookup.at_times(times)
        without = sorted(at for at, offset in found.items() if offset is None)
        if without and not or_latest:
            at = without[0]
            raise SourceError(
                f"No offset matched from request of topic-partition {at} and timestamp "
                f"{times[at]}: it has no record so new that may be read, as in {len(without)} of "
                f"{len(times)} partitions.{self._held_back(without)} Take an earlier time, or set "
                "'startingOffsetsByTimestampStrategy' to latest, as for a partition that is empty."
            )
        return {at: LATEST if offset is None else offset for at, offset in found.items()}

    def _held_back(self, without: Collection[TopicPartition]) -> str:
        """That a record so new may be among what is not committed yet, if it may."""
        if not self._options.read_committed:
            return ""
        newest, written = self._lookup.latest(without), self._lookup.written(without)
        held = sorted(at for at in without if written[at] > newest[at])
        if not held:
            return ""
        return (
            f" In {names(held)} an open transaction holds records back, which may be so new: "
            f"'eo-kafka txn list --topic {held[0].topic}' says whose it is. Start again when it "
            "has ended. Or else:"
        )


def _offset(word: Word) -> int:
    return EARLIEST if word == "earliest" else LATEST


def _check_assigned(name: str, offsets: Offsets, present: Collection[TopicPartition]) -> None:
    if offsets.keys() != set(present):
        raise SourceError(
            f"If {name} contains specific offsets, you must specify all TopicPartitions. Use -1 "
            f"for latest, -2 for earliest. Specified: {encode_text(offsets)}; the topics have: "
            f"{names(present)}. Name those, too, that were added since; or give a topic earliest "
            "or latest in the place of its partitions."
        )
