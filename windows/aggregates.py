"""What a window keeps of its rows: `count`, `sum`, `min`, `max`, `avg`, and `fold` for the rest.

What is kept of a window is a tuple for each aggregate, and it does not depend on the order of rows
within a batch: a batch that runs again keeps the same, to the last bit of a DOUBLE.
"""

from __future__ import annotations

import builtins
import decimal
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol, TypeAlias

from .fitting import Misfit, check_of
from .folding import Fold

Event: TypeAlias = Mapping[str, Any]
Kept: TypeAlias = tuple[Any, ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_EXACT = decimal.Context(prec=78)  # more than the sum of any number of DECIMAL(38) needs


class Aggregate(Protocol):
    """One aggregate. It travels to the executors."""

    @property
    def column(self) -> str | None:
        """Which it is over; None: all of the row."""

    def types(self, of: Callable[[str], str]) -> tuple[Aggregate, str, Sequence[str]]:
        """Itself as it must be for these rows, the type of its result, and those of what it keeps.
        `of` tells the type of an SQL expression over the rows."""

    def start(self) -> Kept:
        """What is kept of no rows."""

    def add(self, kept: Kept, events: Sequence[Event]) -> Kept:
        """`kept`, and rows of one batch."""

    def merge(self, one: Kept, other: Kept) -> Kept:
        """Of two sessions that have become one."""

    def result(self, kept: Kept) -> Any:
        """The value of the output's column."""


def count(column: str | None = None) -> Aggregate:
    """The number of rows of a window.

    Runs on executors, as all aggregates, once for each batch that has rows of the window.

    Args:
        column: Count only rows in which this column is not null.

    Returns:
        An aggregate, for `aggregates=` of the windows. Its result is a BIGINT.

    Examples:
        >>> aggregates = {"clicks": eo_kafka.windows.count()}
    """
    return _Count(column)


def sum(column: str) -> Aggregate:
    """The sum of a column, without nulls. DOUBLEs come out the same when a batch is repeated.

    A sum that its type does not hold stops the query: CAST the column to one with more room.

    Args:
        column: A column of numbers.

    Returns:
        An aggregate. The type of its result is that of Spark's `sum`; null without any value.

    Examples:
        >>> aggregates = {"total": eo_kafka.windows.sum("price")}
    """
    return _Sum(column)


def min(column: str) -> Aggregate:
    """The smallest value of a column, without nulls.

    Args:
        column: A column of numbers, text, dates or times.

    Returns:
        An aggregate. Its result has the column's type; null without any value.

    Examples:
        >>> aggregates = {"first": eo_kafka.windows.min("at")}
    """
    return _Extreme(column, largest=False)


def max(column: str) -> Aggregate:
    """The largest value of a column, without nulls; NaN is the largest, as for Spark.

    Args:
        column: A column of numbers, text, dates or times.

    Returns:
        An aggregate. Its result has the column's type; null without any value.

    Examples:
        >>> aggregates = {"last": eo_kafka.windows.max("at")}
    """
    return _Extreme(column, largest=True)


def avg(column: str) -> Aggregate:
    """The mean of a column, without nulls.

    It keeps the sum, as `sum` does, and stops the query as that does.

    Args:
        column: A column of numbers.

    Returns:
        An aggregate. Its result is a DOUBLE; null without any value.

    Examples:
        >>> aggregates = {"mean": eo_kafka.windows.avg("price")}
    """
    return _Average(column)


def fold(
    kind: str,
    zero: Any,
    step: Callable[[Any, Event], Any],
    merge: Callable[[Any, Any], Any],
) -> Aggregate:
    """An aggregate of your own.

    `step` sees the rows of a batch by event time. Both functions must not look at a clock, draw
    random numbers or change what they are given: a batch that is repeated must come out the same.
    What they return must be of type `kind`, else the query stops. Whole numbers may stand for
    DOUBLE and DECIMAL.

    Args:
        kind: The type of what is kept, which is the result, as in a schema: `ARRAY<STRING>`. Keep
            times as numbers or text.
        zero: What is kept of no rows.
        step: Called with what is kept and a row, a mapping by the names of all columns, for each
            row; returns what is kept then.
        merge: Called with what is kept of two sessions that have become one.

    Returns:
        An aggregate.

    Examples:
        >>> pages = eo_kafka.windows.fold(
        ...     "ARRAY<STRING>",
        ...     zero=[],
        ...     step=lambda pages, row: sorted({*pages, row["page"]}),
        ...     merge=lambda one, other: sorted({*one, *other}),
        ... )
    """
    return Fold(kind, zero, step, merge)


@dataclass(frozen=True)
class _Count:
    column: str | None

    def types(self, of: Callable[[str], str]) -> tuple[Aggregate, str, Sequence[str]]:
        return self, "BIGINT", ["BIGINT"]

    def start(self) -> Kept:
        return (0,)

    def add(self, kept: Kept, events: Sequence[Event]) -> Kept:
        return (kept[0] + len(_values(events, self.column) if self.column else events),)

    def merge(self, one: Kept, other: Kept) -> Kept:
        return (one[0] + other[0],)

    def result(self, kept: Kept) -> Any:
        return kept[0]


@dataclass(frozen=True)
class _Sum:
    column: str
    kind: str = ""

    def types(self, of: Callable[[str], str]) -> tuple[Aggregate, str, Sequence[str]]:
        kind = of(f"sum({quoted(self.column)})")
        return replace(self, kind=kind), kind, [kind]

    def start(self) -> Kept:
        return (None,)

    def add(self, kept: Kept, events: Sequence[Event]) -> Kept:
        return (self._with(kept[0], _total(_values(events, self.column))),)

    def merge(self, one: Kept, other: Kept) -> Kept:
        return (self._with(one[0], other[0]),)

    def result(self, kept: Kept) -> Any:
        return kept[0]

    def _with(self, one: Any, other: Any) -> Any:
        return _held(f"sum('{self.column}')", self.kind, _plus(one, other))


@dataclass(frozen=True)
class _Average:
    column: str
    kind: str = ""  # of the sum, which is kept

    def types(self, of: Callable[[str], str]) -> tuple[Aggregate, str, Sequence[str]]:
        kind = of(f"sum({quoted(self.column)})")
        return replace(self, kind=kind), "DOUBLE", [kind, "BIGINT"]

    def start(self) -> Kept:
        return (None, 0)

    def add(self, kept: Kept, events: Sequence[Event]) -> Kept:
        values = _values(events, self.column)
        return (self._with(kept[0], _total(values)), kept[1] + len(values))

    def merge(self, one: Kept, other: Kept) -> Kept:
        return (self._with(one[0], other[0]), one[1] + other[1])

    def result(self, kept: Kept) -> Any:
        return float(kept[0] / kept[1]) if kept[1] else None

    def _with(self, one: Any, other: Any) -> Any:
        return _held(f"the sum of avg('{self.column}')", self.kind, _plus(one, other))


@dataclass(frozen=True)
class _Extreme:
    column: str
    largest: bool
    moments: bool = False  # kept as microseconds: Spark gives back times without their zone

    def types(self, of: Callable[[str], str]) -> tuple[Aggregate, str, Sequence[str]]:
        kind = of(quoted(self.column))
        if kind.upper() == "TIMESTAMP":
            return _Extreme(self.column, self.largest, moments=True), kind, ["BIGINT"]
        return self, kind, [kind]

    def start(self) -> Kept:
        return (None,)

    def add(self, kept: Kept, events: Sequence[Event]) -> Kept:
        values = _values(events, self.column)
        return self._of([*kept, *([micros(one) for one in values] if self.moments else values)])

    def merge(self, one: Kept, other: Kept) -> Kept:
        return self._of([*one, *other])

    def result(self, kept: Kept) -> Any:
        if self.moments and kept[0] is not None:
            return _EPOCH + timedelta(microseconds=kept[0])
        return kept[0]

    def _of(self, values: Iterable[Any]) -> Kept:
        among = [one for one in values if one is not None]
        best = builtins.max if self.largest else builtins.min
        return (best(among, key=_order, default=None),)


def adds(one: Aggregate) -> bool:
    """Whether it needs a column of numbers."""
    return isinstance(one, (_Sum, _Average))


def keeps_values(one: Aggregate) -> bool:
    """Whether values of the column are kept as they are."""
    return isinstance(one, _Extreme)


def function_of(one: Aggregate) -> str:
    """Which it is of the functions above. Checkpoints hold it."""
    if isinstance(one, _Extreme):
        return "max" if one.largest else "min"
    return {_Count: "count", _Sum: "sum", _Average: "avg"}.get(type(one), "fold")


def quoted(column: str) -> str:
    """A column's name as SQL has it."""
    return "`" + column.replace("`", "``") + "`"


def micros(moment: datetime) -> int:
    """Microseconds since 1970 of a time with its zone."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _values(events: Sequence[Event], column: str) -> list[Any]:
    return [event[column] for event in events if event[column] is not None]


def _held(what: str, kind: str, total: Any) -> Any:
    """The total, if its type holds it."""
    holds = check_of(kind.lower())
    if total is None or holds is None or holds(total):
        return total
    raise ValueError(
        f"{what}: {Misfit(total, kind)}. Spark would keep null in its place, so nothing was kept. "
        "CAST the column, before the windows, to a type with room: DECIMAL(38, 0), or DOUBLE."
    )


def _order(value: Any) -> tuple[bool, Any, bool]:
    """NaN, which is not equal to itself, comes last; of two zeros 0.0, which is equal to -0.0."""
    is_zero = isinstance(value, float) and value == 0
    return value != value, value, is_zero and math.copysign(1, value) > 0  # noqa: PLR0124


def _total(values: Sequence[Any]) -> Any:
    """None of none. Sorted, because the sum of DOUBLEs depends on their order."""
    total = None
    for value in sorted(values, key=_order):
        total = _plus(total, value)
    return total


def _plus(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return _EXACT.add(one, other) if isinstance(one, decimal.Decimal) else one + other
