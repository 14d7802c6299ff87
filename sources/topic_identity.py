"""Checks by Kafka's topic ids that topics were not deleted and created again.

Such a topic has the same name, and offsets of its own.

The planner compares ids in each look-up, and a task compares when it has read its ranges. That
leaves no gap: a task has the ids of the look-up before it, and Kafka never uses an id again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress

from ..core.errors import DataLossError, UnknownTopic
from ..core.offsets import Offsets, Position, encode_text
from ..core.process.kept import Kept
from .lookup import OffsetLookup
from .settings.options import SourceOptions

log = logging.getLogger(__name__)

WAYS_OUT = (
    "To read the new one from its beginning, set 'failOnDataLoss' to false until a batch is "
    "written. If it is a copy with the same offsets, in a cluster that took over, a query without "
    "state goes on there with a new checkpoint and, with an eo-kafka sink, 'onReset' 'new-job'. "
    "Its 'startingOffsets' are for each partition the lower of two: the last 'endOffset' of its "
    "progress reports, and the offset up to which the copy was made, behind which are other "
    "records now. A copied output may lack its last rows: compare it by 'eo-kafka verify' before, "
    "and begin no later than what it lacks ('A second cluster' in docs/operations.md)."
)
# A worker runs one task at a time; a query may read with more than one set of settings.
_kept: Kept[OffsetLookup] = Kept(limit=4, close=lambda lookup: lookup.close())


class KnownTopics:
    """The id of each topic, as the query has read it: what its positions say, and, of a beginning
    that Spark does not store, what this process has seen. Lives in Spark's source process."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def replaced(self, now: Mapping[str, str], at: Position) -> dict[str, str]:
        """A sentence for each topic that is another than the one `at` is an offset of."""
        known = {**self._seen, **at.ids}
        return {
            topic: _sentence(topic, known[topic], now[topic], at.offsets)
            for topic in sorted({at.topic for at in at.offsets})
            if topic in known and topic in now and known[topic] != now[topic]
        }

    def accept(self, now: Mapping[str, str]) -> None:
        """Go on with these topics, from here on."""
        self._seen.update(now)


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
            "the batch is in it. A stream's next batch reads it from its beginning; what a batch "
            "query reads is to be loaded again.",
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
            f"used. {going_on} If this is a batch query, load it again."
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
