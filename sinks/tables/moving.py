"""The statements that move rows from a table that they were copied into to the one they are for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .staging import GONE, OWN, ROW
from .table import Place

if TYPE_CHECKING:
    from psycopg import sql


def statements(
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
