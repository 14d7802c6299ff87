"""Shows jobs and their batches as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.transaction import Decision
from ...state.ledger.job_topics import MAIN_SINK
from ..shared.command_line import duration, table
from .standing import Lag, Standing
from .tails import Tail

TITLES = (
    "job",
    "state",
    "batch",
    "written",
    "lag",
    "snapshot",
    "open",
    "oldest",
    "left",
    "format",
    "supervisor",
)
_LESS = ("format", "oldest", "snapshot")  # what is left out first where there is no room
_RIGHT = "batch written lag open oldest left format"


def listing(found: Sequence[Standing], now_ms: int, width: int | None = None) -> str:
    """A line for each job, and below why some of it is not known. In a terminal of this width some
    columns may be missing."""
    lines = [_within(width, [cells(one, now_ms) for one in found])]
    for one in found:
        if one.problem:
            lines += ["", f"{one.job}  {one.topic}".rstrip(), f"  {one.problem}"]
        if one.lag.gone:
            lines += ["", one.job, f"  {one.lag.gone}"]
        if one.watch and one.watch.problem:
            lines += ["", f"{one.job}  {one.watch.control.topic}", f"  {one.watch.problem}"]
    return "\n".join(lines)


def _within(width: int | None, rows: Sequence[tuple[object, ...]]) -> str:
    for count in range(len(_LESS) + 1):
        kept = [at for at, title in enumerate(TITLES) if title not in _LESS[:count]]
        shown = [tuple(row[at] for at in kept) for row in rows]
        text = table(tuple(TITLES[at] for at in kept), shown, right=_RIGHT)
        if width is None or max(map(len, text.splitlines())) <= width:
            break
    return text


def cells(one: Standing, now_ms: int) -> tuple[object, ...]:
    """A job's line, as `TITLES` names its cells."""
    return (
        one.job,
        one.state.value,
        one.newest.batch if one.newest else "-",
        _ago(one.written_ms, now_ms),
        _lag(one.lag) if one.newest else "-",
        _snapshot(one),
        "?" if one.open_count is None else one.open_count or "-",
        duration((now_ms - one.oldest_ms) / 1000) if one.oldest_ms is not None else "-",
        duration(one.left_ms / 1000) if one.left_ms is not None else "-",
        one.format or "-",
        one.watch.text if one.watch else "-",
    )


def _ago(ms: int | None, now_ms: int) -> str:
    return "-" if ms is None else f"{duration((now_ms - ms) / 1000)} ago"


def _lag(lag: Lag) -> str:
    if lag.behind is None:
        return "?"
    return f"{'>=' if lag.at_least else ''}{lag.behind:,}"


def _snapshot(one: Standing) -> str:
    head = one.tail.ledger.snapshot if one.tail else None
    own = f"batch {head.batch}" if head else "" if one.snapshot_known or not one.tail else "?"
    more = f"{len(one.exports)} export(s)" if one.exports else ""
    return ", ".join(filter(None, (own, more))) or "-"


def as_json(one: Standing, now_ms: int) -> dict[str, Any]:
    """All that is known of a job, under names that stay."""
    ledger = one.tail.ledger if one.tail else None
    head = ledger.snapshot if ledger else None
    snapshot = head and {"batch": head.batch, "madeMs": head.made_ms, "bytes": head.size}
    return {
        "job": one.job,
        "ledgerTopic": one.topic or None,
        "state": one.state.value,
        "problem": one.problem or None,
        "format": one.format,
        "owner": ledger.owner if ledger else None,
        "ownerKnown": bool(ledger and ((one.tail and one.tail.whole) or ledger.owner)),
        "generation": ledger.generation if ledger else None,
        "lastBatch": None if one.newest is None else batch(one.newest, one.tail),
        "newestRecordMs": one.tail.newest_ms if one.tail else None,
        "lag": {
            "offsets": one.lag.behind,
            "atLeast": one.lag.at_least,
            "unknown": one.lag.why or None,
            "gone": one.lag.gone or None,
        },
        "snapshot": snapshot or None,
        "snapshotKnown": one.snapshot_known,
        "exports": list(one.exports),
        "openTransactions": one.open_count,
        "oldestOpenMs": None if one.oldest_ms is None else now_ms - one.oldest_ms,
        "remainingMs": one.left_ms,
        "supervisor": one.watch.as_json() if one.watch else None,
    }


def batch(decision: Decision, tail: Tail | None) -> dict[str, Any]:
    """A batch, as the ledger has it."""
    at = (decision.sink, decision.batch)
    return {
        "batch": decision.batch,
        "round": decision.round,
        "state": decision.state.value,
        "generation": decision.generation,
        "tasks": len(decision.participants),
        "rows": decision.rows,
        "plannedMs": tail.planned_ms.get(decision.generation) if tail else None,
        "decidedMs": tail.decided_ms.get(at) if tail else None,
        "doneMs": tail.done_ms.get(at) if tail else None,
        "target": decision.target or None,
        "offsets": list(decision.offsets),
        "watermarkMs": decision.watermark_ms,
        "accepted": decision.accepted,
    }


HISTORY_TITLES = ("batch", "round", "state", "generation", "tasks", "rows", "decided", "commit")


def history(tail: Tail, count: int, now_ms: int) -> str:
    """The newest batches, a line each."""
    rows = history_cells(tail, count, now_ms)
    return table(HISTORY_TITLES, rows, right="batch round generation tasks rows decided commit")


def history_cells(tail: Tail, count: int, now_ms: int) -> list[tuple[object, ...]]:
    """Their lines, as `HISTORY_TITLES` names the cells."""
    rows: list[tuple[object, ...]] = []
    for decision in newest(tail, count):
        at = (decision.sink, decision.batch)
        decided, done = tail.decided_ms.get(at), tail.done_ms.get(at)
        took = f"{done - decided} ms" if done is not None and decided is not None else "-"
        parts = decision.participants
        rows.append(
            (
                decision.batch,
                decision.round,
                decision.state.value,
                decision.generation,
                len(parts),
                f"{sum(part.rows for part in parts):,}",
                _ago(decided or done, now_ms),
                took,
            )
        )
    return rows


def newest(tail: Tail, count: int) -> list[Decision]:
    """The newest `count` batches of the job's own sink, oldest first."""
    mine = tail.ledger.of_sink(MAIN_SINK)
    return [mine[number] for number in sorted(mine)[-count:]]
