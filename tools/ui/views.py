"""What the pages show, in the commands' words. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.transaction import Decision
from ...state.ledger.job_topics import MAIN_SINK
from ...state.snapshots.export import topic_of
from ..jobs import report
from ..jobs.events import Event, events
from ..jobs.standing import Standing, State
from ..jobs.watchers import Watch
from ..shared.command_line import duration
from ..snapshots import command as of_snapshots
from ..transactions import report as of_transactions
from ..transactions.verdict import Judged
from ..transactions.verdict import Standing as LedgerSays
from . import drawing
from .cluster import Kept

BATCHES, ROWS, EVENTS = 48, 12, 12
ALL = ""
SORTS = ("job", "state", "written", "lag", "open")
MEANS = {
    State.NEW: "no batch yet",
    State.QUIET: "a driver waits for input, or none runs",
    State.UNKNOWN: "whether transactions are open may not be seen",
    State.OPEN: "transactions are open: a driver writes, or died while it did",
    State.DECIDED: "a batch is decided, and not known to be committed",
    State.VOID: "Kafka aborted all of the newest batch: it is to be written anew",
    State.UNREADABLE: "its ledger cannot be read",
    State.NO_LEDGER: "transactions are open, and no ledger of theirs is seen",
}
TONES = {
    State.NEW: "calm",
    State.QUIET: "calm",
    State.UNKNOWN: "bad",
    State.OPEN: "busy",
    State.DECIDED: "busy",
    State.VOID: "busy",
    State.UNREADABLE: "bad",
    State.NO_LEDGER: "bad",
}
_TARGET = re.compile(r"topic '([^']+)'")


@dataclass(frozen=True)
class Row:
    """A job on the first page. `cells` by their titles, as `job list` prints them."""

    job: str
    cells: Mapping[str, str]
    state: str
    means: str
    tone: str
    oldest: str
    problems: tuple[str, ...]
    found_by: str  # the topic that was searched for
    has_page: bool


def row(one: Standing, now_ms: int, found_by: str = "") -> Row:
    """Of one job."""
    cells = dict(zip(report.TITLES, map(str, report.cells(one, now_ms)), strict=True))
    oldest = duration(one.oldest_ms and (now_ms - one.oldest_ms) / 1000) if one.oldest_ms else ""
    return Row(
        one.job,
        cells,
        one.state.value,
        MEANS[one.state],
        "bad" if problems(one) else TONES[one.state],
        oldest,
        problems(one),
        found_by,
        one.state is not State.NO_LEDGER,
    )


def problems(one: Standing) -> tuple[str, ...]:
    """What is wrong with it, or cannot be known, in sentences."""
    found = [one.problem, one.watch.problem if one.watch else ""]
    if one.open_count and one.watch and (why := _no_driver(one.watch)):
        found.append(
            f"Transactions are open, and {why}: read_committed readers wait until it is started, "
            "or until Kafka ends them."
        )
    elif one.watch and (last := one.watch.last_phase):
        nobody = f"No supervisor of the job lives, the last one was '{last}'"
        if one.state is State.DECIDED:
            found.append(f"{nobody}, and a batch is decided: it is completed when one is started.")
        elif last != "ended":  # as a run with --once does
            found.append(f"{nobody}: the job stands still until one is started.")
    found.append(one.lag.gone)
    return tuple(filter(None, found))


def _no_driver(watch: Watch) -> str:
    """Why no driver of the job runs, if that is known."""
    told = watch.control.told
    if watch.problem:
        return ""
    if not watch.alive:
        return "no supervisor of the job lives"
    if told is not None and told.phase in ("waiting", "suspended"):
        return f"no driver of the job runs, as its supervisor is {told.phase}"
    return ""


def topics_of(one: Standing) -> dict[str, str]:
    """Topic -> what the job does with it, by the batches that are known."""
    mine = one.tail.ledger.of_sink(MAIN_SINK).values() if one.tail else ()
    found = {topic: "its ledger" for topic in [one.topic] if topic}
    for name in one.exports:
        found[topic_of(one.job, name)] = "an export"
    for topic in inputs_of(mine):
        found[topic] = "reads it"
    for topic in outputs_of(mine):
        found[topic] = "reads and writes it" if found.get(topic) == "reads it" else "writes it"
    return found


def inputs_of(decisions: Iterable[Decision]) -> tuple[str, ...]:
    """The topics that the batches read."""
    return tuple(sorted({topic for one in decisions for topic, _ in one.source_ids}))


def outputs_of(decisions: Iterable[Decision]) -> tuple[str, ...]:
    """The topics that the batches wrote, as far as the ledger names them."""
    found = set()
    for one in decisions:
        found.update(_TARGET.findall(one.target))
        found.update(topic for part in one.participants for topic, _ in part.topics)
    return tuple(sorted(topic for topic in found if not topic.startswith("__eo_kafka.")))


def overview(
    found: Sequence[Standing], now_ms: int, query: str = "", state: str = ALL, sort: str = "job"
) -> list[Row]:
    """The jobs whose name, or one of whose topics, has `query` in it."""
    wanted = query.strip().lower()
    chosen = []
    for one in found:
        hits = [topic for topic in topics_of(one) if wanted in topic.lower()] if wanted else []
        in_name = wanted in one.job.lower()
        if (in_name or hits) and state in (ALL, one.state.value):
            told = "" if in_name else f"{topics_of(one)[hits[0]]}: {hits[0]}"
            chosen.append((one, told))
    chosen.sort(key=lambda pair: _order(pair[0], sort))
    return [row(one, now_ms, told) for one, told in chosen]


def _order(one: Standing, sort: str) -> Any:
    """What needs a person comes first."""
    states = list(State)
    keys: dict[str, Any] = {
        "state": states.index(one.state),
        "written": -(one.written_ms or 0),
        "lag": -(one.lag.behind if one.lag.behind is not None else -1),
        "open": -(one.open_count or 0),
    }
    return (keys.get(sort, 0), one.job)


def counts(found: Sequence[Standing]) -> list[tuple[int, str, str]]:
    """How many there are, of what, and its tone: the first page's first line."""
    wrong = sum(bool(problems(one)) for one in found)
    opened = sum(one.open_count or 0 for one in found)
    return [
        (len(found), "job" if len(found) == 1 else "jobs", "calm"),
        (wrong, "needs a look" if wrong == 1 else "need a look", "bad" if wrong else "calm"),
        (opened, "open transaction" if opened == 1 else "open transactions", "calm"),
    ]


