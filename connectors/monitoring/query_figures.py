"""Sums over a query's batches, for its metrics. Free of I/O and of any metrics library."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...core.offsets import TopicPartition
from ...sinks.protocol.batch_figures import SinkProgress
from ..spark_reports import slowest
from .query_progress import Progress
from .staleness import Staleness

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

# Upper bounds in seconds: a small batch takes 0.2 s, one over an outage minutes.
BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)


@dataclass
class Histogram:
    """How many took how long."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    total: float = 0.0

    def add(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """The bound, and how many took at most so long."""
        found, so_far = [], 0
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], self.counts, strict=True):
            so_far += count
            found.append((bound, float(so_far)))
        return found


@dataclass
class PartitionFigures:
    """How far one source is behind in one partition."""

    behind: int = 0
    staleness: Staleness = field(default_factory=Staleness)


@dataclass
class SinkFigures:
    """What one job of the query has written."""

    rows: int = 0
    size: int = 0  # of what was sent to topics
    aborted: int = 0
    transactions: int = 0
    snapshot_bytes: int | None = None
    snapshot_sent_bytes: int = 0
    steps: dict[str, tuple[int, float]] = field(default_factory=dict)  # how often, and seconds

    def add(self, sink: SinkProgress) -> None:
        """One more batch."""
        self.rows += sink.numOutputRows or 0
        self.size += sink.numOutputBytes or 0
        self.aborted += sink.abortedTransactions or 0
        self.transactions = sink.openTransactions
        self.snapshot_bytes = sink.snapshotBytes or self.snapshot_bytes
        self.snapshot_sent_bytes += sink.snapshotSentBytes or 0
        for step, ms in sink.durationMs.items():
            count, total = self.steps.get(step, (0, 0.0))
            self.steps[step] = count + 1, total + ms / 1000


@dataclass
class QueryFigures:
    """One query, since this process began to hear of it."""

    name: str
    active: bool = True
    failures: int = 0
    batch: int | None = None
    ended_at_s: float = 0.0
    heard_at_s: float = 0.0
    batch_seconds: Histogram = field(default_factory=Histogram)
    input_records: int = 0
    late_rows: int = 0
    partitions: dict[tuple[int, str, int], PartitionFigures] = field(default_factory=dict)
    sinks: dict[str, SinkFigures] = field(default_factory=dict)
    _newest: tuple[str, int] | None = None
    _run: str = ""
    _last_runs: set[str] = field(default_factory=set)  # whose end is not told yet

    def begin(self, run: str, now_s: float) -> None:
        """A run of it has started. Spark tells that at once, and all else when its listeners are so
        far: the end of the run before may be told later."""
        if self._run not in ("", run):
            self._last_runs.add(self._run)
        self.active, self._run, self.heard_at_s = True, run, now_s

    def add(self, found: Progress, spark: StreamingQueryProgress, now_s: float) -> None:
        """One more batch, of which Spark says the second."""
        if found.runId not in self._last_runs:
            self.active, self._run = True, found.runId
        self.heard_at_s = now_s
        self._look(found, now_s)
        if (found.runId, found.batchId) == self._newest:  # Spark tells of a batch again while idle
            return
        self._newest = found.runId, found.batchId
        self.batch, self.ended_at_s = found.batchId, now_s
        self.batch_seconds.add(found.durationMs.get("triggerExecution", 0) / 1000)
        direct = [one.numInputRecords for one in found.sinks if one.numInputRecords is not None]
        rows = sum(one.numInputRows for one in found.sources)
        self.input_records += sum(direct) if direct else rows
        self.late_rows += sum(one.numRowsDroppedByWatermark for one in spark.stateOperators)
        for sink in found.sinks:
            self.sinks.setdefault(sink.jobName, SinkFigures()).add(sink)

    def _look(self, found: Progress, now_s: float) -> None:
        for number, source in enumerate(found.sources):
            newest, ends = slowest([source.latestOffset]), slowest([source.endOffset])
            if source.latestOffset is not None:
                self._keep(number, newest)
            for at, latest in newest.items():
                of = self.partitions.setdefault((number, *at), PartitionFigures())
                read = ends.get(at, 0)
                of.behind = max(0, latest - read)
                of.staleness.look(read, latest, now_s)

        for gone in {at[0] for at in self.partitions if at[0] >= len(found.sources)}:
            self._keep(gone, ())

    def _keep(self, number: int, read: Collection[TopicPartition]) -> None:
        """This source reads these, and no others any more."""
        for at in [at for at in self.partitions if at[0] == number and at[1:] not in read]:
            del self.partitions[at]

    def end(self, run: str, with_error: bool) -> None:
        """A run of it has ended."""
        self.failures += with_error
        if run in self._last_runs:
            self._last_runs.remove(run)
        else:
            self.active = False
