"""What a transform is given, and what it must answer with. On executors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, NoReturn, TypeVar

from ...core.errors import SinkError
from .shape import not_one_of

One = TypeVar("One")


class Given(Iterator[One], Generic[One]):
    """An iterator. To one that takes it for a DataFrame it says what it is."""

    def __init__(self, items: Iterator[One], what: str) -> None:
        """`what`: of what it is one, in a sentence."""
        self._items = items
        self._what = what

    def __next__(self) -> One:
        """The next records of the task."""
        return next(self._items)

    def close(self) -> None:
        """As a generator's: nothing more is read."""
        close = getattr(self._items, "close", None)
        if close is not None:
            close()

    def __getattr__(self, name: str) -> NoReturn:
        """Raises SinkError for what a DataFrame has, else AttributeError."""
        from pyspark.sql import DataFrame

        if name.startswith("_") or not hasattr(DataFrame, name):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        raise SinkError(
            f"The transform of eo_kafka.direct asked for '{name}', which is a step of a DataFrame. "
            f"A transform is given an iterator of {self._what}, with the records of one task. "
            "Nothing of the batch is visible. What needs all records (windows, joins, "
            "dropDuplicates) needs readStream and writeStream."
        )


def iterated(made: Any, what: str) -> Iterator[Any]:
    """A transform's answer. Raises SinkError for one that is no iterator."""
    if isinstance(made, Given):  # handed back; asked for columns, it would take us for the user
        return made
    if hasattr(made, "columns") or not hasattr(made, "__iter__"):  # one frame, or nothing
        raise not_one_of(made, f"an iterator of {what}")
    return iter(made)
