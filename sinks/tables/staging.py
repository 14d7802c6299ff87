"""Stages rows for a table in a table beside it, until the batch's decision.

Each generation, which is each batch, has a staging table of its own, logged as any table: a task
copies its rows into it in one statement, and what nothing decided goes by DROP TABLE, which costs
the same for one row as for millions. A task of an older driver finds its staging table gone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ...clients.postgres.client import connected, explained, may_pass, said
from ...core.crash_points import crash_point
from ...core.errors import Fenced, SinkError, WriteFailed
from ...core.transaction import Participant, Staged
from .constraints import explained as refused_by
from .marker import Markers
from .table import Place, TableTarget, found

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from psycopg import sql

PREFIX = "eo_kafka_staged_"
# Beside the rows' columns: whose they are, and what tells the newest row of a key
PARTITION, ATTEMPT, ROW, GONE = "_eo_partition", "_eo_attempt", "_eo_row", "_eo_gone"
OWN = (PARTITION, ATTEMPT, ROW, GONE)
_DROP_WAIT_MS = 2000  # for a task that nobody waits for; the next S1 tries again
_LEFT = """
SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relkind = 'r' AND starts_with(c.relname::text, %s)
"""


def prefix_of(ledger: str, sink: str, target: str) -> str:
    """What the staging tables' names of a ledger's id, a sink and a table begin with."""
    whose = f"{ledger}/{sink}/{target}"
    return f"{PREFIX}{hashlib.sha256(whose.encode()).hexdigest()[:12]}_"


def comment_of(job: str, made: datetime) -> str:
    """What a staging table says of itself; PostgreSQL keeps no table's age."""
    now = made.isoformat(timespec="seconds")
    return f"Rows of eo-kafka job {job} that wait for a decision, since {now}"


@dataclass(frozen=True)
class StagingTables:
    """The staging tables of one job, sink and table. Its methods raise what psycopg does."""

    connection: psycopg.Connection[Any]
    place: Place
    ledger: str
    sink: str

    def name(self, generation: int) -> str:
        """That of a driver's generation; the ledger's id keeps it apart from those of a ledger that
        was deleted and made again."""
        return f"{self._prefix}{generation}"

    @property
    def _prefix(self) -> str:
        return prefix_of(self.ledger, self.sink, self.place.words)

    def make(
        self,
        target: TableTarget,
        types: dict[str, str],
        constraints: Sequence[str],
        generation: int,
        job: str,
    ) -> None:
        """An empty one, with the table's types and these of its constraints, as SQL."""
        from psycopg import sql

        name = sql.Identifier(self.place.beside, self.name(generation))
        # Not to be vacuumed or analyzed: it lives as long as a batch
        self.connection.execute(
            sql.SQL(
                "DROP TABLE IF EXISTS {name}; CREATE TABLE {name} ({columns}) "
                "WITH (autovacuum_enabled = false); COMMENT ON TABLE {name} IS {words}"
            ).format(
                name=name,
                columns=definition(target, types, constraints),
                words=sql.Literal(comment_of(job, datetime.now(timezone.utc))),
            )
        )

    def remove_left(self, generation: int, kept: Collection[str]) -> list[str]:
        """Drop those of generations up to this one that no decision in `kept` names."""
        left = [name for name, of in self.there().items() if name not in kept and of <= generation]
        return [name for name in left if drop(self.connection, self.place.beside, name)]

    def there(self) -> dict[str, int]:
        """All that are there, with their generations."""
        rows = self.connection.execute(_LEFT, (self.place.beside, self._prefix)).fetchall()
        return {name: int(name.removeprefix(self._prefix)) for (name,) in rows}


def own_columns(target: TableTarget) -> list[str]:
    """Those that a staging table has beside the rows' own."""
    own = [PARTITION, ATTEMPT]
    own += [ROW] if target.keys else []
    return own + ([GONE] if target.operation else [])


def definition(target: TableTarget, types: dict[str, str], constraints: Sequence[str]) -> Any:
    """The columns and constraints of a staging table, as SQL."""
    from psycopg import sql

    columns: list[sql.Composable] = [
        sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(types[name])) for name in target.names
    ]
    kinds = {PARTITION: "int", GONE: "boolean"}
    columns += [
        sql.SQL("{} {} NOT NULL").format(sql.Identifier(name), sql.SQL(kinds.get(name, "bigint")))
        for name in own_columns(target)
    ]
    columns += map(sql.SQL, constraints)
    return sql.SQL(", ").join(columns)


def drop(connection: psycopg.Connection[Any], schema: str, name: str) -> bool:
    """Whether it is gone; one that somebody is still writing into stays."""
    from psycopg import errors, sql

    try:
        with connection.transaction():
            connection.execute(f"SET LOCAL lock_timeout = {_DROP_WAIT_MS}")
            connection.execute(
                sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, name))
            )
    except errors.LockNotAvailable:
        return False
    return True


def columns_staged(connection: psycopg.Connection[Any], place: Place, home: str) -> list[str]:
    """The columns of a staging table: those of when its rows were staged, which is perhaps not what
    the query has now."""
    rows = connection.execute(
        "SELECT a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 ORDER BY a.attnum",
        (place.beside, home),
    )
    return [name for (name,) in rows]


def not_staged(
    connection: psycopg.Connection[Any], place: Place, parts: Sequence[Participant]
) -> set[int]:
    """The partitions in `parts` whose rows are not all staged."""
    staged = _rows_staged(connection, place, parts)
    return {part.partition for part in parts if staged.get(part.partition) != part.rows}


