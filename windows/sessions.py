"""Session windows over transformWithState: Spark's key is the user's, the state its open sessions.

A session that was given out and then changes its bounds is taken back first, with a row of kind
`retracted`, so that nobody counts its rows twice.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .fixed import mark, timed_rows
from .panes import RETRACTED, Rules, Timed, Window, timer_at, watermark_of


@dataclass
class Group:
    """Sessions and rows that touch each other: what will be one session."""

    start: int
    end: int
    sessions: list[Window] = field(default_factory=list)
    rows: list[Timed] = field(default_factory=list)


def grouped(sessions: Iterable[Window], rows: Iterable[Timed], gap: int) -> list[Group]:
    """What becomes of sessions when rows with times come, by start. Pure.

    A row's own session is `gap` long; sessions that overlap or touch are one. The order of the rows
    makes no difference.
    """
    pieces = [Group(one.start, one.end, [one]) for one in sessions]
    pieces += [Group(at, at + gap, rows=[(at, event)]) for at, event in rows if at is not None]
    groups: list[Group] = []
    for piece in sorted(pieces, key=lambda one: one.start):
        if groups and piece.start <= groups[-1].end:
            last = groups[-1]
            last.end = max(last.end, piece.end)
            last.sessions += piece.sessions
            last.rows += piece.rows
        else:
            groups.append(piece)
    return groups


class Sessions:
    """Spark's `StatefulProcessor` by its methods, as `FixedWindows`."""

    def __init__(self, rules: Rules, gap: int, schema: str, repeatable: bool) -> None:
        self._rules = rules
        self._gap = gap
        self._schema = schema
        self._repeatable = repeatable

    def init(self, handle: Any) -> None:
        """Once for each task, and once on the driver."""
        fields = "start BIGINT, end BIGINT, fired BOOLEAN, shown BOOLEAN, revision BIGINT"
        self._handle = handle
        self._state = handle.getValueState(
            "sessions", f"sessions ARRAY<STRUCT<{fields}{self._schema}>>"
        )
        mark(handle, self._repeatable, self._rules)

    def handleInputRows(
        self, key: Sequence[Any], rows: Iterator[Any], timerValues: Any
    ) -> Iterator[Any]:
        """The rows of one batch that belong to one key."""
        rules, watermark = self._rules, watermark_of(timerValues.getCurrentWatermarkInMs())
        by = key[: len(rules.by)]
        timed = timed_rows(rows)
        known = self._kept()
        closed = [one for one in known if rules.closed(one.end, watermark)]
        groups = grouped((one for one in known if one not in closed), timed, self._gap)
        late = [row for row in timed if row[0] is None]
        sessions = closed  # they wait for their timer
        for group in groups:
            if rules.closed(group.end, watermark):
                late += group.rows
            elif group.rows:
                session = yield from self._grown(by, group, watermark)
                sessions.append(session)
            else:
                sessions += group.sessions
        yield from rules.late(by, late, lambda at: (at, None if at is None else at + self._gap))
        self._keep(sessions)

    def handleExpiredTimer(
        self, key: Sequence[Any], timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[Any]:
        """The watermark has passed the end of a session, or the time in which it may change."""
        rules, watermark = self._rules, watermark_of(timerValues.getCurrentWatermarkInMs())
        known = self._kept()
        for session in known:
            if session.end <= watermark and not session.fired:
                yield from rules.due(key[: len(rules.by)], session, watermark)
                if not rules.closed(session.end, watermark):
                    self._wake(session, watermark)
        self._keep([one for one in known if not rules.closed(one.end, watermark)])

    def close(self) -> None:
        """Nothing is left open."""

    def _grown(
        self, by: Sequence[Any], group: Group, watermark: int
    ) -> Generator[Any, None, Window]:
        """The results that are due, and the session that the group has become."""
        rules = self._rules
        session = rules.open(group.start, group.end)
        for old in group.sessions:
            if old.shown and (old.start, old.end) != (group.start, group.end):
                yield rules.result(by, old, RETRACTED)
            session.fired |= old.fired
            session.shown |= old.shown
            session.revision = max(session.revision, old.revision)
            rules.merge(session, old)
        rules.add(session, group.rows)
        session.fired &= session.end <= watermark
        yield from rules.due(by, session, watermark)
        self._wake(session, watermark)
        return session

    def _kept(self) -> list[Window]:
        found = self._state.get()
        if found is None:
            return []
        return [
            Window(start, end, self._rules.unpacked(values), fired, shown, revision)
            for start, end, fired, shown, revision, *values in found[0]
        ]

    def _keep(self, sessions: Sequence[Window]) -> None:
        if not sessions:
            self._state.clear()
            return
        packed = [
            (one.start, one.end, one.fired, one.shown, one.revision, *self._rules.packed(one))
            for one in sorted(sessions, key=lambda one: (one.start, one.end))
        ]
        self._state.update((packed,))

    def _wake(self, session: Window, watermark: int) -> None:
        late = session.end <= watermark
        self._handle.registerTimer(timer_at(session.end + self._rules.lateness * late))
