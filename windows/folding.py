"""Aggregates of the user's own: `fold`. What they keep is held to the type that the user gave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DataType

from .fitting import Misfit, fitting

if TYPE_CHECKING:
    from .aggregates import Aggregate, Event, Kept


@dataclass(frozen=True)
class Fold:
    """It sees rows one by one, and their order may matter."""

    kind: str
    zero: Any
    step: Callable[[Any, Event], Any]
    merged: Callable[[Any, Any], Any]
    column: str | None = None
    name: str = ""
    sql: DataType | None = None  # `kind`, as `checked` has it

    def types(self, of: Callable[[str], str]) -> tuple[Aggregate, str, Sequence[str]]:
        return self, self.kind, [self.kind]

    def start(self) -> Kept:
        return (self.zero,)

    def add(self, kept: Kept, events: Sequence[Event]) -> Kept:
        (value,) = kept
        for event in events:
            value = self.step(value, event)
        return (self._fit(value),)

    def merge(self, one: Kept, other: Kept) -> Kept:
        return (self.merged(one[0], other[0]),)  # rows follow, and with them the check

    def result(self, kept: Kept) -> Any:
        return kept[0]

    def checked(self, name: str, sql: DataType) -> Fold:
        """Itself, to hold what is kept to its type. `name` is that of the output's column."""
        return replace(self, name=name, sql=sql)

    @cached_property
    def _fitting(self) -> Callable[[Any], Any]:
        return fitting(self.sql) if self.sql else lambda value: value

    def _fit(self, value: Any) -> Any:
        try:
            return self._fitting(value)
        except Misfit as wrong:
            raise ValueError(
                f"aggregates['{self.name}']: the fold is of type {self.kind}, and {wrong}. Spark "
                "would keep null or another value in its place, so nothing was kept. Return what "
                "the type holds, or give fold a type that holds it."
            ) from None
