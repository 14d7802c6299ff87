"""Moves rows from a table that they were copied into to the one they are for, and tells of those
that the database has kept out of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .constraints import changes_rows
from .staging import GONE, OWN, ROW
from .table import Place, TableTarget

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

log = logging.getLogger(__name__)


def move(
    connection: psycopg.Connection[Any],
    target: TableTarget,
    staged: Sequence[str],
    place: Place,
    home: sql.Identifier,
    parts: sql.Composable,
    rows: int,
) -> None:
    """Move `rows` of columns `staged` from the table `home` into theirs: all, or those that the
    join `parts` says. Either side. Raises what psycopg does."""
    from psycopg import sql

    moved, wanted = 0, rows
    for statement in _statements(target.keys, staged, place, home, parts):
        moved = connection.execute(statement).rowcount
    if target.keys and not changes_rows(connection, place):
        return
    if target.keys:  # of each key one row, and a table without such triggers need not count them
        names = {"keys": sql.SQL(", ").join(map(sql.Identifier, target.keys)), "staged": home}
        gone = sql.Identifier(GONE) if GONE in staged else sql.SQL("false")
        newest = sql.SQL(
            "SELECT count(*) FROM (SELECT DISTINCT ON ({keys}) {gone} AS gone FROM {staged} s "
            "{parts} ORDER BY {keys}, {row} DESC) n WHERE NOT gone"
        ).format(**names, gone=gone, parts=parts, row=sql.Identifier(ROW))
        (wanted,) = connection.execute(newest).fetchone() or (0,)
    tell_kept_out(target, wanted, moved)


def tell_kept_out(target: TableTarget, wanted: int, moved: int) -> None:
    """Of `wanted` rows PostgreSQL says that it has `moved` so many."""
    if moved < wanted:
        log.warning(
            "Of %s rows for %s a trigger or rule kept %s out, or put them elsewhere: PostgreSQL "
            "counts %s. They count as written. If that is not what it is for, change it, and "
            "write the rows again.",
            *(f"{wanted:,}", target.place, f"{wanted - moved:,}", f"{moved:,}"),
        )


def _statements(
    keys: Sequence[str],
    staged: Sequence[str],
    place: Place,
    home: sql.Identifier,
    parts: sql.Composable,
) -> Iterator[Any]:
    """What moves rows of columns `staged` from the table `home` into theirs: all, or those that the
    join `parts` says. Either side."""
    from psycopg import sql

    columns = [name for name in staged if name not in OWN]
    names = {
        "table": sql.Identifier(place.schema, place.name),
        "staged": home,
        "columns": sql.SQL(", ").join(map(sql.Identifier, columns)),
        "keys": sql.SQL(", ").join(map(sql.Identifier, keys)),
        "parts": parts,
        "row": sql.Identifier(ROW),
        "gone": sql.Identifier(GONE),
    }
    if not keys:
        yield sql.SQL(
            "INSERT INTO {table} ({columns}) SELECT {columns} FROM {staged} s {parts}"
        ).format(**names)
        return
    newest = sql.SQL(
        "WITH newest AS (SELECT DISTINCT ON ({keys}) s.* FROM {staged} s {parts} "
        "ORDER BY {keys}, {row} DESC) "
    ).format(**names)
    if GONE in staged:
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{0} = n.{0}").format(sql.Identifier(key)) for key in keys
        )
        yield (
            newest
            + sql.SQL("DELETE FROM {table} t USING newest n WHERE n.{gone} AND ").format(**names)
            + same
        )
    others = [name for name in columns if name not in keys]
    changes = sql.SQL(", ").join(
        sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in others
    )
    on_conflict = sql.SQL("DO UPDATE SET ") + changes if others else sql.SQL("DO NOTHING")
    kept = sql.SQL("WHERE NOT {gone} ").format(**names) if GONE in staged else sql.SQL("")
    yield (
        newest
        + sql.SQL("INSERT INTO {table} ({columns}) SELECT {columns} FROM newest ").format(**names)
        + kept
        + sql.SQL("ON CONFLICT ({keys}) ").format(**names)
        + on_conflict
    )
