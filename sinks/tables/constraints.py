"""Which of a table's constraints its staging table takes over, so that a row which the table would
refuse is refused by the task, before the batch is decided. Driver, at S1.

Only what surely says the same of a staged row as it will of the table's: no trigger or rule changes
rows on their way, all columns are the rows' own, and a CHECK's expression is made of built-in parts
that depend on nothing but the row. What is left out is found at S7, as ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .table import Place, TableTarget

if TYPE_CHECKING:
    import psycopg

    from .schema import Column

NULL = "_eo_null_"  # the name of what stands for NOT NULL, before the column's number
# A row trigger that comes before may fill in what is missing, also one of a partition's
_CHANGES_ROWS = """
SELECT EXISTS (SELECT 1 FROM pg_trigger t WHERE t.tgenabled <> 'D' AND NOT t.tgisinternal
    AND t.tgtype & 2 > 0 AND t.tgtype & 1 > 0 AND t.tgtype & 20 > 0
    AND (t.tgrelid = %(table)s OR t.tgrelid IN (SELECT relid FROM pg_partition_tree(%(table)s))))
OR EXISTS (SELECT 1 FROM pg_class WHERE oid = %(table)s AND relhasrules)
"""
# NOT VALID is of rows that are there already: new ones must satisfy it. PostgreSQL 18 has ones that
# are not enforced. Objects of users (functions, operators) are dependencies, and built-in ones are
# not: of those, each function must be immutable.
_CHECKS = r"""
SELECT c.conname::text, pg_get_expr(c.conbin, c.conrelid), (
    SELECT array_agg(a.attname::text) FROM pg_attribute a
    WHERE a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey))
FROM pg_constraint c
WHERE c.conrelid = %s AND c.contype = 'c'
AND to_jsonb(c) ->> 'conenforced' IS DISTINCT FROM 'false'
AND c.conkey IS NOT NULL AND 0 < ALL (c.conkey)
AND NOT EXISTS (SELECT 1 FROM pg_depend d WHERE d.classid = 'pg_constraint'::regclass
    AND d.objid = c.oid AND d.refclassid NOT IN ('pg_class'::regclass, 'pg_type'::regclass,
        'pg_collation'::regclass))
AND NOT EXISTS (
    SELECT 1 FROM regexp_matches(c.conbin::text, '\{([A-Z_]+)', 'g') AS node(label)
    WHERE node.label[1] NOT IN ('VAR', 'CONST', 'OPEXPR', 'BOOLEXPR', 'FUNCEXPR', 'NULLTEST',
        'SCALARARRAYOPEXPR', 'BOOLEANTEST', 'RELABELTYPE', 'ARRAYEXPR', 'ARRAY', 'DISTINCTEXPR',
        'COLLATEEXPR'))
AND NOT EXISTS (
    SELECT 1 FROM regexp_matches(c.conbin::text, ':(?:op)?funcid (\d+)', 'g') AS called(id)
    LEFT JOIN pg_proc p ON p.oid = called.id[1]::oid
    WHERE p.provolatile IS DISTINCT FROM 'i')
ORDER BY 1
"""


def taken_over(
    connection: psycopg.Connection[Any],
    place: Place,
    target: TableTarget,
    columns: dict[str, Column],
    gone: str,
) -> list[str]:
    """Constraints for a staging table, as SQL. `gone` is its column that says that a row is to be
    deleted: such a row may hold anything but for its key. Raises what psycopg does."""
    from psycopg import sql

    if changes_rows(connection, place):
        return []
    unless = sql.SQL("{} OR ").format(sql.Identifier(gone)) if target.operation else sql.SQL("")
    return [
        sql.SQL("CONSTRAINT {} CHECK ({}({}))")
        .format(sql.Identifier(name), unless, expression)
        .as_string(connection)
        for name, expression in [
            *_not_null(target, columns),
            *_checks(connection, place, target),
        ]
    ]


def changes_rows(connection: psycopg.Connection[Any], place: Place) -> bool:
    """Whether a trigger or rule may change rows on their way, or keep them out. Either side."""
    found = connection.execute(_CHANGES_ROWS, {"table": place.oid}).fetchone()
    return found is None or bool(found[0])


def _not_null(target: TableTarget, columns: dict[str, Column]) -> Iterator[tuple[str, Any]]:
    from psycopg import sql

    for number, name in enumerate(target.names):
        if name in columns and columns[name].not_null:
            yield f"{NULL}{number}", sql.SQL("{} IS NOT NULL").format(sql.Identifier(name))


def _checks(
    connection: psycopg.Connection[Any], place: Place, target: TableTarget
) -> Iterator[tuple[str, Any]]:
    from psycopg import sql

    for name, expression, of in connection.execute(_CHECKS, [place.oid]).fetchall():
        if set(of) <= set(target.names):
            yield name, sql.SQL(expression)


def explained(constraint: str, target: TableTarget) -> str:
    """What a constraint of a staging table, which a row does not satisfy, says of the table; ends
    in what to do."""
    if constraint.startswith(NULL):
        column = target.names[int(constraint.removeprefix(NULL))]
        return (
            f"column '{column}' is NOT NULL in the table, and the row has NULL there: fill it in "
            f"(coalesce), or ALTER TABLE ... ALTER COLUMN {column} DROP NOT NULL"
        )
    return f"CHECK '{constraint}' of the table would refuse the row when the batch is decided"
