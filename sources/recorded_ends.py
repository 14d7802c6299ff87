"""Where the batches since the newest snapshot ended, as the job's ledger records it.

A restored query repeats these batches: their output is written already, and the state must come
out as it was. So each must hold the same records again, whatever `maxOffsetsPerTrigger` says now
and whatever has arrived since. So must an interrupted batch after them, if tasks of it may have
committed by themselves (`commit=idempotent`). Spark does not tell a source the batch's number. The
batch's start identifies it, because the sink takes a snapshot where two batches would have the same
start.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace

from ..core.errors import DataLossError, SourceError, UnknownTopic
from ..core.offsets import Offsets, Position, TopicPartition, encode_text
from ..core.transaction import DecisionState, with_ids
from ..state.ledger.job_topics import MAIN_SINK
from ..state.ledger.ledger import DECISION_PARTITION, Ledger, fold
from ..state.ledger.log_reader import read_records
from ..state.snapshots.batch_ends import Ambiguous, end_of_topics, next_ends
from .lookup import OffsetLookup
from .settings.options import SourceOptions
from .settings.subscription import Subscription

log = logging.getLogger(__name__)


class RecordedEnds:
    """Follows what is recorded, from the first batch this process plans until one that is not.

    Lives in Spark's source process, which is a new one with each start of the query.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._next: Mapping[str, Position] | None = None if options.ledger_topic else {}
        self._interrupted: Mapping[str, Position] = {}
        self._ends: Offsets | None = None
        self._before: Mapping[str, str] = {}

    def after(self, start: Offsets) -> Position | None:
        """Where the batch from `start` ended; None if that is not recorded, and from then on.

        Reads the ledger the first time. Driver. Raises SourceError, ReadTimeout,
        EnvironmentRefused, CorruptLedger.
        """
        found = self._look().get(encode_text(start))
        if found is None:
            self._next = {}  # a new batch: what comes after it is new, too
        return found

    def interrupted(self, start: Offsets, newest: Offsets) -> Position | None:
        """Where the batch from `start` ended, if it is the one that was interrupted and its end is
        there, below `newest`. Once: a source that stayed where it was would be kept there. After
        `after`; contacts nobody."""
        found, self._interrupted = self._interrupted.get(encode_text(start)), {}
        is_there = found and all(newest.get(at, -1) >= end for at, end in found.offsets.items())
        return found if is_there else None

    def continues_at(self, topics: Collection[str]) -> Offsets | None:
        """With `onReset=continue`: where a new query starts that reads `topics`; None if the job
        has written no batch. Reads the ledger. Driver. Raises as `after`."""
        if not self._options.continues:
            return None
        ledger = _read(self._options)
        ends = ledger.ends(MAIN_SINK)
        if not ends:
            return None
        found = end_of_topics(ends, topics)
        if found is None:
            raise SourceError(
                f"Where this query goes on (option 'onReset' is 'continue') is not known: ledger "
                f"'{self._options.ledger_topic}' says of no source, or of several, that it read "
                f"only topics that this one reads ({', '.join(sorted(topics))}). Nothing was read. "
                "Give the query the sources that it had; or choose 'new-job', which reads "
                "everything again, from 'startingOffsets' on (without it, from 'latest')."
            )
        self._before = _topic_ids(ledger)
        self._ends = found
        return found

    def check_continues(self, newest: Offsets, ids: Mapping[str, str]) -> None:
        """Raise DataLossError if the place to go on from is not in the topics that there are now,
        whose ids are `ids`: whatever `failOnDataLoss` says, for the new query can neither go on
        there nor read a new topic from its beginning."""
        end, before = self._ends or {}, self._before
        short = {at: offset for at, offset in end.items() if offset > newest.get(at, -1)}
        others = {topic for topic in ids.keys() & before.keys() if ids[topic] != before[topic]}
        gone = {at: offset for at, offset in end.items() if at in short or at.topic in others}
        if not gone:
            return
        now = {at: newest[at] for at in gone if at in newest}
        raise DataLossError(
            f"The query before ended at {encode_text(gone)}, where this one is to go on (option "
            f"'onReset' is 'continue'), but the topics now end at {encode_text(now)}"
            f"{f', and {sorted(others)} have other ids' if others else ''}: they were deleted, or "
            "made again, or are not read any more. Nothing was read. Restore the topics; or choose "
            "'new-job', which reads everything that there is, if 'startingOffsets' is 'earliest'."
        )

    def _look(self) -> Mapping[str, Position]:
        if self._next is None:
            ledger = _read(self._options)
            self._next = _recorded(ledger)
            self._interrupted = _interrupted(ledger)
        return self._next


def _topic_ids(ledger: Ledger) -> Mapping[str, str]:
    """The ids of the sources' topics, as the newest decision that counts has them, or the query
    before had."""
    decided = ledger.of_sink(MAIN_SINK)
    counts = [batch for batch in decided if decided[batch].state is not DecisionState.VOID]
    return with_ids(decided[max(counts)].source_ids if counts else ledger.succession.source_ids)


def check_is_there(end: Offsets, newest: Offsets) -> None:
    """Raise DataLossError if a recorded end is behind what the topics hold now."""
    short = {at: offset for at, offset in end.items() if offset > newest.get(at, -1)}
    if short:
        now = {at: newest[at] for at in short if at in newest}
        raise DataLossError(
            "A batch since the restored snapshot must be repeated. It ended at "
            f"{encode_text(short)}, but the topics now end at {encode_text(now)}: they were "
            "deleted and created again, or lost records. Nothing was read. Restore the topics; "
            "or give the job's memory up: 'eo-kafka job reset', and a new checkpoint with "
            "'startingOffsets' (without it, it starts at 'latest')."
        )


def _recorded(ledger: Ledger) -> Mapping[str, Position]:
    since = ledger.since_snapshot(MAIN_SINK)
    try:
        return next_ends(found.offsets for found in since)
    except Ambiguous as error:  # the sink stops the query if it replays something else
        log.warning("The batches since the newest snapshot cannot be followed: %s.", error)
        return {}


def _interrupted(ledger: Ledger) -> Mapping[str, Position]:
    begun, since = ledger.interrupted(MAIN_SINK), ledger.since_snapshot(MAIN_SINK)
    if begun is None or not since or since[-1].batch != begun.batch - 1:
        return {}
    try:
        return next_ends([since[-1].offsets, begun.ends], once=True)
    except Ambiguous as error:
        log.warning("Batch %d was interrupted, and cannot be followed: %s.", begun.batch, error)
        return {}


def _read(options: SourceOptions) -> Ledger:
    """What the job's ledger says up to its last stable offset; an empty one if there is none."""
    topic = options.ledger_topic or ""
    committed = options.kafka.merged(isolation_level="read_committed")
    lookup = OffsetLookup(replace(options, subscription=Subscription((topic,)), kafka=committed))
    decisions = TopicPartition(topic, DECISION_PARTITION)
    try:
        lookup.partitions()
        end = lookup.latest([decisions])[decisions]
    except UnknownTopic:
        return Ledger()
    finally:
        lookup.close()
    found = read_records(options.kafka, topic, DECISION_PARTITION, 0, end)
    return fold((key, value) for _, key, value in found)
