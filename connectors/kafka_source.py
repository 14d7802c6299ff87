"""Spark's reader interfaces for Kafka, stream and batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from ..core.crash_points import crash_point
from ..core.errors import OptionsError, SourceError
from ..core.offsets import (
    OffsetRange,
    Offsets,
    Position,
    TopicPartition,
    decode_position,
    encode,
    encode_position,
)
from ..formats.options import FormatOptions
from ..formats.reading import Reading
from ..sources.held_back import HeldBack
from ..sources.late_bound import bound_anew
from ..sources.lookup import OffsetLookup
from ..sources.most_tasks import MostTasks
from ..sources.planned_begin import is_kept
from ..sources.planner import Planner
from ..sources.range_split import gather
from ..sources.recorded_ends import RecordedEnds, check_is_there
from ..sources.settings.options import SourceOptions
from ..sources.trigger_delay import TriggerDelay
from ..state.snapshots import first_starts
from ..state.snapshots.first_starts import FirstStart
from .one_build import OneBuild
from .plain_errors import plain_errors
from .spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

if TYPE_CHECKING:
    import pyarrow as pa


def reader_options(
    given: Mapping[str, str], streaming: bool
) -> tuple[SourceOptions, FormatOptions]:
    """Both, checked together so that all problems are told at once. Contacts nobody."""
    problems: list[str] = []
    formats = FormatOptions((), None)
    try:
        formats = FormatOptions.of_reader(given)
    except OptionsError as error:
        problems += error.problems
    try:
        options = SourceOptions.parse(given, streaming)
    except OptionsError as error:
        raise OptionsError(
            [*error.problems, *(one for one in problems if one not in error.problems)]
        ) from None
    if problems:
        raise OptionsError(problems)
    return options, formats


@plain_errors
class KafkaStreamReader(OneBuild, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream over the subscribed topics.

    Spark keeps one instance in a process of its own for planning, and pickles another, made once
    a query, to the tasks for `read`. Nothing here outlives the process: what a restart must find
    again is in the offsets that Spark stores.

    Spark asks `initialOffset()` again when it restarts before batch 0 is committed, and stores no
    answer. So the end of batch 0, which Spark does store, says where batch 0 begins; of partitions
    that start at `latest`, that it begins where it ends.

    With option `jobName`, batches since the job's newest snapshot end where they ended before. With
    `onReset=continue` a new query starts where the job ended: batch 0 ends there, is empty, and its
    offset says so.
    """

    def __init__(
        self, options: SourceOptions, reading: Reading | None = None, slots: int | None = None
    ) -> None:
        """`slots`: how many tasks Spark runs at once, if that is known."""
        self._options = options
        self._reading = reading
        self._lookup = OffsetLookup(options)
        self._recorded = RecordedEnds(options)
        self._planner = Planner(options, self._lookup)
        self._held_back = HeldBack(self._lookup)
        self._initial: dict[TopicPartition, int] | None = None
        self._first_end: Offsets | None = None  # of batch 0, once its tasks were planned
        self._continues_at: Offsets | None = None
        self._most_tasks = MostTasks(options, slots)
        self._position: Position | None = None  # the last that Spark has given, or was given
        self._newest: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] | None = None
        least = options.min_offsets_per_trigger
        self._delay = TriggerDelay(least, options.max_trigger_delay_ms) if least else None
        self._until_now = False
        self._target: dict[TopicPartition, int] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Where the query starts; see the class. Driver, while batch 0 is not committed."""
        return encode(self._start())

    def getDefaultReadLimit(self) -> ReadLimit:
        """By `maxOffsetsPerTrigger` and `minOffsetsPerTrigger`, if given. Driver, once a run;
        Trigger.Once overrides it."""
        most, least = self._options.max_offsets_per_trigger, self._options.min_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read only up to what the next `latestOffset` sees. Driver, first call of such a run."""
        self._until_now = True

    def latestOffset(self, start: Any = None, limit: ReadLimit | None = None) -> dict[str, Any]:
        """Where the next batch ends. Driver, once for each batch or trigger. Before 4.2 Spark gives
        neither argument: the batch starts where the last one of this process ended, and a restart
        begins with `partitions`.

        Raises SourceError for a start that is not to be found, an unknown topic or one we may not
        describe, ReadTimeout when no broker answers, DataLossError when a recorded end is not there
        any more.
        """
        if start is not None:
            begin = self._noted(start).offsets
        else:
            begin = self._start() if self._reached is None else self._reached
        recorded = self._recorded.after(begin)
        if self._target is None:
            at = self._position or Position(begin)
            first = self._continues_at is None and self._is_first(begin)
            at = at._replace(offsets=begin)
            self._newest = self._planner.newest(at, recorded, first=first)
            if self._options.read_committed:
                self._held_back.look(self._newest)
            if self._until_now:
                self._target = self._newest
        if self._continues_at is not None and begin == self._initial:
            self._recorded.check_continues(self._newest, self._planner.topic_ids)
            ids = self._planner.ids_of(self._continues_at)
            epochs = self._planner.epochs_of(self._continues_at)
            ledger = self._options.ledger_topic
            position = Position(self._continues_at, ledger, ids=ids, epochs=epochs)
        elif recorded is not None:
            check_is_there(recorded.offsets, self._newest)
            position = recorded
        else:
            again = self._recorded.interrupted(begin, self._newest)
            if again is None or not self._planner.is_there(again):
                again = self._new_end(begin, limit)
            position = again
        if begin == self._initial:
            crash_point("source.after_initial_resolution")
        self._reached = dict(position.offsets)
        self._position = position
        return encode_position(position)

    def _new_end(self, begin: Offsets, limit: ReadLimit | None) -> Position:
        """Where a batch from `begin` ends that is not recorded."""
        end, anew, first = begin, self._planner.anew, self._is_first(begin)
        if self._is_put_off(begin, limit):
            anew = frozenset()
        else:
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
            end = self._planner.end(begin, self._newest, rows, first=first)
        ids = self._planner.ids_of(end)
        here = self._position
        if here and end == here.offsets and ids.keys() <= here.ids.keys() and not anew:
            return here  # written in another way, Spark would take it for another place
        tasks, epochs = self._most_tasks.of(end), self._planner.epochs_of(end)
        begins = self._planner.begins(begin, end) if first else {}
        return Position(end, None, tasks, ids, anew, epochs, begins)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The newest offsets seen, for the progress report. Driver, after `latestOffset`."""
        return encode(self._newest) if self._newest else None

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        """The tasks of one batch. Driver; after a restart the first call may be this one.

        Raises DataLossError when part of the batch is gone already, or where it begins is not known
        here.
        """
        begin, until = self._noted(start).offsets, self._noted(end)
        known = begin or self._newest or until.continues
        if self._continues_at is not None and not known:
            # Batch 0, planned by an earlier process when the ledger had nothing to continue.
            self._continues_at, self._planner.continues = None, False
            self._initial = begin = self._planner.stored_start()
        ranges = self.ranges(begin, until)
        if self._is_first(begin, until.offsets):
            self._planner.check_planned_here(begin, until)
        options = self._options
        most = options.max_partitions if options.cuts else until.most_tasks
        return _tasks(ranges, most, self.topic_ids)

    @property
    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the topics for which the ranges were planned. Driver."""
        return self._planner.topic_ids

    def ranges(self, begin: Offsets, until: Position) -> list[OffsetRange]:
        """What the tasks of one batch share. Driver; raises as `partitions`."""
        crash_point("source.before_partitions")
        self._reached = dict(until.offsets)
        first = self._is_first(begin, until.offsets)
        if first:
            self._first_end = until.offsets
        found = self._planner.ranges(begin, until, first=first)
        if first:
            begins = {one.partition: one.start for one in reversed(found)}  # none is empty
            by_default = self._options.starts_by_default or is_kept(begin, until)
            told = FirstStart({**until.offsets, **begins}, by_default)
            first_starts.tell(until.offsets, told)
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task's ranges. Executor, once for each task attempt."""
        return _read(self._options, self._reading, *partition.value)

    def commit(self, end: Any) -> None:
        """Nothing to do: the offsets are in the checkpoint."""

    def stop(self) -> None:
        """Drop the client. Spark ends the process without calling this."""
        self._lookup.close()

    def _is_first(self, begin: Offsets, end: Offsets | None = None) -> bool:
        """Whether the batch from `begin` (to `end`) is batch 0. The next one starts there, too, if
        batch 0 found nothing, as where no topic is there yet that `subscribePattern` matches."""
        return begin == self._initial and self._first_end in (None, end)

    def _is_put_off(self, begin: Offsets, limit: ReadLimit | None) -> bool:
        if self._delay is None or self._until_now or isinstance(limit, ReadAllAvailable):
            return False
        return not self._delay.is_due(begin, self._newest)

    def _noted(self, offset: Any) -> Position:
        """A position out of Spark's log, ours or the JVM connector's."""
        try:
            self._position = decode_position(offset)
        except ValueError as error:
            raise SourceError(
                f"The offset in the checkpoint is not one of a Kafka source: it {error}."
            ) from None
        return self._position

    def _start(self) -> dict[TopicPartition, int]:
        if self._initial is None:
            if self._options.continues:
                self._continues_at = self._recorded.continues_at(self._planner.topics)
            self._planner.continues = self._continues_at is not None
            self._initial = {} if self._planner.continues else self._planner.stored_start()
        return self._initial


