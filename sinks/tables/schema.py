"""Whether a table can take the rows: columns, types, keys, privileges. Driver, at S1."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...clients.postgres.client import said
from ...core.errors import ReadTimeout
from ..options import TWO_PHASE
from .table import Place, TableTarget, find

if TYPE_CHECKING:
    import psycopg

_TEXT = ("text", "varchar", "bpchar", "citext", "json", "jsonb", "uuid", "xml", "enum")
# Spark's type -> what of PostgreSQL takes every value of it as it is
_TAKES: dict[str, tuple[str, ...]] = {
    "string": _TEXT,
    "binary": ("bytea",),
    "boolean": ("bool",),
    "tinyint": ("int2", "int4", "int8", "numeric"),
    "smallint": ("int2", "int4", "int8", "numeric"),
    "int": ("int4", "int8", "numeric"),
    "bigint": ("int8", "numeric"),
    "float": ("float4", "float8"),
    "double": ("float8",),
    "decimal": ("numeric",),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "timestamp_ntz": ("timestamp",),
    "json": ("json", "jsonb"),
}
# What a value loses in silence when such a column has a length: digits of a second, spaces
_CUT = ("timestamp", "timestamptz", "varchar")
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")
_OF_TABLE = """
SELECT relkind::text, relpersistence::text, pg_is_in_recovery(), current_setting('fsync') = 'off',
    has_table_privilege(oid, 'SELECT'), has_table_privilege(oid, 'DELETE'),
    row_security_active(oid)
FROM pg_class WHERE oid = %s
"""
_OF_PARTITIONS = """
SELECT c.oid::regclass::text, c.relkind::text, c.relpersistence::text
FROM pg_partition_tree(%s) t JOIN pg_class c ON c.oid = t.relid WHERE t.level > 0 ORDER BY 1
"""
_OF_COLUMNS = """
SELECT a.attname::text,
    CASE WHEN b.typtype = 'e' THEN 'enum' ELSE b.typname::text END,
    format_type(a.atttypid, a.atttypmod),
    CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END,
    a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' AND t.typdefault IS NULL,
    a.attgenerated <> '' OR a.attidentity = 'a',
    has_column_privilege(a.attrelid, a.attnum, 'INSERT'),
    has_column_privilege(a.attrelid, a.attnum, 'UPDATE'),
    coalesce((SELECT ' COLLATE ' || quote_ident(n.nspname) || '.' || quote_ident(l.collname)
     FROM pg_collation l JOIN pg_namespace n ON n.oid = l.collnamespace
     WHERE l.oid = a.attcollation AND a.attcollation <> b.typcollation), ''),
    a.attnotnull,
    (SELECT nspname::text FROM pg_namespace WHERE oid = b.typnamespace AND b.typname = 'citext')
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_HAS_INDEX = """
SELECT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid
    AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND (
        SELECT array_agg(a.attname::text ORDER BY a.attname::text COLLATE "C")
        FROM generate_series(0, i.indnkeyatts - 1) g
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[g]
    ) = %s::text[]
    AND NOT EXISTS (
        SELECT 1 FROM generate_series(0, i.indnkeyatts - 1) g
        JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[g]
        JOIN pg_collation l ON l.oid IN (i.indcollation[g], a.attcollation)
        WHERE i.indcollation[g] <> a.attcollation AND NOT l.collisdeterministic))
"""
_OF_SCHEMA = """
SELECT has_schema_privilege(oid, 'CREATE') FROM pg_namespace WHERE nspname = %s
"""


@dataclass(frozen=True)
class Column:
    """One of the table's: `base` is the type without a domain around it, `words` as declared."""

    name: str
    base: str
    words: str
    typmod: int
    needed: bool
    is_made: bool  # by the database, which takes no value for it
    may_insert: bool
    may_update: bool
    collation: str = ""  # COLLATE ..., if it is not its type's: says which keys are the same
    not_null: bool = False
    extension: str | None = None  # the schema that has its operators, if that is not pg_catalog


def columns_of(connection: psycopg.Connection[Any], place: Place) -> dict[str, Column]:
    """The table's columns, by name."""
    return {row[0]: Column(*row) for row in connection.execute(_OF_COLUMNS, [place.oid])}


