"""Which table rows go into, as the options say it and as the database knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...clients.postgres.client import PostgresSettings
from ...core.errors import EnvironmentRefused, cut
from ..rows.one_value import one_value, sent

if TYPE_CHECKING:
    from typing import LiteralString

    import psycopg
    import pyarrow as pa

UPSERT, DELETE = "upsert", "delete"
_WHERE = """
SELECT c.oid, n.nspname, c.relname, coalesce(%(staging)s, n.nspname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%(table)s)
"""


@dataclass(frozen=True)
class TableTarget:
    """Which table rows go into once they are decided, and how. Pickled to the tasks; its repr shows
    no secrets. `columns` are the rows' that go into it (name, Spark's type; `json` for what is sent
    as JSON); `keys` tell its rows apart, none where all are appended; `operation` is the column
    that says which rows are deleted; `commit` the way from the tasks to the table."""

    table: str
    postgres: PostgresSettings
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]
    operation: str | None
    staging_schema: str | None
    fail_on_loss: bool
    commit: str = "staged"

    @property
    def place(self) -> str:
        """For sentences: which table."""
        return f"table '{cut(self.table)}' of {self.postgres.place}"

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [name for name, _ in self.columns]

    def sent(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What a topic gets, or what stands for the rows in a digest. Executor."""
        return sent(batch, self.names, self._row)

    def beside(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What stands in a digest for that of the rows which a topic does not get. Executor."""
        return one_value(batch, self._row)

    @property
    def _row(self) -> list[str]:
        return [*self.names, *([self.operation] if self.operation else [])]


@dataclass(frozen=True)
class Place:
    """The table as the database knows it, and the schema for what eo-kafka keeps beside it."""

    oid: int
    schema: str
    name: str
    beside: str

    @property
    def words(self) -> str:
        """Its name, whatever the search path is."""
        return f"{self.schema}.{self.name}"


def find(connection: psycopg.Connection[Any], target: TableTarget) -> Place | None:
    """Where the table is; None if this role can see none. Raises what psycopg does."""
    asked = {"table": target.table, "staging": target.staging_schema}
    row = connection.execute(_WHERE, asked).fetchone()
    return None if row is None else Place(*row)


def found(connection: psycopg.Connection[Any], target: TableTarget) -> Place:
    """The same. Raises EnvironmentRefused if it is gone."""
    place = find(connection, target)
    if place is None:
        raise EnvironmentRefused(
            f"There is no {target.place}. A batch that is decided stays decided: restore the table "
            "and start again."
        )
    return place


def is_beside(connection: psycopg.Connection[Any], place: Place, name: str) -> bool:
    """Whether this is there of what is kept beside a table. Raises what psycopg does."""
    asked = connection.execute(
        "SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s)",
        (place.beside, name),
    ).fetchone()
    return asked is not None and bool(asked[0])


def make_beside(
    connection: psycopg.Connection[Any], place: Place, name: str, create: LiteralString
) -> None:
    """Make it by this statement, if it is not there. Raises what psycopg does."""
    from psycopg import errors, sql

    if is_beside(connection, place, name):
        return
    try:
        connection.execute(sql.SQL(create).format(sql.Identifier(place.beside, name)))
    except errors.UniqueViolation:  # somebody else made it at the same moment
        if not is_beside(connection, place, name):
            raise
