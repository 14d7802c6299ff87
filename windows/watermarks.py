"""Watermark policies: which rows move the watermark, and how far it stays behind them.

Spark keeps the watermark: in the offset log, so that a batch that runs again has the one it had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..core.errors import OptionsError
from ..core.options import time_span_ms
from .aggregates import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_CHAINED = "spark.sql.streaming.statefulOperator.allowMultiple"
_POLICY = "spark.sql.streaming.multipleWatermarkPolicy"
CANDIDATE = "_eo_watermark_"


class Watermark(Protocol):
    """A policy."""

    @property
    def repeatable(self) -> bool:
        """Whether a later batch's watermark follows from the records and an earlier one's."""

    @property
    def takes_least(self) -> bool:
        """Whether it is made of several of Spark's, of which the least must count."""

    def problems(self, events: DataFrame) -> list[str]:
        """What stands against it for these rows, in sentences."""

    def applied(self, events: DataFrame, time: str) -> DataFrame:
        """The rows, such that Spark keeps this watermark."""


def lag(span: str) -> Watermark:
    """The watermark stays this far behind the newest event time of all rows. Spark's own policy,
    and what a mere text as `watermark=` means.

    Runs on the driver, once, as all policies.

    Args:
        span: A time such as `10 seconds`.

    Returns:
        A policy, for `watermark=` of the windows.

    Raises:
        ValueError: `span` is no time.

    Examples:
        >>> watermark = eo_kafka.windows.lag("10 seconds")
    """
    return _Lag(time_span_ms(span))


def by_partition(
    span: str, *, partitions: int, idle: str | None = None, column: str = "partition"
) -> Watermark:
    """The watermark stays this far behind the partition that is furthest behind.

    Until each partition has had a row there is no watermark, and after a restart it stands still
    until each has had one again, unless `idle` is given: then a partition counts as being no
    further behind the newest event time of the others than that. It is event time, not the clock:
    so a batch that runs again comes to the same. A partition that is slower than that, and not
    idle, is let go in the same way, and its rows may be late.

    It needs `spark.sql.streaming.statefulOperator.allowMultiple=false` in the session. Each batch
    takes a snapshot, whatever `snapshotInterval` says.

    Args:
        span: A time such as `10 seconds`.
        partitions: How many there are. Rows of others hold nothing back.
        idle: How far a partition may be behind the others and still hold the watermark back, as
            a time; None: it holds it back for ever.
        column: The column of the rows with the number of their partition, from 0. The source's
            `partition` is enough for one topic only: partition 0 of two topics would count as one,
            whose watermark is that of the topic ahead. Of several topics make a column that numbers
            all partitions, such as `CASE topic WHEN 'a' THEN partition ELSE 4 + partition END`.

    Returns:
        A policy, for `watermark=` of the windows.

    Raises:
        ValueError: `span` or `idle` is no time, or `partitions` is less than 1.

    Examples:
        >>> watermark = eo_kafka.windows.by_partition("10 seconds", partitions=4, idle="5 minutes")
    """
    if partitions < 1:
        raise ValueError("partitions must be at least 1")
    return _ByPartition(
        time_span_ms(span), partitions, None if idle is None else time_span_ms(idle), column
    )


def custom(function: Callable[[Column], Column], span: str = "0") -> Watermark:
    """The watermark stays `span` behind the newest of what your function makes of event times.

    Each batch takes a snapshot, whatever `snapshotInterval` says: the function may be one of
    Arrow batches, which are cut differently when a batch runs again.

    Args:
        function: Gets the column of event times and returns one of type TIMESTAMP: how far each
            row moves the watermark; null: it does not move it. It may use other columns of the
            rows, and it may be a `pandas_udf` of the times of a batch.
        span: A time such as `10 seconds`.

    Returns:
        A policy, for `watermark=` of the windows.

    Raises:
        ValueError: `span` is no time.

    Examples:
        A clock that is ahead by more than an hour of Kafka's time does not move the watermark:

        >>> watermark = eo_kafka.windows.custom(
        ...     lambda at: F.when(at < F.expr("timestamp + INTERVAL 1 HOUR"), at), "10 seconds"
        ... )
    """
    return _Custom(time_span_ms(span), function)