def columns_written(
    connection: psycopg.Connection[Any], target: TableTarget, place: Place
) -> dict[str, Column]:
    """Those of the table that this transaction has written, by its name: its lock keeps name and
    columns as they are. Raises ReadTimeout if that is not the one that was looked at as `place`."""
    if find(connection, target) != place:
        raise ReadTimeout(
            f"Another table has taken the place of {target.place} while rows were written (it was "
            "renamed, or dropped and made again). Neither has them."
        )
    return columns_of(connection, place)


def is_cut(column: Column) -> bool:
    """Whether the column would silently change a value that does not fit."""
    return column.base in _CUT and column.typmod >= 0


def staged_as(column: Column) -> str:
    """The type of a staging table's column: that of the table's, and keys are the same in both. A
    row that would lose something in the table is refused here, before the batch is decided.
    SQL text, to be put behind the column's name."""
    from psycopg import sql

    if not is_cut(column):
        return f"{column.words}{column.collation}"
    name = sql.Identifier(column.name).as_string()
    return f"{column.base}{column.collation} CHECK ({name} = {name}::{column.words})"


def problems(connection: psycopg.Connection[Any], target: TableTarget) -> list[str]:
    """All that is wrong, a sentence each. Raises what psycopg does."""
    place = find(connection, target)
    if place is None:
        return [
            f"There is no {target.place}, or this role may not see its schema. Create it before "
            "the query starts, or give its name as schema.table."
        ]
    columns = columns_of(connection, place)
    return [
        *_of_table(connection, target, place),
        *(_of_two_phase(connection, target) if target.commit == TWO_PHASE else []),
        *(of_rows(target, columns) if target.columns else _of_any_rows(target, columns)),
        *_of_keys(connection, target, place, columns),
    ]


def _of_table(
    connection: psycopg.Connection[Any], target: TableTarget, place: Place
) -> Iterator[str]:
    row = connection.execute(_OF_TABLE, [place.oid]).fetchone()
    assert row is not None
    kind, persistence, standby, unsafe, may_select, may_delete, secured = row
    if kind not in "rp":
        yield f"'{place.words}' is no table (views and foreign tables are not written)."
    yield from _of_what_is_kept(connection, place, persistence)
    if standby:
        yield f"PostgreSQL at {target.postgres.place} is a standby: name the primary in 'url'."
    if unsafe:
        yield (
            f"PostgreSQL at {target.postgres.place} runs with fsync=off: a crash can lose what was "
            "committed. Switch it on."
        )
    if target.keys and not may_select:
        yield f"This role lacks SELECT on '{place.words}', which option 'keys' needs."
    if target.operation and not may_delete:
        yield f"This role lacks DELETE on '{place.words}', which 'operationColumn' needs."
    if target.operation and secured:
        yield (
            f"Table '{place.words}' has row-level security for this role: a DELETE passes over rows"
            " that a policy hides, without a word. ALTER ROLE ... BYPASSRLS, or leave out option "
            "'operationColumn'."
        )
    elif target.operation and may_delete:
        yield from _of_deletes(connection, place)
    may = connection.execute(_OF_SCHEMA, [place.beside]).fetchone()
    if may is None:
        yield f"There is no schema '{place.beside}' (option 'stagingSchema')."
    elif not may[0]:
        yield (
            f"This role lacks CREATE on schema '{place.beside}', where rows are staged: grant it, "
            "or name another schema in option 'stagingSchema'."
        )


def _of_deletes(connection: psycopg.Connection[Any], place: Place) -> Iterator[str]:
    """A publication takes in no DELETE of a table, or partition, whose rows it cannot name."""
    from psycopg import errors, sql

    name = sql.Identifier(place.schema, place.name)
    try:
        connection.execute(sql.SQL("EXPLAIN DELETE FROM {}").format(name))
    except errors.ObjectNotInPrerequisiteState as error:
        yield f"Option 'operationColumn' needs DELETE, which PostgreSQL refuses: {said(error)}"


def _of_what_is_kept(
    connection: psycopg.Connection[Any], place: Place, persistence: str
) -> Iterator[str]:
    """Of the table and its partitions, which may each be of another kind."""
    partitions = connection.execute(_OF_PARTITIONS, [place.oid]).fetchall()
    kept = [(place.words, "", persistence), *partitions]
    if unlogged := [name for name, _, how in kept if how != "p"]:
        yield (
            f"Table '{unlogged[0]}' is unlogged or temporary: after a crash of the "
            "server its rows are gone, and the ledger says that they are written. ALTER TABLE ... "
            "SET LOGGED."
        )
    if foreign := [name for name, kind, _ in kept if kind == "f"]:
        yield (
            f"Partition '{foreign[0]}' of '{place.words}' is a foreign table: the server that has "
            "it commits by itself, so that a batch could be there in part, or twice. Detach it."
        )


