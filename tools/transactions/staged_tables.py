"""What jobs have beside a table of PostgreSQL: staging tables and prepared transactions, judged by
the ledgers, and markers.

Only a decision needs one of them: one that is in no DECIDED batch, nor in one that is DONE and that
the table's marker does not show, and whose generation nobody can decide any more, may go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ...core.errors import OptionsError
from ...core.transaction import DecisionState
from ...sinks.marker import may_be_forgotten, needed
from ...sinks.options import SinkOptions
from ...sinks.tables.leftovers import MarkerRow, StagingTable, look, remove
from ...sinks.tables.options import read_target
from ...sinks.tables.target import StagedTable
from ...state.ledger.ledger import Ledger
from ..shared.command_line import duration, read_settings, table
from .ending import close_ledger
from .search import TransactionSearch

DAY_S = 86_400.0
QUARTER_S = 900.0  # a prepared transaction holds locks, and VACUUM back


@dataclass(frozen=True)
class JudgedTable:
    """A staging table, or a prepared transaction, and what its ledger says. `may_go`: True; False:
    a decision needs it, or nobody knows; None: its driver may be about to decide."""

    found: StagingTable
    standing: str
    may_go: bool | None
    topic: str = ""
    is_decided: bool = False
    is_lacking: bool = False  # decided and DONE, and the table has it not, as its marker says

    @property
    def is_prepared(self) -> bool:
        """Whether it is a transaction, and no table."""
        return self.found.size is None

    @property
    def age_s(self) -> float | None:
        """By this machine's clock and its driver's; None if the table does not say."""
        made = self.found.made
        return None if made is None else (datetime.now(timezone.utc) - made).total_seconds()

    @property
    def attention(self) -> str | None:
        """Why somebody must act, or None."""
        if self.is_lacking:
            return (
                "all there is of a batch that the ledger calls DONE: the table, of a replica that "
                "lags behind or an older copy, does not show it. Leave it there and start the "
                "query, which puts it in"
            )
        if self.is_decided:
            return "decided and not in the table yet: start the query"
        age_s = self.age_s or 0.0
        if self.is_prepared and age_s > QUARTER_S:
            return (
                "prepared for more than a quarter of an hour: its rows are locked, and VACUUM "
                "removes nothing newer. No decision needs it: it goes with the job's next batch, "
                "or by 'eo-kafka txn abort --job ... --table-config ...'"
                if self.may_go is not False
                else "prepared for more than a quarter of an hour, by a job whose ledger is not "
                "in this Kafka, or remembers it no more: its rows are locked, and VACUUM removes "
                "nothing newer"
            )
        if age_s > DAY_S and self.may_go is not False:
            return (
                "older than a day, and no decision needs it: it goes with the job's next batch, or "
                "by 'eo-kafka txn abort --job ... --table-config ...'"
            )
        return None


@dataclass(frozen=True)
class Beside:
    """All that is beside a table."""

    target: StagedTable
    tables: list[JudgedTable]
    markers: list[MarkerRow]


def target_of(path: Path) -> StagedTable:
    """What --table-config says. Raises OptionsError."""
    settings = read_settings(path, "--table-config")
    if "path" in settings or "target" in settings:
        raise OptionsError(
            [
                "This command looks beside tables of PostgreSQL ('url', 'table'). Files that wait "
                "are in the folder _eo_files/staged of their 'path'; of a target of your own, "
                "ask your class. The job's next start removes what no decision needs."
            ]
        )
    return read_target(settings)


def look_beside(
    search: TransactionSearch, target: StagedTable, job: str | None, than_ms: int | None = None
) -> Beside:
    """Staging tables and markers of a job, or of all; with `than_ms` only tables that say that they
    are older. Raises EoKafkaError."""
    tables, markers = look(target)
    tables = [one for one in tables if job in (None, one.job)]
    markers = [one for one in markers if job in (None, one.job)]
    jobs = {one.job for one in tables}
    ledgers = {
        topic: search.read_ledger(topic, name).ledger
        for topic, name in search.ledgers().items()
        if name in jobs
    }
    # Asked after the ledgers were read: one that was made anew meanwhile has an id of no table
    topics = {known: topic for topic, known in search.topic_ids(ledgers).items()}
    found = [_judged(one, topics, ledgers) for one in tables]
    if than_ms is not None:
        found = [one for one in found if (one.age_s or 0.0) * 1000 > than_ms]
    return Beside(target, found, markers)


def _judged(
    one: StagingTable, topics: Mapping[str, str], ledgers: Mapping[str, Ledger]
) -> JudgedTable:
    topic = topics.get(one.marker.ledger) if one.marker else None
    if topic is None:
        return JudgedTable(one, "no ledger", False)
    return judged(one, topic, ledgers[topic], closed=False)


def judged(one: StagingTable, topic: str, ledger: Ledger, *, closed: bool) -> JudgedTable:
    """By its ledger, which is `closed` if a generation was taken after all that stands in it."""
    naming = [
        decision
        for decision in ledger.decisions.values()
        if any(part.staged and part.staged.home == one.name for part in decision.participants)
    ]
    waiting = [found for found in naming if found.state is DecisionState.DECIDED]
    if waiting:
        words = f"batch {waiting[0].batch} DECIDED"
        return JudgedTable(one, words, False, topic, is_decided=True)
    shown = (one.marker.decided if one.marker else None) or 0
    if naming and one.name in needed(ledger, shown):
        words = f"batch {naming[0].batch} DONE, not in the table"
        return JudgedTable(one, words, False, topic, is_decided=True, is_lacking=True)
    if naming:
        return JudgedTable(one, f"batch {naming[0].batch} {naming[0].state.value}", True, topic)
    sink = one.marker.sink if one.marker else ""
    if one.generation > shown and may_be_forgotten(ledger, sink, one.generation):
        return JudgedTable(one, "older than the ledger remembers", False, topic)
    if one.generation < ledger.generation + closed:
        return JudgedTable(one, "not decided, stale", True, topic)
    return JudgedTable(one, "not decided", None, topic)


def end_tables(
    search: TransactionSearch,
    beside: Beside,
    options_of: Callable[[str], SinkOptions],
    *,
    yes: bool,
    dry_run: bool,
) -> list[tuple[JudgedTable, bool, str]]:
    """Drop what no decision needs: each table, whether it is gone or would be, and what was done.
    `options_of` are those of a ledger's job. With `yes` also what a driver may be about to decide,
    after its ledger was closed to it. Raises EoKafkaError."""
    outcomes: list[tuple[JudgedTable, bool, str]] = []
    closed: dict[str, Ledger] = {}
    for one in beside.tables:
        now = one
        if one.may_go is None and yes and not dry_run:
            if one.topic not in closed:
                closed[one.topic] = close_ledger(options_of(one.topic), search)[1]
            now = judged(one.found, one.topic, closed[one.topic], closed=True)
        if not (now.may_go or (now.may_go is None and yes and dry_run)):
            outcomes.append((now, False, f"refused: {_why(now)}"))
        elif dry_run:
            said = "would roll it back" if one.is_prepared else "would drop it"
            outcomes.append((now, True, said))
        else:
            gone = bool(remove(beside.target, [one.found.name]))
            said = "rolled back" if one.is_prepared else "dropped"
            said = said if gone else "not dropped: somebody is writing into it; try again"
            outcomes.append((now, gone, said))
    return outcomes


def _why(one: JudgedTable) -> str:
    if one.is_decided:
        return "its batch is decided, and its rows would be lost: start the query"
    if one.may_go is None:
        return (
            "its driver may be alive and about to decide. It is safe, nothing is lost or repeated, "
            "but a running query stops and its next start writes the batch again: --yes to do it"
        )
    if one.topic:
        return (
            "it is newer than what the table shows and older than what the ledger remembers, so "
            "nobody knows whether it is decided. Look whether its rows are in the table"
        )
    return (
        "no ledger of this Kafka is known to have made it, so nobody knows whether it is decided. "
        "If it is nobody's any more, drop it by hand"
    )


def as_json(beside: Beside) -> dict[str, Any]:
    """For scripts."""
    return {
        "stagingTables": [table_as_json(one) for one in beside.tables],
        "markers": [
            {
                "job": one.job,
                "sink": one.sink,
                "table": one.target,
                "generation": one.generation,
                "batch": one.batch,
                "round": one.round,
                "written": one.written.isoformat(),
            }
            for one in beside.markers
        ],
    }


def table_as_json(one: JudgedTable) -> dict[str, Any]:
    """One staging table."""
    return {
        "kind": "prepared transaction" if one.is_prepared else "staging table",
        "table": f"{one.found.schema}.{one.found.name}" if one.found.schema else one.found.name,
        "job": one.found.job,
        "generation": one.found.generation,
        "rows": one.found.rows,
        "bytes": one.found.size,
        "ageSeconds": one.age_s,
        "ledger": one.standing,
        "needed": one.is_decided,
        "mayGo": one.may_go is True,
        "attention": one.attention,
    }


def listing(beside: Beside) -> str:
    """A line for each staging table and each marker."""
    lines = [f"Beside {beside.target.place}:"]
    if beside.tables:
        titles = ("staged or prepared", "job", "rows", "kB", "age", "ledger")
        rows = [
            (
                one.found.name,
                one.found.job,
                "?" if one.found.rows is None else f"{one.found.rows:,}",
                "-" if one.found.size is None else f"{one.found.size / 1024:,.0f}",
                "-" if one.age_s is None else duration(one.age_s),
                one.standing,
            )
            for one in beside.tables
        ]
        lines.append(table(titles, rows, right="rows kB age"))
        for one in beside.tables:
            lines += ["", one.found.name, f"  {one.attention}"] if one.attention else []
    else:
        lines.append("No staging tables or prepared transactions.")
    return "\n".join([*lines, "", _markers(beside.markers)])


def _markers(markers: Sequence[MarkerRow]) -> str:
    rows = [
        (
            one.target,
            one.job,
            one.sink,
            "-" if one.batch is None else one.batch,
            one.generation,
            f"{one.written:%Y-%m-%d %H:%M:%S%z}",
        )
        for one in markers
    ]
    titles = ("table", "job", "sink", "batch", "generation", "written")
    return table(titles, rows, right="batch generation") if rows else "No marker."
