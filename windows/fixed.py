"""Tumbling and sliding windows over transformWithState: Spark's key is the user's, and a window.

So each call of Spark's is about one window, and late rows are found for each window they miss.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .definition import STATE
from .panes import Rules, Timed, Window, timer_at, watermark_of
from .watermarks import check_takes_least


class FixedWindows:
    """Spark's `StatefulProcessor` by its methods. It does not inherit: Spark's class imports
    protobuf, which only queries with state need."""

    def __init__(self, rules: Rules, size: int, schema: str, repeatable: bool) -> None:
        self._rules = rules
        self._size = size
        self._schema = schema
        self._repeatable = repeatable

    def init(self, handle: Any) -> None:
        """Once for each task, and once on the driver."""
        self._handle = handle
        self._state = handle.getValueState(
            "window", f"fired BOOLEAN, revision BIGINT{self._schema}"
        )
        mark(handle, self._repeatable, self._rules)

    def handleInputRows(
        self, key: Sequence[Any], rows: Iterator[Any], timerValues: Any
    ) -> Iterator[Any]:
        """The rows of one batch that belong to one window."""
        rules, watermark = self._rules, watermark_of(timerValues.getCurrentWatermarkInMs())
        *by, start = key
        by = by[: len(rules.by)]
        end = None if start is None else start + self._size
        timed = timed_rows(rows)
        if end is None or rules.closed(end, watermark):
            yield from rules.late(by, timed, lambda _: (start, end))
            return
        window = self._kept(start)
        if not window:
            window = rules.open(start, end)
            self._wake(window, watermark)
        rules.add(window, timed)
        yield from rules.due(by, window, watermark)
        self._keep(window)

    def handleExpiredTimer(
        self, key: Sequence[Any], timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        """The watermark has passed the end of a window, or the time of its corrections."""
        rules, watermark = self._rules, watermark_of(timerValues.getCurrentWatermarkInMs())
        window = self._kept(key[-1])
        if not window:
            return
        if not window.fired:
            yield from rules.due(key[: len(rules.by)], window, watermark)
            self._keep(window)
        if rules.closed(window.end, watermark):
            self._state.clear()
        else:
            self._wake(window, watermark)

    def close(self) -> None:
        """Nothing is left open."""

    def _kept(self, start: int) -> Window | None:
        found = self._state.get()
        if found is None:
            return None
        fired, revision, *values = found
        kept = self._rules.unpacked(values)
        return Window(start, start + self._size, kept, fired, revision > 0, revision)

    def _keep(self, window: Window) -> None:
        self._state.update((window.fired, window.revision, *self._rules.packed(window)))

    def _wake(self, window: Window, watermark: int) -> None:
        late = window.end <= watermark
        self._handle.registerTimer(timer_at(window.end + self._rules.lateness * late))


def timed_rows(rows: Iterator[Any]) -> list[Timed]:
    """The rows with their times, from Spark's rows: ..., time, row, the watermark's column."""
    return [(row[-3], row[-2]) for row in rows]


def mark(handle: Any, repeatable: bool, rules: Rules) -> None:
    """Leave marks in the checkpoint: what the windows are (definition.py); and if the watermark of
    a later batch cannot be told from the records alone, for `state/snapshots/processing_time.py`
    has each batch take a snapshot then. Raises OptionsError where Spark has another watermark."""
    if rules.takes_least:
        check_takes_least()
    if rules.definition is not None:
        handle.getValueState(STATE, rules.definition)
    if not repeatable:
        handle.getValueState("eo_kafka_watermark_not_repeatable", "nothing BOOLEAN")
