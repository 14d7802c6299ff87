"""Spark's protocol with a snapshot interval, in small: batches, no-data batches, several sources on
the same topics, new partitions, deaths and lost disks, also in the middle of a replay.

Spark, Kafka and the checkpoint are played; the sink's rule, the ledger and the source are the real
ones. A batch that is written must come back with the records it had, and so must the state.
Each source has a watermark of its own, of which Spark keeps the least. A batch's watermark decides
what it gives from its state, so that must be the same, too. Each start may be of other code: once
it has decided a batch, no batch of an earlier start is run again.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxRows

from eo_kafka.connectors.kafka_source import KafkaStreamReader
from eo_kafka.core.offsets import Offsets, Position, TopicPartition, decode
from eo_kafka.core.transaction import Decision, DecisionState
from eo_kafka.sinks.batches.committable import TaskReport
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol.snapshot_interval import is_due
from eo_kafka.sources import recorded_ends
from eo_kafka.sources.lookup import Ends, Topics
from eo_kafka.sources.settings.options import SourceOptions
from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.blob_names import Blob, SnapshotHead
from eo_kafka.state.ledger.ledger import Ledger
from eo_kafka.state.snapshots.offset_log import PlannedBatch
from eo_kafka.state.snapshots.restoring import _check_can_go_on

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
SINK = SinkOptions.parse(
    {**SERVERS, "topic": "out", "jobName": "j", "snapshots": "true", "snapshotInterval": "1 day"},
    streaming=True,
)
QUERY = "a query"
KEPT = 2  # decisions that stay, if it were not for the snapshot


class Parted(Exception):
    """The sink found that a batch it is to skip is another one than that which was written."""


class OneOperator:
    """The checkpoint of a query with state."""

    url = "/checkpoint"

    def paths(self) -> list[str]:
        return ["state/0/_metadata/metadata"]

    def open(self, path: str) -> io.BytesIO:
        return io.BytesIO(b'v1\n{"operatorInfo":{"operatorName":"dedupe"},"stateStoreInfo":[]}')


@dataclass
class Log:
    """The topics, and what OffsetLookup says of them. Nothing in them is ever deleted."""

    lengths: dict[TopicPartition, int]
    topics: tuple[str, ...] = ()

    def partitions(self) -> set[TopicPartition]:
        return {at for at in self.lengths if at.topic in self.topics}

    def look(self) -> Topics:
        return Topics(self.partitions(), {})

    def earliest(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    def ends(self, partitions: Collection[TopicPartition], known: Position | None = None) -> Ends:
        return Ends({at: self.lengths[at] for at in partitions}, {})


@dataclass
class Disk:
    """The checkpoint: the lines and the watermark of each batch, how many are committed, the newest
    watermark when one was, and the state after each, which is all that was read to get there."""

    lines: list[tuple[str, ...]] = field(default_factory=list)
    watermarks: list[int] = field(default_factory=list)
    committed: int = 0
    watermark: int = 0
    states: list[tuple[object, ...]] = field(default_factory=lambda: [()])

    def copy(self) -> Disk:
        """As it is now."""
        return replace(
            self, lines=[*self.lines], watermarks=[*self.watermarks], states=[*self.states]
        )


class Job:
    """One query and its ledger. `topics` has one entry a source."""

    def __init__(self, topics: Sequence[str], starting: str, follows: Sequence[bool]) -> None:
        self.ends = {TopicPartition(topic, 0): 3 for topic in "ab"}
        self._given = [
            {
                **SERVERS,
                "subscribe": topic,
                "startingOffsets": starting,
                **({"jobName": "j"} if following else {}),
            }
            for topic, following in zip(topics, follows, strict=True)
        ]
        self.ledger = Ledger(owner=QUERY)
        self.disk = Disk()
        self._snapshot = Disk()
        self._written: dict[int, tuple[object, ...]] = {}  # the state after each batch
        self._run = 0  # which start it is
        self._decided_by: dict[int, int] = {}  # the run that decided each batch
        self.replayed = 0
        self.passed_over = 0
        self.start([1] * len(topics))

    def start(self, limits: Sequence[int]) -> None:
        """New source processes, with other limits. Of the watermarks Spark knows the least."""
        self._run += 1
        self._watermarks = [0] * len(self._given)
        self._watermark = max([self.disk.watermark, *self.disk.watermarks])
        self._limits = [ReadMaxRows(limit) for limit in limits]
        self._readers = []
        for given_ in self._given:
            options = SourceOptions.parse(given_, streaming=True)
            reader = KafkaStreamReader(options)
            reader._planner._lookup = Log(self.ends, options.subscription.topics)
            self._readers.append(reader)

    def lose_the_disk(self, limits: Sequence[int]) -> None:
        head = self.ledger.snapshot
        self.disk = Disk()
        if head is not None:
            _check_can_go_on(self.ledger, head, SINK)
            runs = {run for batch, run in self._decided_by.items() if batch >= head.batch}
            assert len(runs) == 1, "batches of another start are run again"
            self.disk = self._snapshot.copy()
        self.start(limits)

    def run_batch(self, *, no_data: bool = False, elapsed: bool = False, dies: str = "") -> bool:
        """What MicroBatchExecution does for one batch; False if there is nothing to do."""
        disk = self.disk
        if len(disk.lines) == disk.committed and not self._construct(no_data):
            return False
        if dies == "planned":
            self.start([limit.max_rows for limit in self._limits])
            return True
        batch = disk.committed
        lines = disk.lines[batch]
        ranges = [
            [part.value for part in reader.partitions(json.loads(start), json.loads(end))]
            for reader, start, end in zip(self._readers, self._starts(batch), lines, strict=True)
        ]
        state = (*disk.states[batch], f"{ranges} at {disk.watermarks[batch]}")
        self._commit(batch, lines, state, elapsed)
        if dies == "decided":
            self.start([limit.max_rows for limit in self._limits])
            return True
        disk.states[batch + 1 :] = [state]
        disk.committed += 1
        self._move_watermark(batch)
        return True

    def _move_watermark(self, batch: int) -> None:
        """WatermarkTracker.updateWatermark, and the commit log."""
        lines = zip(self._starts(batch), self.disk.lines[batch], strict=True)
        for source, (start, end) in enumerate(lines):
            newest = max(map(time_of, read_between(decode(start), decode(end))), default=0)
            self._watermarks[source] = max(self._watermarks[source], newest)
        self._watermark = max(self._watermark, min(self._watermarks))
        self.disk.watermark = self._watermark

    def _starts(self, batch: int) -> Sequence[str]:
        if batch:
            return self.disk.lines[batch - 1]
        return [json.dumps(reader.initialOffset()) for reader in self._readers]

    def _construct(self, no_data: bool) -> bool:
        starts = self._starts(len(self.disk.lines))
        found = [
            json.dumps(reader.latestOffset(json.loads(start), limit))
            for reader, start, limit in zip(self._readers, starts, self._limits, strict=True)
        ]
        if self.disk.lines and found == list(starts) and not no_data:
            return False
        self.disk.lines.append(tuple(found))
        self.disk.watermarks.append(self._watermark)
        return True

    def _commit(
        self, batch: int, lines: tuple[str, ...], state: tuple[object, ...], elapsed: bool
    ) -> None:
        known = self.ledger.decisions.get(("main", batch))
        if known is not None:
            if known.offsets != lines:
                raise Parted(batch)
            assert state == self._written[batch], "the same lines, and yet other records"
            self.replayed += 1
            return
        assert batch not in self._written, "the ledger forgot a batch that is repeated"
        if elapsed and self.ledger.snapshot:
            self.ledger.snapshot = replace(self.ledger.snapshot, made_ms=0)
        planned = PlannedBatch(lines, self.disk.watermarks[batch])
        if is_due(SINK, self.ledger, report_of(batch, self._run), planned, OneOperator()):
            self.ledger.snapshot = head_of(batch, self._run)
            self._snapshot = self.disk.copy()
        else:
            self.passed_over += 1
        decided = replace(decided_of(batch, lines), watermark_ms=planned.watermark_ms)
        self.ledger.apply(records.decision_key("main", batch, 0), records.encode_decision(decided))
        for key, value in self.ledger.tombstones("main", KEPT):
            self.ledger.apply(key, value)
        self._written[batch] = state
        self._decided_by[batch] = self._run

    def grow(self, topic: str, partition: int, records_: int) -> None:
        """Records, or a new partition."""
        number = min(partition, sum(at.topic == topic for at in self.ends))
        at = TopicPartition(topic, number)
        self.ends[at] = self.ends.get(at, 0) + records_

    def follow_to_the_end(self) -> None:
        """The disk is lost for the last time, and all that is written is repeated."""
        self.lose_the_disk([100] * len(self._readers))
        newest = max(self._written, default=-1)
        while self.disk.committed <= newest:
            assert self.run_batch(), "the replay stopped before its end"
            assert len(self.disk.lines) <= newest + 1, "a batch too many"
        while self.run_batch():
            pass
        for reader, end in zip(self._readers, self._starts(len(self.disk.lines)), strict=True):
            reader.latestOffset(json.loads(end))
            assert decode(end) == reader._newest, "what came later was never read"


def read_between(start: Offsets, end: Offsets) -> Iterator[int]:
    """The offsets that a batch reads; a new partition is read from its beginning."""
    for at, until in end.items():
        yield from range(start.get(at, 0), until)


def time_of(offset: int) -> int:
    """When a record was made, in no order."""
    return (37 * offset + 11) % 101


def decided_of(batch: int, lines: tuple[str, ...]) -> Decision:
    return Decision("main", batch, 0, DecisionState.DONE, batch, 5, 1, 0, (), lines)


def report_of(batch: int, run: int) -> TaskReport:
    return TaskReport(batch, batch, 0, False, QUERY, 1, 5, 0, 0, "", None, run=f"{run}")


def head_of(batch: int, run: int) -> SnapshotHead:
    now_ms = int(time.time() * 1000)
    return SnapshotHead(batch, 1, QUERY, Blob("0" * 40, 1), 0, 1, 1, 1, now_ms, run=f"{run}")


LIMITS = st.lists(st.integers(1, 4), min_size=3, max_size=3)
BATCH = st.tuples(
    st.just("batch"),
    st.sampled_from([False, False, False, True]),
    st.sampled_from([False, False, False, True]),
    st.sampled_from(["", "", "", "planned", "decided"]),
)
STEPS = st.lists(
    st.one_of(
        BATCH,
        BATCH,
        st.tuples(st.just("grow"), st.sampled_from("ab"), st.integers(0, 1), st.integers(0, 9)),
        st.tuples(st.just("restart"), LIMITS),
        st.tuples(st.just("lose"), LIMITS),
    ),
    max_size=40,
)
TOPICS = st.lists(st.sampled_from(["a", "b", "a,b"]), min_size=1, max_size=3)
STARTING = st.sampled_from(["earliest", "latest"])


def play(job: Job, steps: Sequence[tuple[object, ...]]) -> None:
    sources = len(job._readers)
    for what, *how in steps:
        if what == "batch":
            job.run_batch(no_data=how[0], elapsed=how[1], dies=how[2])
        elif what == "grow":
            job.grow(*how)
        elif what == "restart":
            job.start(how[0][:sources])
        else:
            job.lose_the_disk(how[0][:sources])
    job.follow_to_the_end()


def with_ledger(job: Job):
    return patch.object(recorded_ends, "_read", lambda options: job.ledger)


def batches(number: int, **how: object) -> list[tuple[object, ...]]:
    return [("batch", how.get("no_data", False), how.get("elapsed", False), "")] * number


GROWN = [("grow", "a", 0, 30), ("grow", "b", 0, 30)]


@given(TOPICS, STARTING, STEPS)
@example(["a"], "earliest", [*GROWN, *batches(8)])
# Other code goes on where the disk is kept, and then the disk is lost.
@example(["a"], "earliest", [*GROWN, *batches(4), ("restart", [1, 1, 1]), *batches(4)])
# One reads a topic twice as fast as the other: where it was in one batch, the other is two later.
@example(["a", "a"], "earliest", [*GROWN, ("restart", [1, 2, 1]), *batches(9)])
# The one source has nothing to read while the other goes on.
@example(["a", "b"], "earliest", [("grow", "a", 0, 9), *batches(9)])
# Nothing has anything to read, and Spark runs a batch for the watermark's sake.
@example(["a"], "earliest", [*batches(3), *batches(2, no_data=True), *GROWN, *batches(3)])
@example(["a", "b"], "earliest", [*batches(3), *batches(2, no_data=True)])
@example(["a"], "earliest", [*GROWN, *batches(4), ("grow", "a", 1, 9), *batches(4)])
@example(["a"], "latest", [*batches(1), *GROWN, *batches(9), ("lose", [2, 1, 1]), *batches(3)])
@settings(deadline=None, max_examples=200)
def test_sources_that_follow_repeat_exactly_what_was_written(topics, starting, steps) -> None:
    job = Job(topics, starting, [True] * len(topics))
    with with_ledger(job):
        play(job, steps)


@given(TOPICS, STARTING, STEPS, st.lists(st.booleans(), min_size=3, max_size=3))
@settings(deadline=None)
def test_where_a_source_does_not_follow_the_sink_stops_or_all_is_the_same(
    topics, starting, steps, follows
) -> None:
    job = Job(topics, starting, follows[: len(topics)])
    with with_ledger(job):
        try:
            play(job, steps)
        except Parted:
            return


def test_the_play_is_about_something() -> None:
    """Snapshots are passed over, and batches repeated; and without the readers' option, with other
    limits, they are not."""
    for follows in (True, False):
        job = Job(["a"], "earliest", [follows])
        with with_ledger(job):
            try:
                play(job, [*GROWN, *batches(9)])
            except Parted:
                assert not follows
            else:
                assert follows
        assert job.passed_over >= 7  # of nine: batch 0 and 1 take one
        assert job.replayed == (8 if follows else 1)
