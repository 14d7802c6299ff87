"""What eo-kafka keeps beside a table: staging tables, prepared transactions and markers, for an
operator's eyes. Driver.

Whose a staging table or a prepared transaction is, its name's hash says: of a marker's ledger, sink
and table. One that no marker explains is nobody's that is known, whatever a comment says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ...clients.postgres.client import connected
from .marker import TABLE
from .prepared import PREFIX as PREPARED
from .prepared import end, parsed, prefixes_of
from .staging import PREFIX, drop, prefix_of
from .table import Place, TableTarget, found

if TYPE_CHECKING:
    import psycopg

_COMMENT = re.compile(r"Rows of eo-kafka job (.*) that wait for a decision(?:, since (\S+))?")
_NAME = re.compile(rf"({PREFIX}[0-9a-f]{{12}}_)(\d+)")
_TABLES = """
SELECT c.relname::text, c.oid, coalesce(obj_description(c.oid, 'pg_class'), ''),
    has_table_privilege(c.oid, 'SELECT')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = 'r' AND starts_with(c.relname::text, %s) ORDER BY 1
"""
# Of the whole database: such a transaction does not say which table it wrote
_PREPARED = """
SELECT gid, prepared FROM pg_prepared_xacts
WHERE database = current_database() AND starts_with(gid, %s) ORDER BY prepared
"""


@dataclass(frozen=True)
class MarkerRow:
    """What a job has written into a table last, by the decision of which generation. `batch` and
    `decided` are None before its first one."""

    ledger: str
    sink: str
    target: str
    job: str
    generation: int
    batch: int | None
    round: int | None
    decided: int | None
    written: datetime


@dataclass(frozen=True)
class StagingTable:
    """One that is there, or a prepared transaction, whose `size` is None. `rows` is None if the
    role may not read it, or nobody can; `made` if it does not say; `marker` if nobody's is known.
    """

    schema: str
    name: str
    generation: int
    job: str
    rows: int | None
    size: int | None
    made: datetime | None
    marker: MarkerRow | None


def look(target: TableTarget) -> tuple[list[StagingTable], list[MarkerRow]]:
    """All staging tables in the schema beside a table, whoever's, prepared transactions of the
    database that have names of ours, and the markers there. Counts the tables' rows. Raises
    EnvironmentRefused, SinkError, ReadTimeout."""
    with connected(target.postgres) as connection:
        place = found(connection, target)
        tables = connection.execute(_TABLES, (place.beside, PREFIX)).fetchall()
        markers = _markers(connection, place)  # a table's marker is older than the table
        waiting = [
            *_described(connection, place, tables, markers),
            *_prepared(connection, markers),
        ]
        return waiting, markers


def remove(target: TableTarget, names: Sequence[str]) -> list[str]:
    """Drop staging tables, roll back prepared transactions; those that are gone now. Raises as
    `look` does."""
    with connected(target.postgres) as connection:
        place = found(connection, target)
        prepared = {name for name in names if parsed(name)}
        for name in prepared:
            end(connection, "ROLLBACK", name)
        tables = [name for name in names if name not in prepared]
        return [*prepared, *(name for name in tables if drop(connection, place.beside, name))]


def _markers(connection: psycopg.Connection[Any], place: Place) -> list[MarkerRow]:
    from psycopg import sql

    name = sql.Identifier(place.beside, TABLE)
    there = connection.execute("SELECT to_regclass(%s)", [name.as_string(connection)]).fetchone()
    if there is None or there[0] is None:
        return []
    asked = sql.SQL(
        "SELECT ledger, sink, target, job, generation, batch, round, decided, written FROM {} "
        "ORDER BY written"
    ).format(name)
    return [MarkerRow(*row) for row in connection.execute(asked).fetchall()]


def _described(
    connection: psycopg.Connection[Any],
    place: Place,
    tables: Sequence[tuple[str, int, str, bool]],
    markers: Sequence[MarkerRow],
) -> Iterator[StagingTable]:
    from psycopg import errors, sql

    of = {prefix_of(one.ledger, one.sink, one.target): one for one in markers}
    for name, oid, comment, may_read in tables:
        parts, words = _NAME.fullmatch(name), _COMMENT.fullmatch(comment)
        if parts is None:
            continue
        marker = of.get(parts[1])
        counted = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(place.beside, name))
        try:
            rows = connection.execute(counted).fetchone() if may_read else None
            size = connection.execute("SELECT pg_total_relation_size(%s::oid)", [oid]).fetchone()
        except errors.UndefinedTable:  # its batch has ended since
            continue
        if size is None or size[0] is None:
            continue
        yield StagingTable(
            place.beside,
            name,
            int(parts[2]),
            marker.job if marker else words[1] if words else "",
            rows[0] if rows else None,
            size[0],
            datetime.fromisoformat(words[2]) if words and words[2] else None,
            marker,
        )


def _prepared(
    connection: psycopg.Connection[Any], markers: Sequence[MarkerRow]
) -> Iterator[StagingTable]:
    of = {
        prefix: one
        for one in markers
        for prefix in prefixes_of(connection, one.ledger, one.sink, one.target)
    }
    for name, made in connection.execute(_PREPARED, [PREPARED]).fetchall():
        parts = parsed(name)
        if parts is None:
            continue
        marker = of.get(parts[0])
        job = marker.job if marker else ""
        yield StagingTable("", name, parts[1], job, None, None, made, marker)