def _of_two_phase(connection: psycopg.Connection[Any], target: TableTarget) -> Iterator[str]:
    row = connection.execute("SHOW max_prepared_transactions").fetchone()
    if row is None or row[0] == "0":
        yield (
            f"PostgreSQL at {target.postgres.place} has max_prepared_transactions = 0, its default:"
            " it takes no prepared transaction, which option 'commit' 'two-phase' needs. Set it to "
            "twice the number of a batch's tasks at least, and restart the server; or use 'staged'."
        )


def of_rows(target: TableTarget, columns: dict[str, Column]) -> Iterator[str]:
    """What is wrong with the rows' columns: sentences."""
    for name, kind in target.columns:
        column = columns.get(name)
        if column is None:
            close = difflib.get_close_matches(name, columns, n=1)
            hint = f" (is it '{close[0]}'?)" if close else ""
            yield f"Column '{name}' is not in table '{target.table}'{hint}: rename or drop it."
        elif column.is_made:
            yield f"Column '{name}' is generated by the database: drop it from the rows."
        elif why := _misfit(kind, column):
            yield f"Column '{name}' is {kind}, and the table's is {column.words}: {why}."
        if column is not None and not column.may_insert:
            yield f"This role lacks INSERT on column '{name}' of table '{target.table}'."
        if column is not None and target.keys and name not in target.keys and not column.may_update:
            yield f"This role lacks UPDATE on column '{name}' of table '{target.table}'."
    for column in columns.values():
        if column.needed and column.name not in target.names:
            yield (
                f"Column '{column.name}' of table '{target.table}' is NOT NULL without a default, "
                "and the rows do not have it."
            )


def _of_any_rows(target: TableTarget, columns: dict[str, Column]) -> Iterator[str]:
    """Where nobody knows which columns the rows have: what none could do without."""
    taking = [one for one in columns.values() if not one.is_made]
    if not any(one.may_insert for one in taking):
        yield f"This role lacks INSERT on every column of table '{target.table}'."
    others = [one for one in taking if one.name not in target.keys]
    if target.keys and others and not any(one.may_update for one in others):
        yield f"This role lacks UPDATE on every column of table '{target.table}'."
    for name in target.keys:
        if name not in columns:
            yield f"Column '{name}' (option 'keys') is not in table '{target.table}'."


def _misfit(kind: str, column: Column) -> str:
    """Why a column does not take every value of a type of Spark's; "" if it does."""
    decimal = _DECIMAL.fullmatch(kind)
    takes = _TAKES.get("decimal" if decimal else kind)
    if takes is None:
        return "no column takes that; use to_json or cast it"
    if column.base not in takes:
        return f"cast it (it fits {', '.join(takes)})"
    if column.base == "numeric" and column.typmod >= 0:
        precision, scale = ((column.typmod - 4) >> 16) & 0xFFFF, (column.typmod - 4) & 0x7FF
        if scale > 1023:  # a negative one, in eleven bits
            scale -= 2048
        whole, places = (
            (int(decimal[1]) - int(decimal[2]), int(decimal[2]))
            if decimal
            else (_DIGITS.get(kind, 0), 0)
        )
        if precision - scale < whole or scale < places:
            return "it would be rounded, or does not fit; cast it"
    return ""


def _of_keys(
    connection: psycopg.Connection[Any],
    target: TableTarget,
    place: Place,
    columns: dict[str, Column],
) -> Iterator[str]:
    unknown = [name for name in target.keys if name not in columns]
    if not target.keys or unknown:
        return  # the rows' columns have told of it
    row = connection.execute(_HAS_INDEX, [place.oid, sorted(target.keys)]).fetchone()
    if row is None or not row[0]:
        yield (
            f"Option 'keys' is '{', '.join(target.keys)}', and table '{place.words}' has no "
            "primary key or unique index of just these columns (not partial, not deferrable, and "
            "with the columns' own collations: what is one key to one must be to the other)."
        )
