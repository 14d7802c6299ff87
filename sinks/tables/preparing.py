"""What one attempt of a task prepares for a table with `commit=two-phase`. Executor.

Rows go straight into the table, in a transaction that is left prepared. Where they need a look on
their way (keys, a column that would cut them, a rule), they go through a table that only this
transaction ever sees.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ...core.crash_points import crash_point
from ...core.errors import EnvironmentRefused, SinkError, WriteFailed
from .moving import move, tell_kept_out
from .prepared import PreparedTransactions, parsed
from .schema import columns_of, columns_written, is_cut, of_rows, staged_as
from .staging import TaskStaging, definition, own_columns, prefix_of
from .table import Place, TableTarget

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

    from ..protocol.two_phase import TaskIdentity
    from .schema import Column

LOCK_WAIT = "20s"  # for a row or a key that another transaction has
# An attempt that reports has Spark end the others. One that is still there was lost.
SIBLING_WAIT_S = 5.0
_BEGIN = (
    f"BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL lock_timeout = '{LOCK_WAIT}'; "
    "SET LOCAL idle_in_transaction_session_timeout = 0"
)
_NEEDS_INSERT = """
SELECT relhasrules OR row_security_active(oid) FROM pg_class WHERE oid = %s
"""

_ROOM = """
SELECT current_setting('max_prepared_transactions')::int, (SELECT count(*) FROM pg_prepared_xacts)
"""


class TaskPrepared(TaskStaging):
    """Rows of one attempt, in a transaction that outlives it."""

    def __init__(
        self,
        target: TableTarget,
        ledger: str,
        sink: str,
        whose: tuple[int, int, int],
        task: TaskIdentity,
    ) -> None:
        """`whose`: the plan's generation, the partition, the attempt."""
        super().__init__(target, ledger, sink, whose)
        self._batch, self._follows = task.batch, task.follows

    def _written(
        self, connection: psycopg.Connection[Any], place: Place, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        prepared = PreparedTransactions(connection, place, self._ledger, self._sink)
        self._home = prepared.name(self._generation, self._partition, self._attempt)
        with prepared.held():
            if not prepared.is_open(self._generation):
                raise self._without_place(connection, place)
            if self._follows:
                self._roll_back_lost(prepared)
            connection.execute(_BEGIN)
            yield from self._moved(connection, place, batches)
            if not self._rows:
                connection.execute("ROLLBACK")
                return
            crash_point("postgres.before_prepare")
            prepared.mark(self._home, self._batch, self._rows)
            self._prepare(connection)
        crash_point("postgres.prepared")

    def _moved(
        self, connection: psycopg.Connection[Any], place: Place, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        from psycopg import sql

        columns = columns_of(connection, place)
        mine = [columns[name] for name in self._target.names if name in columns]
        insert = connection.execute(_NEEDS_INSERT, [place.oid]).fetchone()
        if not self._target.keys and insert == (False,) and not any(map(is_cut, mine)):
            table = sql.Identifier(place.schema, place.name)
            copied = yield from self._copied(connection, table, batches, own=())
            tell_kept_out(self._target, self._rows, copied)
            self._check_altered(columns, columns_written(connection, self._target, place))
            return
        types = {name: staged_as(column) for name, column in columns.items()}
        # Until this transaction ends, another job that makes a table of that name waits for it
        whose = prefix_of(self._ledger, self._sink, place.words)
        name = f"{whose}{self._generation}_{self._partition}_{self._attempt}"
        home = sql.Identifier(place.beside, name)
        own = own_columns(self._target)
        # Not UNLOGGED: PostgreSQL 17.5 does not start again after a crash just after such a
        # transaction was rolled back ("could not create file ...: File exists")
        made = sql.SQL("CREATE TABLE {} ({}) WITH (autovacuum_enabled = false)")
        connection.execute(made.format(home, definition(self._target, types, ())))
        yield from self._copied(connection, home, batches, own)
        staged = [*self._target.names, *own]
        move(connection, self._target, staged, place, home, sql.SQL(""), self._rows)
        connection.execute(sql.SQL("DROP TABLE {}").format(home))
        self._check_altered(columns, columns_written(connection, self._target, place))

    def _check_altered(self, before: Mapping[str, Column], now: dict[str, Column]) -> None:
        """Raise SinkError if the table's columns, which stay as they are `now` to the transaction's
        end, are not those that were looked at `before`, or at S1: values could be changed, or rows
        of one key taken for several."""
        wrong = list(of_rows(self._target, now))
        wrong += [
            f"Column '{name}' was {was.words}{was.collation} and is {one.words}{one.collation}."
            for name in self._target.names
            if (was := before.get(name))
            and (one := now.get(name))
            and (was.words, was.collation) != (one.words, one.collation)
        ]
        if wrong:
            raise SinkError(
                f"{self._target.place} was altered while a batch was written. {' '.join(wrong)} "
                "Nothing of the batch is visible. Start the query again."
            )

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        from psycopg import errors, sql

        try:
            connection.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(self._home)))
        except (errors.OutOfMemory, errors.ObjectNotInPrerequisiteState):
            row = connection.execute(_ROOM).fetchone()  # the transaction is rolled back
            if row is None or row[1] < row[0]:
                raise
            raise EnvironmentRefused(
                f"PostgreSQL at {self._target.postgres.place} has no room for one more prepared "
                f"transaction: max_prepared_transactions is {row[0]}. Each task of a batch needs "
                "one, and another one if it is repeated: set it to twice the number of tasks at "
                "least, and restart the server. Nothing of the batch is visible."
            ) from None
        except errors.FeatureNotSupported as error:
            raise SinkError(
                f"The rows for {self._target.place} cannot be prepared: "
                f"{error.diag.message_primary}. A trigger or a foreign partition of the table does "
                "what a prepared transaction may not. Change it, or use option 'commit' 'staged'. "
                "Nothing of the batch is visible."
            ) from None

    def _roll_back_lost(self, prepared: PreparedTransactions) -> None:
        """What another attempt of this task has prepared holds its rows. If that is the one that
        counts, Spark ends this one, or the driver does before it decides; else it was lost. The
        first attempt of a stage that runs again is ended by nobody: it waits for a lock, and the
        one that follows it, if Spark needs one, comes here."""
        deadline = time.monotonic() + SIBLING_WAIT_S
        while others := self._siblings(prepared):
            if not prepared.is_open(self._generation):
                raise self._without_place(prepared.connection, prepared.place)
            if time.monotonic() > deadline:
                prepared.roll_back(others)
                return
            time.sleep(0.2)

    def _siblings(self, prepared: PreparedTransactions) -> list[str]:
        mine = (prepared.prefix, self._generation, self._partition)
        found = {name: parsed(name) for name in prepared.listed()}
        return [name for name, parts in found.items() if parts and parts[:3] == mine]

    def _refused(self, error: psycopg.Error) -> Exception:
        from psycopg import errors

        if isinstance(error, errors.UndefinedTable):
            return SinkError(
                f"There is no {self._target.place} any more, or not what is kept beside it "
                f"({error.diag.message_primary}). Nothing of the batch is visible. Restore it and "
                "start the query again."
            )
        if isinstance(error, errors.LockNotAvailable | errors.DeadlockDetected):
            keys = ", ".join(f"'{key}'" for key in self._target.keys or ("id",))
            return WriteFailed(
                f"Partition {self._partition} waited for {LOCK_WAIT} for a row or a key of "
                f"{self._target.place} that another transaction has ({error.diag.message_primary})."
                " If two tasks of the batch have rows of one key, bring them together before the "
                f"sink: repartition({keys}). Else another program holds it (pg_locks), or an "
                "attempt of before this one. Nothing of the batch is visible."
            )
        return super()._refused(error)
