"""What comes out of windows: rows of results and rows that came too late, and when which is due."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql.types import Row, StructType

from .aggregates import Aggregate, Event, Kept

# Of the column `kind`.
EARLY, ON_TIME, CORRECTION = "early", "on_time", "correction"
RETRACTED, LATE = "retracted", "late"
ADDED = ("window_start", "window_end", "kind", "revision", "late_row")  # to the user's columns
_BEFORE_ALL = -(2**63)

Timed: TypeAlias = tuple[int | None, Event]  # a row, and its time
Bounds: TypeAlias = tuple[int | None, int | None]


@dataclass
class Window:
    """One window of one key. Times are microseconds since 1970; `end` is not part of it."""

    start: int
    end: int
    kept: list[Kept]
    fired: bool = False  # the result that is due at the end was given out
    shown: bool = False  # a result with these bounds was given out
    revision: int = 0  # of the next result


@dataclass(frozen=True)
class Rules:
    """What the user wants of all windows of a query. Travels to the executors."""

    by: Sequence[str]
    names: Sequence[str]  # of the aggregates
    aggregates: Sequence[Aggregate]
    widths: Sequence[int]  # how many values each aggregate keeps
    lateness: int  # microseconds
    early: bool
    ordered: bool  # an aggregate sees rows one by one
    definition: StructType | None = None  # of all that (definition.py)
    takes_least: bool = False  # of several watermarks, whatever the checkpoint was begun with

    def open(self, start: int, end: int) -> Window:
        """A new window, without rows."""
        return Window(start, end, [one.start() for one in self.aggregates])

    def add(self, window: Window, rows: Sequence[Timed]) -> None:
        """Rows of one batch, with their times."""
        events = [event for _, event in (sorted(rows, key=_canonical) if self.ordered else rows)]
        window.kept = [
            one.add(kept, events) for one, kept in zip(self.aggregates, window.kept, strict=True)
        ]

    def merge(self, one: Window, other: Window) -> None:
        """`other` becomes part of `one`."""
        windows = zip(self.aggregates, one.kept, other.kept, strict=True)
        one.kept = [aggregate.merge(left, right) for aggregate, left, right in windows]

    def closed(self, end: int, watermark: int) -> bool:
        """Whether a window that ends at `end` takes no more rows."""
        return end + self.lateness <= watermark

    def packed(self, window: Window) -> Kept:
        """What is kept, as columns of a state."""
        return tuple(value for kept in window.kept for value in kept)

    def unpacked(self, values: Sequence[Any]) -> list[Kept]:
        """`packed` back."""
        rest = iter(values)
        return [tuple(next(rest) for _ in range(width)) for width in self.widths]

    def result(self, by: Sequence[Any], window: Window, kind: str) -> Row:
        """A row of the output, of a window as it is now."""
        values = [one.result(kept) for one, kept in zip(self.aggregates, window.kept, strict=True)]
        revision = window.revision
        window.revision, window.shown = revision + 1, kind != RETRACTED
        return self._row(by, window.start, window.end, values, kind, revision, None)

    def due(self, by: Sequence[Any], window: Window, watermark: int) -> Iterator[Row]:
        """The result that rows of this batch have made due."""
        if window.end <= watermark:
            kind = CORRECTION if window.fired else ON_TIME
            window.fired = True
            yield self.result(by, window, kind)
        elif self.early:
            yield self.result(by, window, EARLY)

    def late(
        self, by: Sequence[Any], rows: Iterable[Timed], bounds: Callable[[int | None], Bounds]
    ) -> Iterator[Row]:
        """Rows of the output, of rows of the input that came too late for the windows whose
        `bounds` these are."""
        for at, event in sorted(rows, key=_canonical):
            nothing = [None] * len(self.names)
            yield self._row(by, *bounds(at), nothing, LATE, None, event)

    def _row(
        self,
        by: Sequence[Any],
        start: int | None,
        end: int | None,
        values: Sequence[Any],
        kind: str,
        revision: int | None,
        late: Event | None,
    ) -> Row:
        make = Row(
            *self.by, "window_start", "window_end", *self.names, "kind", "revision", "late_row"
        )
        row: Row = make(*by, start, end, *values, kind, revision, late)
        return row


def watermark_of(milliseconds: int) -> int:
    """Spark's watermark in microseconds. It is 0 before there is one, and never less: what ends
    before 1970 waits until it moves, as `timer_at` has it."""
    return milliseconds * 1000 if milliseconds > 0 else _BEFORE_ALL


def timer_at(moment: int) -> int:
    """The first whole millisecond, in which Spark's timers are, that is not before `moment`, and
    not before there is a watermark: one at 0 or before would be due at once, while nothing is, and
    Spark deletes a timer for good after its handler."""
    return max(1, -(-moment // 1000))


def _canonical(row: Timed) -> tuple[bool, int, str]:
    """An order of rows that is the same whenever a batch runs."""
    at, event = row
    return at is None, at or 0, repr(event)