@dataclass(frozen=True)
class _Lag:
    lag: int
    repeatable: bool = True
    takes_least: bool = False

    def problems(self, events: DataFrame) -> list[str]:
        return []

    def applied(self, events: DataFrame, time: str) -> DataFrame:
        from pyspark.sql import functions as f

        return _behind(events, 0, f.col(quoted(time)), self.lag)


@dataclass(frozen=True)
class _ByPartition:
    lag: int
    partitions: int
    idle: int | None
    column: str
    repeatable: bool = False  # Spark remembers only the least of the watermarks
    takes_least: bool = True

    def problems(self, events: DataFrame) -> list[str]:
        conf = events.sparkSession.conf
        problems = [
            f"watermark=by_partition(...) needs {name}={value} in the session: "
            f'spark.conf.set("{name}", "{value}").'
            for name, value, default in ((_CHAINED, "false", "true"), (_POLICY, "min", "min"))
            if str(conf.get(name, default)).lower() != value
        ]
        if self.column not in events.columns:
            problems.append(
                f"watermark=by_partition(...): the rows have no column '{self.column}' with the "
                "number of their partition. Select it, or name another one by column=."
            )
        return problems

    def applied(self, events: DataFrame, time: str) -> DataFrame:
        from pyspark.sql import functions as f

        at = f.col(quoted(time))
        others = None
        if self.idle is not None:
            others = f.timestamp_micros(f.unix_micros(at) - self.idle * 1000)
        for number in range(self.partitions):
            mine = f.when(f.col(quoted(self.column)) == number, at)
            moves = mine if others is None else mine.otherwise(others)
            events = _behind(events, number, moves, self.lag)
        return events


@dataclass(frozen=True)
class _Custom:
    lag: int
    function: Callable[[Column], Column]
    repeatable: bool = False
    takes_least: bool = False

    def problems(self, events: DataFrame) -> list[str]:
        return []

    def applied(self, events: DataFrame, time: str) -> DataFrame:
        from pyspark.sql import functions as f

        moves = self.function(f.col(quoted(time)))
        kind = events.select(moves).schema[0].dataType.simpleString()
        if kind not in ("timestamp", "void"):
            raise OptionsError(
                [
                    "watermark=custom(...): the function must return a column of type TIMESTAMP, "
                    f"and it is {kind.upper()}. Spark would take a number for seconds, and a "
                    "watermark that is too far ahead never comes back: return "
                    "timestamp_millis(...) or what else makes a TIMESTAMP of it."
                ]
            )
        return _behind(events, 0, moves.cast("timestamp"), self.lag)


def check_takes_least() -> None:
    """Raise OptionsError if Spark takes another watermark: it goes by what the session had at the
    checkpoint's first batch, and tells that the tasks, not the session. Runs in a task, and once on
    the driver, where nothing is told."""
    from pyspark import TaskContext

    context = TaskContext.get()
    policy = context.getLocalProperty(_POLICY) if context is not None else None
    if policy is not None and policy.lower() != "min":
        raise OptionsError(
            [
                f"watermark=by_partition(...): the checkpoint was begun with {_POLICY}={policy}, "
                "which stays, whatever the session has now: the watermark would be that of the "
                "partition that is ahead, and rows of the others would be late. Nothing of this "
                "batch is visible. Go on with the watermark from before (lag or custom); or start "
                "with a new checkpoint and a new jobName."
            ]
        )


def _behind(events: DataFrame, number: int, moves: Column, lag: int) -> DataFrame:
    """In a column of its own: the one that carries Spark's watermark must not reach the windows."""
    name = f"{CANDIDATE}{number}"
    return events.withColumn(name, moves).withWatermark(name, f"{lag} milliseconds")
