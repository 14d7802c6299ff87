"""Figures as shapes that a page draws: a time line of batches, lines over time. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ...core.transaction import Decision
from ..jobs.tails import Tail

WIDTH, HEIGHT = 1000.0, 100.0
MUCH = 3
TASKS, COMMIT, BREAK = "tasks", "commit", "break"


@dataclass(frozen=True)
class Bar:
    """From `x` on, `width` wide, of WIDTH. `step`: TASKS (S2 to S6), COMMIT (S7 and S8), or BREAK,
    where a bar is longer than there is room."""

    x: float
    width: float
    step: str


@dataclass(frozen=True)
class Course:
    """A batch: when its steps ended, in ms since 1970; None: not known."""

    batch: int
    planned: int | None
    decided: int | None
    done: int | None

    @property
    def tasks_ms(self) -> int | None:
        """From the end of S1 to the decision."""
        return _between(self.planned, self.decided)

    @property
    def commit_ms(self) -> int | None:
        """From the decision to DONE."""
        return _between(self.decided, self.done)


@dataclass(frozen=True)
class Line:
    """`points` of a polyline, HEIGHT high; a gap begins a new one. Numbers are of the values."""

    points: tuple[str, ...]
    newest: float
    most: float
    count: int


def course(decision: Decision, tail: Tail) -> Course:
    """Of one batch, as the ledger has it."""
    at = (decision.sink, decision.batch)
    return Course(
        decision.batch,
        tail.planned_ms.get(decision.generation),
        tail.decided_ms.get(at),
        tail.done_ms.get(at),
    )


def rows(found: Sequence[Course]) -> list[tuple[Bar, ...]]:
    """Each batch's bars, which begin at its plan; all to the same scale. One that is much longer
    than most is broken, so that it does not make dots of the others."""
    lengths = [(one.tasks_ms or 0) + (one.commit_ms or 0) for one in found]
    usual = MUCH * median(lengths) if lengths else 0
    scale = WIDTH / (min(max(lengths, default=0), usual) or 1)
    drawn = []
    for one, length in zip(found, lengths, strict=True):
        tasks, commit = (one.tasks_ms or 0) * scale, (one.commit_ms or 0) * scale
        if length * scale > WIDTH * 1.001:
            whole = WIDTH / (tasks + commit)
            tasks, commit = tasks * whole, commit * whole
        bars = [
            _seen(bar) for bar in (Bar(0.0, tasks, TASKS), Bar(tasks, commit, COMMIT)) if bar.width
        ]
        if length * scale > WIDTH * 1.001:
            bars.append(Bar(WIDTH / 2, 12.0, BREAK))
        drawn.append(tuple(bars))
    return drawn


def strip(found: Sequence[Course], now_ms: int) -> tuple[list[Bar], int] | None:
    """All batches on one line of time up to now, and how many ms that is; None where no time is
    known."""
    times = [at for one in found for at in (one.planned, one.decided, one.done)]
    known = [at for at in times if at is not None]
    if not known:
        return None
    first = min(known)
    span = max(1, now_ms - first)
    bars = []
    for one in found:
        for start, end, step in (
            (one.planned, one.decided, TASKS),
            (one.decided, one.done, COMMIT),
        ):
            if start is not None and end is not None and end >= start:
                x = (start - first) / span * WIDTH
                bars.append(_seen(Bar(x, (end - start) / span * WIDTH, step)))
    return bars, span


def line(values: Sequence[tuple[float, float | None]]) -> Line | None:
    """Of (when, how much); None is a gap. None where fewer than two are known."""
    known = [(at, value) for at, value in values if value is not None]
    if len(known) < 2:
        return None
    first, last = known[0][0], known[-1][0]
    most = max(value for _, value in known)
    pieces: list[list[str]] = [[]]
    for at, value in values:
        if value is None:
            pieces.append([])
            continue
        x = (at - first) / ((last - first) or 1) * WIDTH
        y = HEIGHT - value / (most or 1) * (HEIGHT - 4) - 2
        pieces[-1].append(f"{x:.1f},{y:.1f}")
    drawn = tuple(" ".join(piece) for piece in pieces if piece)
    return Line(drawn, known[-1][1], most, len(known))


def _seen(bar: Bar) -> Bar:
    """So wide that it is seen, and not beyond the end."""
    width = min(max(bar.width, 3.0), WIDTH)
    x = min(bar.x, WIDTH - width)  # by another machine's clock it may be later than now
    return Bar(round(x, 1), round(width, 1), bar.step)


def _between(start: int | None, end: int | None) -> int | None:
    """By two machines' clocks: never less than nothing."""
    return None if start is None or end is None else max(0, end - start)