@plain_errors
class KafkaBatchReader(OneBuild, DataSourceReader):
    """A batch over the subscribed topics. `earliest` and `latest` mean what they mean at the first
    action on the DataFrame: each attempt of a task, and each action, reads the same. To read on,
    load again. But in a batch of a stream (joined with it, or in `foreachBatch`) each task reads
    up to what `latest` is then, unless options cut ranges into tasks; and the first one what was
    added to the topics. None reads a topic that was made again: others may have read the old one.
    """

    def __init__(self, options: SourceOptions, reading: Reading | None = None) -> None:
        options.check_batch()
        self._options = options
        self._reading = reading

    def partitions(self) -> list[InputPartition]:
        """One task for each topic partition, unless options say otherwise. Driver, once a load.

        Raises SourceError, ReadTimeout as the stream does.
        """
        lookup = OffsetLookup(self._options)
        try:
            planner = Planner(self._options, lookup)
            ranges = planner.batch_ranges()
        finally:
            lookup.close()
        tasks = _tasks(ranges, self._options.max_partitions, planner.topic_ids)
        tasks = tasks or [InputPartition(((), {}))]  # for what may be added
        opened, known = planner.open_ranges, planner.to_be_added_to
        for task in tasks:
            held, ids = task.value
            task.value = held, ids, [opened[one.partition] for one in held if opened], known
            known = None  # to the others
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task's ranges. Executor, once for each task attempt."""
        ranges, ids, opened, known = partition.value
        if _is_in_a_stream():
            ranges, ids = bound_anew(self._options, opened or ranges, ids, known)
        return _read(self._options, self._reading, ranges, ids)


def _tasks(
    ranges: Sequence[OffsetRange], most: int | None, ids: Mapping[str, str]
) -> list[InputPartition]:
    """`most` at most, each with its ranges, and the ids that their topics must have."""
    tasks = []
    for held in gather(ranges, most):
        topics = {one.partition.topic for one in held} & ids.keys()
        tasks.append(InputPartition((held, {topic: ids[topic] for topic in sorted(topics)})))
    return tasks


def _is_in_a_stream() -> bool:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.getLocalProperty("sql.streaming.queryId") is not None


def _read(
    options: SourceOptions,
    reading: Reading | None,
    ranges: Sequence[OffsetRange],
    ids: Mapping[str, str],
) -> Iterator[pa.RecordBatch]:
    from ..sources.reader import read_ranges

    if reading is None:
        return read_ranges(options, ranges, ids)
    if reading.unread:
        options = replace(options, include_headers=True, unread=reading.unread)
    return reading.batches(read_ranges(options, ranges, ids))