def _rows_staged(
    connection: psycopg.Connection[Any], place: Place, parts: Sequence[Participant]
) -> dict[int, int]:
    """How many rows are staged of each partition in `parts`."""
    from psycopg import sql

    staged: dict[int, int] = {}
    for home in {part.staged.home for part in parts if part.staged}:
        there = connection.execute(
            "SELECT to_regclass(%s) IS NOT NULL",
            [sql.Identifier(place.beside, home).as_string(connection)],
        ).fetchone()
        if there is None or not there[0]:
            continue
        # All attempts are counted: that takes half the time of a join with those of `parts`
        asked = sql.SQL("SELECT s.{p}, s.{a}, count(*) FROM {t} s GROUP BY 1, 2").format(
            p=sql.Identifier(PARTITION),
            a=sql.Identifier(ATTEMPT),
            t=sql.Identifier(place.beside, home),
        )
        counts = {(of, by): rows for of, by, rows in connection.execute(asked)}
        for part in parts:
            if part.staged and part.staged.home == home:
                rows = counts.get((part.partition, part.staged.attempt))
                staged |= {} if rows is None else {part.partition: rows}
    return staged


def of_parts(parts: Sequence[Participant]) -> Any:
    """What joins a staging table `s` to its rows of some parts. The rows' columns may have any name
    that does not begin with `_eo_`, and so no other may stand here. Nor an argument: whoever has
    one must write each % in a name twice."""
    from psycopg import sql

    staged = [(part.partition, part.staged.attempt) for part in parts if part.staged]
    return sql.SQL(
        "JOIN unnest({}::int[], {}::bigint[]) w(_eo_p, _eo_a) ON s.{} = w._eo_p AND s.{} = w._eo_a"
    ).format(
        sql.Literal([partition for partition, _ in staged]),
        sql.Literal([attempt for _, attempt in staged]),
        sql.Identifier(PARTITION),
        sql.Identifier(ATTEMPT),
    )


class TaskStaging:
    """What one attempt of a task stages. Executor."""

    def __init__(
        self, target: TableTarget, ledger: str, sink: str, whose: tuple[int, int, int]
    ) -> None:
        """`whose`: the plan's generation, the partition, the attempt."""
        self._target = target
        self._ledger, self._sink = ledger, sink
        self._generation, self._partition, self._attempt = whose
        self._rows = 0
        self._home = ""
        self.staged: Staged | None = None  # once the server has all of it

    def through(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows as a topic gets them, or what stands for them in a digest; at their end the
        server has all rows."""
        from psycopg import Error

        with connected(self._target.postgres) as connection:
            place = found(connection, self._target)
            try:
                yield from self._written(connection, place, batches)
            except Error as error:
                raise self._refused(error) from None
        if self._rows:
            self.staged = Staged(place.words, self._home, self._attempt, self._rows)

    def _written(
        self, connection: psycopg.Connection[Any], place: Place, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        from psycopg import errors, sql

        tables = StagingTables(connection, place, self._ledger, self._sink)
        self._home = tables.name(self._generation)
        home = sql.Identifier(place.beside, self._home)
        try:
            yield from self._copied(connection, home, batches, own_columns(self._target))
        except errors.UndefinedTable:
            raise self._without_place(connection, place) from None

    def _without_place(self, connection: psycopg.Connection[Any], place: Place) -> SinkError:
        """What S1 made for the tasks is gone. A newer driver leaves its marker by S7, or with
        prepared transactions by S1, and until then a staging table."""
        tables = StagingTables(connection, place, self._ledger, self._sink)
        marker = Markers(connection, place, self._sink, self._ledger).read()
        newest = max([marker.generation if marker else 0, *tables.there().values()])
        if newest > self._generation:
            return Fenced(
                f"Partition {self._partition}: another driver has taken over {self._target.place} "
                f"(generation {newest}; this one's is {self._generation}). Nothing of this attempt "
                "is visible."
            )
        return WriteFailed(
            f"Partition {self._partition}: what its driver had made beside {self._target.place} for"
            " the tasks is gone, and no newer driver is seen: another server took this one's place "
            "and lacks it, somebody removed it, or the batch has ended without this attempt. "
            "Nothing of this attempt is visible. Start the query again: it makes it anew."
        )

    def _copied(
        self,
        connection: psycopg.Connection[Any],
        table: sql.Identifier,
        batches: Iterator[pa.RecordBatch],
        own: Sequence[str],
    ) -> Generator[pa.RecordBatch, None, int]:
        """Through one COPY into a table that has these of our own columns, too; returns how many
        rows PostgreSQL has taken."""
        from psycopg import sql

        from .rows import copied

        into = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
            table, sql.SQL(", ").join(map(sql.Identifier, [*self._target.names, *own]))
        )
        cursor = connection.cursor()
        with cursor.copy(into) as copy:
            for batch in batches:
                whose = (self._partition, self._attempt, self._rows) if own else None
                copy.write(copied(self._target, batch, whose))
                self._rows += batch.num_rows
                crash_point("postgres.while_staging")
                yield self._target.sent(batch)
        return cursor.rowcount

    def _refused(self, error: psycopg.Error) -> Exception:
        if may_pass(error):
            return explained(error, self._target.postgres)
        where = (error.diag.context or "").splitlines()
        why = said(error)
        if (error.diag.table_name or "").startswith(PREFIX):  # a CHECK
            constraint = error.diag.constraint_name or PREFIX
            is_cut = constraint.startswith(PREFIX)  # see schema.staged_as
            what = "a column would cut or round a value"
            why = f"{what if is_cut else refused_by(constraint, self._target)}, {why}"
        return SinkError(
            f"PostgreSQL does not take a row of partition {self._partition} for "
            f"{self._target.place}: {why}{f' [{where[0][:200]}]' if where else ''}. "
            "Nothing of the batch is visible. Filter or correct such rows, and start the query "
            "again."
        )