def batches(one: Standing, now_ms: int) -> dict[str, Any] | None:
    """The newest batches: as `job history` prints them, and as a time line by step."""
    if one.tail is None or one.newest is None:
        return None
    decisions = report.newest(one.tail, BATCHES)
    courses = [drawing.course(decision, one.tail) for decision in decisions]
    shown = courses[-ROWS:]
    cells = report.history_cells(one.tail, ROWS, now_ms)
    strip = drawing.strip(courses, now_ms)
    listed = [
        {
            "cells": dict(zip(report.HISTORY_TITLES, map(str, line), strict=True)),
            "bars": bars,
            "tasks": _ms(course.tasks_ms),
            "commit": _ms(course.commit_ms),
        }
        for line, bars, course in zip(cells, drawing.rows(shown), shown, strict=True)
    ]
    return {
        "rows": listed[::-1],
        "strip": strip[0] if strip else None,
        "span": duration(strip[1] / 1000) if strip else "",
        "charts": _charts(decisions, courses),
        "count": len(courses),
        "unknown": sum(course.tasks_ms is None or course.commit_ms is None for course in shown),
    }


def _charts(decisions: Sequence[Decision], courses: Sequence[drawing.Course]) -> list[Chart]:
    rates: list[tuple[float, float | None]] = []
    for before, decision, course in zip(courses, decisions[1:], courses[1:], strict=False):
        if before.done is None or course.done is None:
            continue
        rates.append((course.done, decision.rows / (max(1, course.done - before.done) / 1000)))
    times = [
        (float(one.done), float(one.commit_ms))
        for one in courses
        if one.done and one.commit_ms is not None
    ]
    return [
        chart("Rows a second", drawing.line(rates), "{:,.0f}", "between two batches' ends"),
        chart(
            "Commit", drawing.line(times), "{:,.0f} ms", "from the decision to the end, S7 and S8"
        ),
    ]


@dataclass(frozen=True)
class Chart:
    """A line with its words; `line` None: too little is known."""

    title: str
    line: drawing.Line | None
    newest: str
    most: str
    told: str


def chart(title: str, line: drawing.Line | None, form: str, told: str) -> Chart:
    """With its numbers as text, which say what the picture does."""
    if line is None:
        return Chart(title, None, "", "", told)
    return Chart(title, line, form.format(line.newest), form.format(line.most), told)


def lag_chart(lags: Sequence[tuple[int, int | None]]) -> Chart:
    """Of what this page has seen."""
    line = drawing.line([(at, None if behind is None else float(behind)) for at, behind in lags])
    since = f"offsets, in the last {duration((lags[-1][0] - lags[0][0]) / 1000)}" if lags else ""
    return chart("Lag", line, "{:,.0f}", f"{since}, as this page has looked".lstrip(", "))


def happened(one: Standing, now_ms: int) -> list[tuple[str, Event]]:
    """How long ago, and what."""
    found = events(one.tail, one.watch, EVENTS)
    return [(f"{duration((now_ms - e.at_ms) / 1000)} ago" if e.at_ms else "", e) for e in found]


def transactions(found: Sequence[Judged], now_ms: int) -> list[dict[str, Any]]:
    """As `txn list` prints them, and what `txn show` adds."""
    return [
        {
            "cells": dict(
                zip(of_transactions.TITLES, of_transactions.cells(one, now_ms), strict=True)
            ),
            "id": one.described.transactional_id,
            "facts": of_transactions.facts(one, now_ms),
            "attention": one.needs_attention(now_ms),
            "may_abort": one.is_open
            and one.standing in (LedgerSays.OLDER, LedgerSays.CURRENT, LedgerSays.COORDINATOR),
        }
        for one in found
    ]


def snapshots(kept: Kept) -> list[dict[str, str]]:
    """As `snapshots list` prints them."""
    return [
        dict(zip(of_snapshots.TITLES, map(str, of_snapshots.cells(name, one)), strict=True))
        for name, one in kept.found.items()
    ]


def _ms(ms: int | None) -> str:
    if ms is None:
        return "?"
    return f"{ms} ms" if ms < 10_000 else duration(ms / 1000)
