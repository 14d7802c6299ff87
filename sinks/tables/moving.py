"""Moves rows from a table that they were copied into to the one they are for, and tells of those
that the database has kept out of it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .constraints import changes_rows
from .schema import columns_of, is_cut
from .staging import GONE, OWN, PREFIX, ROW
from .table import Place, TableTarget

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

log = logging.getLogger(__name__)

# What becomes of these as another type, a session's TimeZone or DateStyle says, and no value
_OF_SESSION = {"date", "timestamp", "timestamptz"}
# Of a staging table: each column's type, that without a domain around it, and the CHECK by which
# nothing is cut (schema.staged_as)
_STAGED = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), (
    SELECT typname::text FROM pg_type WHERE oid = coalesce(nullif(t.typbasetype, 0), t.oid)), (
    SELECT string_agg(pg_get_constraintdef(k.oid), ' ') FROM pg_constraint k
    WHERE k.conrelid = c.oid AND k.conkey = ARRAY[a.attnum] AND starts_with(k.conname, %s))
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0
"""


def altered(
    connection: psycopg.Connection[Any], place: Place, home: str, parts: sql.Composable
) -> str:
    """Which column the table has by another type since rows were staged in `home`, such that one of
    their values was changed on its way, as an INSERT casts without a word; "" if none. Asked after
    `move`, whose lock keeps the types as they are. Raises what psycopg does."""
    from psycopg import sql

    columns = columns_of(connection, place)
    staged = connection.execute(_STAGED, (PREFIX, place.beside, home)).fetchall()
    for name, words, base, check in staged:
        now = columns.get(name)
        if now is None or (
            f"::{now.words})" in (check or "") if is_cut(now) else now.words == words
        ):
            continue
        as_text = "::text" if words in ("json", "xml") else ""  # which have no equality
        changed = sql.SQL(
            "SELECT 1 FROM {staged} s {parts} "
            "WHERE s.{name}{there} IS DISTINCT FROM s.{name}{here} LIMIT 1"
        ).format(
            staged=sql.Identifier(place.beside, home),
            parts=parts,
            name=sql.Identifier(name),
            there=sql.SQL(f"::{now.words}::{words}{as_text}"),
            here=sql.SQL(as_text),
        )
        is_of_session = now.base != base and not _OF_SESSION.isdisjoint((now.base, base))
        if is_of_session or connection.execute(changed).fetchone():
            return (
                f"column '{name}' was {words} when the rows were staged and is {now.words} now, "
                "which could change values of them"
            )
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
