"""Plans where a query starts and which ranges a batch reads. Runs on the driver.

The rules are the JVM connector's: partitions added later are read from their earliest offset, and
what can no longer be read is reported as data loss, or logged with `failOnDataLoss=false`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping

from ..core.errors import DataLossError, SourceError, UnknownTopic
from ..core.offsets import (
    EARLIEST,
    LATEST,
    OffsetRange,
    Offsets,
    Position,
    TopicPartition,
    names,
)
from . import data_loss
from .beyond_end import check_reached, check_stored
from .cut_logs import CutLogs
from .given_offsets import GivenOffsets
from .late_bound import bound, open_ranges
from .lookup import Ends, OffsetLookup, Topics
from .planned_begin import as_planned
from .range_split import split
from .rate_limit import rate_limited
from .settings.limits import ByGroup, ByTime
from .settings.options import SourceOptions
from .topic_identity import WAYS_OUT, KnownTopics

log = logging.getLogger(__name__)

_CANNOT_REPEAT = (
    "A batch since the restored snapshot must be repeated and cannot be; nothing was read. Give "
    "the job's memory up: 'eo-kafka job reset', and a new checkpoint with 'startingOffsets' "
    "(without it, it starts at 'latest')."
)
_WARN = "To stop the query in such a case, set 'failOnDataLoss' to true."


class Planner:
    """Plans the batches of one query; asks the brokers through `lookup`."""

    def __init__(self, options: SourceOptions, lookup: OffsetLookup) -> None:
        self._options = options
        self._lookup = lookup
        self._given = GivenOffsets(options, lookup)
        self._topics = KnownTopics()
        self._cut_logs = CutLogs(options)
        self.continues = False  # a new query, whose first batch ends where another has ended
        self._now: Mapping[str, str] = {}  # the topics' ids in the last look
        self._plans = False  # this run plans batches: those of earlier runs are done
        self._anew: frozenset[str] = frozenset()
        self._epochs: Offsets = {}  # of the leaders, in the last look
        self._lost: dict[TopicPartition, int] = {}  # what was gone, and how far it had been read
        # Of a batch query whose ranges are not cut: with EARLIEST and LATEST, as the options say
        self.open_ranges: dict[TopicPartition, OffsetRange] = {}
        self.to_be_added_to: Topics | None = None  # of the same, if it reads what is added to them
        self._of_group: Offsets = {}  # where a new query's group is
        self._no_start: SourceError | None = None  # why it is not known where a new query starts

    def stored_start(self) -> dict[TopicPartition, int]:
        """Where a new query starts. A restart before batch 0 is committed asks once more, and may
        get another answer: batch 0 begins where its end says (`begins`).

        Partitions that start at `latest`, or where a group is, are left out: their start is stored
        as the end of batch 0, which reads nothing of them. One without a record as new as a time
        that is given starts where it ended before it was asked for one: what comes after is read.

        Raises OptionsError for a start that does not name what is read. What else is wrong with it
        is told where a start is needed: in a restart the end may say all that it is asked for.
        """
        self._options.check_start()
        starting = self._options.starting
        if starting == "latest" or isinstance(starting, ByGroup):
            return {}
        present = self._lookup.partitions()
        newest = self._lookup.latest(present) if isinstance(starting, ByTime) else {}
        try:
            starts = self._given.resolved("startingOffsets", starting, present)
        except SourceError as error:
            self._no_start = error
            return {}
        known = self._lookup.earliest([at for at in present if starts[at] == EARLIEST])
        known |= {at: newest[at] for at in newest if starts[at] == LATEST}
        found = {at: known.get(at, start) for at, start in starts.items()}
        return {at: start for at, start in found.items() if start != LATEST}

    @property
    def topics(self) -> set[str]:
        """The topics that are read now. Raises UnknownTopic."""
        return {at.topic for at in self._lookup.partitions()}

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The id of each topic in the last look."""
        return self._now

    def ids_of(self, offsets: Offsets) -> dict[str, str]:
        """Of the topics that these are offsets of."""
        topics = {at.topic for at in offsets}
        return {topic: found for topic, found in self.topic_ids.items() if topic in topics}

    def epochs_of(self, offsets: Offsets) -> dict[TopicPartition, int]:
        """Of the leaders that told these offsets, or more, in the last look."""
        return {at: self._epochs[at] for at in offsets if at in self._epochs}

    def is_there(self, end: Position) -> bool:
        """Whether a batch that was planned to end there can be run as it was, by the last look."""
        known = all(self.topic_ids.get(topic) == i for topic, i in end.ids.items())
        return known and end.anew == self._anew

    @property
    def anew(self) -> frozenset[str]:
        """The topics that were made again and that the batch which is being planned reads from
        their beginning. After `newest`, until `ranges`."""
        return self._anew

    def newest(
        self, start: Position, recorded: Position | None = None, *, first: bool = False
    ) -> dict[TopicPartition, int]:
        """The end of what can be read now, of every partition there is, for the batch from `start`,
        which is known to have ended at `recorded`. If it is `first`, as in `ranges`, the end is not
        before where the group is that the query starts at, if it starts at one.

        Raises DataLossError where a topic is not the one that `start` is an offset of any more, or
        is gone, or a log was cut below. Now, for once Spark has stored an end without a partition,
        nobody knows how far it was read. And what `stored_start` has left to be told.
        """
        if first and self._no_start is not None:
            raise self._no_start
        found = self._look(start)
        replaced = self._topics.replaced(found.ids, start)
        gone = {at for at in start.offsets.keys() - found.partitions if at.topic not in replaced}
        if gone and self._options.fail_on_data_loss:
            self._tell_loss(data_loss.sentence_of_gone(gone))
        self._lost |= {at: start.offsets[at] for at in gone}
        if recorded is not None:
            # Of what it read from its beginning, it says the id.
            again = recorded._replace(ids={**start.ids, **recorded.ids})
            self._check_repeatable(self._topics.replaced(found.ids, again))
        self._tell(replaced, "The new one is read from its beginning.")
        self._topics.accept(found.ids)
        self._now, self._anew, self._plans = found.ids, frozenset(replaced), True
        known = start if recorded is None else recorded
        if first and recorded is None and isinstance(self._options.starting, ByGroup):
            self._of_group = self._given.of_group(self._options.starting.group, found.partitions)
            known = Position(self._of_group)
        kept = {at: known.offsets[at] for at in known.offsets if at.topic not in self._anew}
        known = known._replace(offsets=kept)
        ends = self._lookup.ends(found.partitions, known)
        self._epochs = ends.epochs
        self._tell_cut(known, ends, must_repeat=recorded is not None)
        return ends.offsets

    def _tell_cut(self, read: Position, ends: Ends, *, must_repeat: bool) -> None:
        for sentence in self._cut_logs.find(read, ends):
            if must_repeat:
                raise DataLossError(f"{sentence} {_CANNOT_REPEAT}")
            self._tell_loss(sentence)

    def _look(self, start: Position) -> Topics:
        """What is read now. A broker that does not know yet of a new topic, or of partitions that
        were added, may answer after one that did: where something of `start` is missing it is asked
        again a few times, then believed."""
        known = self._options.subscription.wanted(start.offsets)
        for attempt in range(1, self._options.num_retries + 1):
            found = self._lookup.look()
            replaced = self._topics.replaced(found.ids, start)
            missing = {at for at in known - found.partitions if at.topic not in replaced}
            if not missing or attempt == self._options.num_retries:
                break
            log.warning("%s are not there any more; asking again", names(missing))
            time.sleep(self._options.retry_interval_ms / 1000)
        return found

    def _check_repeatable(self, lost: Mapping[str, str]) -> None:
        if lost:
            raise DataLossError(f"Topic '{min(lost)}' was deleted and made again. {_CANNOT_REPEAT}")

    def _tell(self, replaced: Mapping[str, str], what: str) -> None:
        for sentence in replaced.values():
            if self._options.fail_on_data_loss:
                raise DataLossError(f"{sentence} {WAYS_OUT}")
            log.warning("%s %s %s", sentence, what, _WARN)

    def end(
        self, start: Offsets, newest: Offsets, limit: int | None, *, first: bool
    ) -> dict[TopicPartition, int]:
        """Where the batch from `start` ends, within `limit` offsets if there is a limit. `first` as
        in `ranges`. Raises SourceError for a start beyond `newest`."""
        if first and isinstance(self._options.starting, ByGroup):
            return self._given.within(self._options.starting.group, self._of_group, newest)
        if first:
            check_reached(start, newest)
        if limit is None:
            return dict(newest)
        return rate_limited(limit, self._begin(start, newest, self._anew, first), newest)

    def begins(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """Where a new query's first batch, from `start` to `end`, begins, to be kept in its end.
        Without it, a restart with another `startingOffsets` would read what it did not read."""
        found = self._begin(start, end, self._anew, first=True)
        return {at: found[at] for at in found if found[at] <= end[at]}

    def ranges(self, start: Offsets, until: Position, *, first: bool) -> list[OffsetRange]:
        """What the batch from `start` to `until` reads. Raises SourceError, mostly DataLossError.

        `first` says that it is a new query's first batch, whose `start` was looked up by this run
        and not read from the offset log: it may then name partitions younger than the batch, which
        the next one will find.

        A batch of an earlier run may be planned on a topic that was made again since: of that it
        reads nothing. What is in the new one belongs to the next batch, for this one may be decided
        already, and would not be written again.
        """
        end = until.offsets
        start = self._first_start(start, until) if first else start
        deleted: set[str] = set()
        present: set[TopicPartition] = set()
        if not self._plans:  # a restart in the middle of this batch, or just before it
            (present, self._now), deleted = self._looked({at.topic for at in end})
        replaced = self._topics.replaced(self._now, until)
        self._tell(
            replaced,
            "This batch was planned on the old one, and reads nothing of it any more; the next one "
            "reads all of the new one.",
        )
        if present and self._options.fail_on_data_loss:  # else what is there now is read
            ends = self._lookup.ends(present & end.keys(), until)
            self._tell_cut(until, ends, must_repeat=False)
        self._topics.accept({topic: i for topic, i in self._now.items() if topic not in replaced})
        self._anew = frozenset()  # of another batch
        gone = start.keys() - end.keys()
        if gone and first:
            gone -= self._lookup.partitions()
        if gone:
            self._tell_loss(data_loss.sentence_of_gone(gone))
        if deleted:
            self._tell_loss(data_loss.sentence_of_deleted(deleted))
        end = {at: end[at] for at in end if at.topic not in replaced.keys() | deleted}
        begin = self._begin(start, end, until.anew, first)
        if first:
            begin = as_planned(begin, until.begins)
            check_stored(self._options.starting, begin, end)
        for at in sorted(begin.keys() - start.keys() - until.begins.keys()):
            # Without any stored offset none of its partitions is new to a new query.
            added = not first or (start and not self._is_pinned(at))
            if added and at in self._lost:
                log.warning(
                    "Partition %s is there again. It was read up to offset %d before it was gone; "
                    "now it is read from offset %d, some of it for the second time, unless it is "
                    "another topic. %s",
                    *(at, self._lost.pop(at), begin[at], _WARN),
                )
            if added and begin[at] != 0:
                self._tell_loss(
                    f"Added partition {at} starts from offset {begin[at]} instead of 0; some data "
                    "may have been missed."
                )
        for at in sorted(begin):
            if end[at] < begin[at]:
                self._tell_loss(data_loss.sentence_of_shorter(OffsetRange(at, begin[at], end[at])))
        return self._tasks(OffsetRange(at, begin[at], end[at]) for at in sorted(begin))

    def _first_start(self, start: Offsets, until: Position) -> Offsets:
        if self._no_start is not None:
            if until.offsets.keys() - until.begins.keys():
                raise self._no_start
            return until.begins
        if isinstance(self._options.starting, ByTime):
            # Where no record was so new when it was planned, there is one by now: it reads none.
            return {at: min(offset, until.offsets.get(at, offset)) for at, offset in start.items()}
        return start

    def check_planned_here(self, start: Offsets, until: Position) -> None:
        """Of a new query's first batch, after `ranges`: what is to end where it begins may have
        been planned by Spark's own connector, which keeps the beginning where a Python source
        cannot see it. Its ends do not say which topics they are of. Raises DataLossError."""
        ends = until.offsets
        unknown = [at for at in ends if at not in start and self._is_pinned(at)]
        if isinstance(self._options.starting, ByTime):  # no record may have been so new
            unknown += [at for at in start if start[at] >= ends.get(at, start[at] + 1)]
        if any(at.topic in self._now.keys() - until.ids.keys() for at in unknown):
            self._tell_loss(data_loss.sentence_of_foreign_plan(until.offsets))

    def _looked(self, topics: set[str]) -> tuple[Topics, set[str]]:
        """What is read now, with the ids of `topics`, and those of `topics` that are gone."""
        found = self._lookup.look()
        ids, gone = dict(found.ids), set()
        for topic in sorted(topics - {at.topic for at in found.partitions}):
            try:  # one that is not read any more is there
                ids |= self._lookup.ids([topic])
            except UnknownTopic:
                gone.add(topic)
        return Topics(found.partitions, ids), gone

    def batch_ranges(self) -> list[OffsetRange]:
        """A batch query's ranges, with EARLIEST and LATEST as they are now. If tasks resolved them,
        an attempt that is run again, behind a shuffle or for a part of a cached table, would read
        other rows than the first."""
        present, self._now = self._lookup.look()
        ranges = open_ranges(self._options, self._lookup, present)
        found = bound(self._options, self._lookup, ranges)
        if self._options.cuts:
            return self._tasks(found)
        self.open_ranges = {one.partition: one for one in ranges}
        reads_on = not ranges or any(one.end == LATEST for one in ranges)
        if reads_on and not self._options.subscription.assigned:
            self.to_be_added_to = Topics(present, dict(self._now))
        return found

    def _tell_loss(self, sentence: str) -> None:
        data_loss.tell_loss(sentence, fail=self._options.fail_on_data_loss)

    def _tasks(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        return split(ranges, self._options.min_partitions, self._options.max_records_per_partition)

    def _begin(
        self, start: Offsets, end: Offsets, anew: Collection[str], first: bool
    ) -> dict[TopicPartition, int]:
        """Where each partition of `end` begins, those without an entry in `start` too, and those of
        the topics in `anew`, which were made again."""
        begin = {at: start[at] for at in end if at in start and at.topic not in anew}
        unstored = end.keys() - begin.keys()
        pinned = {at for at in unstored if first and at not in start and self._is_pinned(at)}
        return {
            **begin,
            **{at: end[at] for at in pinned},
            **self._lookup.earliest(unstored - pinned),
        }

    def _is_pinned(self, at: TopicPartition) -> bool:
        """Whether a new query's first batch reads nothing of it: where it ends is the start."""
        return self.continues or self._options.starts_at_latest(at)
