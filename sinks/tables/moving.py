"""Moves rows from a table that they were copied into to the one they are for, and tells of those
that the database has kept out of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .constraints import changes_rows
from .schema import Column, columns_of, columns_written, is_cut
from .staging import GONE, OWN, PREFIX, ROW
from .table import Place, TableTarget

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

log = logging.getLogger(__name__)

# What becomes of these as another type, a session's TimeZone or DateStyle says, and no value
_OF_SESSION = {"date", "timestamp", "timestamptz"}
# Of a staging table: the CHECKs by which nothing is cut (schema.staged_as), by column
_UNCUT = """
SELECT a.attname::text, string_agg(pg_get_constraintdef(k.oid), ' ')
FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND k.conkey = ARRAY[a.attnum]
WHERE k.conrelid = %s AND starts_with(k.conname, %s) GROUP BY 1
"""
# A staged value that is another one once it was the table's
_CHANGED = """
SELECT 1 FROM {staged} s {parts} WHERE s.{name}{there} IS DISTINCT FROM s.{name}{here} LIMIT 1
"""
# Rows of one key that is not written in one way: only such can another equality tell apart
_SEVERAL = """
SELECT 1 FROM {staged} s {parts} GROUP BY {keys}
HAVING count(DISTINCT s.{name}::text COLLATE "C") > 1 LIMIT 1
"""


def altered(
    connection: psycopg.Connection[Any],
    target: TableTarget,
    place: Place,
    home: str,
    parts: sql.Composable,
) -> str:
    """Which column the table has otherwise since rows were staged in `home`, such that one of their
    values was changed on its way, as an INSERT casts without a word, or that rows of one key, of
    which one was moved, have several; "" if none. Asked after `move`, whose lock keeps the columns
    as they are. Raises ReadTimeout, what psycopg does."""
    from psycopg import sql

    columns = columns_written(connection, target, place)
    staging = sql.Identifier(place.beside, home)
    asked = connection.execute("SELECT %s::regclass::oid", [staging.as_string(connection)])
    (oid,) = asked.fetchone() or (0,)
    uncut = dict(connection.execute(_UNCUT, (oid, PREFIX)).fetchall())
    staged = columns_of(connection, Place(oid, place.beside, home, place.beside))
    keys = sql.SQL(", ").join(map(sql.Identifier, target.keys))
    of = {"staged": staging, "parts": parts, "keys": keys}
    for name, was in staged.items():
        now = columns.get(name)
        if now and (how := _how(connection, of, name in target.keys, was, now, uncut.get(name))):
            return (
                f"column '{name}' was {was.words}{was.collation} when the rows were staged and is "
                f"{now.words}{now.collation} now, {how}"
            )
    return ""


def _how(
    connection: psycopg.Connection[Any],
    of: Mapping[str, sql.Composable],
    is_key: bool,
    was: Column,
    now: Column,
    uncut: str | None,
) -> str:
    """What may have become of staged rows where a column, with this CHECK, is another one now."""
    from psycopg import sql

    name = sql.Identifier(was.name)
    is_same = f"::{now.words})" in (uncut or "") if is_cut(now) else now.words == was.words
    if not is_same:
        as_text = "::text" if was.words in ("json", "xml") else ""  # which have no equality
        there = sql.SQL(f"::{now.words}::{was.words}{as_text}")
        changed = sql.SQL(_CHANGED).format(**of, name=name, there=there, here=sql.SQL(as_text))
        is_of_session = now.base != was.base and not _OF_SESSION.isdisjoint((now.base, was.base))
        if is_of_session or connection.execute(changed).fetchone():
            return "which could change values of them"
    if is_key and not (is_same and now.collation == was.collation):
        several = sql.SQL(_SEVERAL).format(**of, name=name)
        if connection.execute(several).fetchone():
            return "by which rows of one key could have several"
    return ""


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
    columns = columns_of(connection, place) if GONE in staged else {}
    operators = {name: column.extension for name, column in columns.items()}
    for statement in _statements(target.keys, staged, place, home, parts, operators):
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
    operators: Mapping[str, str | None],
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
        # Where citext is not in the search path, its = would be that of text
        same = sql.SQL(" AND ").join(
            sql.SQL("t.{0} OPERATOR({1}.=) n.{0}").format(
                sql.Identifier(key), sql.Identifier(operators.get(key) or "pg_catalog")
            )
            for key in keys
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
