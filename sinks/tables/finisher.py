"""S7 of rows that are staged for a table: one transaction for the rows and the marker that says so.

Runs on the driver; safe to repeat, by anybody: the marker is looked at before anything is done,
under a lock that only this transaction holds.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...clients.postgres.client import connected, may_pass, said
from ...core.crash_points import crash_point
from ...core.errors import Fenced, LedgerError, OutcomeUnknown, ReadTimeout, RepairNeeded
from ...core.transaction import Decision, Participant
from ...state.ledger.job import Job
from ...state.ledger.ledger import Ledger
from ..marker import History, Marker, newest_parts
from ..staged_losses import check_gone_with_topic
from .marker import Markers
from .staging import GONE, OWN, ROW, columns_staged, drop, of_parts, rows_staged
from .table import Place, TableTarget, found

if TYPE_CHECKING:
    import psycopg
    from psycopg import sql

APPLY_TIMEOUT_S = 60.0  # for a server that starts again
# A driver that stands still in the transaction loses it, and its successor waits for that.
_LIMITS = "SET LOCAL idle_in_transaction_session_timeout = '15s'; SET LOCAL lock_timeout = '60s'"


class StagedTableRows:
    """The staged rows of one decision. Its methods raise Fenced, OutcomeUnknown, LedgerError."""

    def __init__(self, target: TableTarget, job: Job, ledger: Ledger, decision: Decision) -> None:
        self._target = target
        self._job = job
        self._ledger = ledger
        self._decision = decision
        self._holder = ledger.generation
        # Participants of earlier rounds are known to be applied.
        self._parts = [part for part in newest_parts(decision) if part.round == decision.round]
        self.begun = False

    def take(self) -> None:
        """Shut out every earlier driver, and learn whether it is applied."""
        self._insisting(self._take)

    def lost(self) -> set[int]:
        """The partitions that have rows which are neither applied nor staged any more."""
        if self.begun:
            return set()
        with connected(self._target.postgres) as connection:
            staged = rows_staged(connection, found(connection, self._target), self._parts)
        return {part.partition for part in self._parts if staged.get(part.partition) != part.rows}

    def not_applied(self) -> tuple[Participant, ...]:
        """All participants, or none: they are applied in one transaction."""
        return () if self.begun else tuple(self._parts)

    def in_part(self) -> set[int]:
        """None: it is one transaction."""
        return set()

    def apply(self, but: Collection[int]) -> None:
        """Everything, of all partitions `but` these, unless it is applied."""
        parts = [part for part in self._parts if part.partition not in but]
        passed = {part.partition for part in self._parts} - {part.partition for part in parts}
        self._insisting(lambda connection: self._apply(connection, parts, passed))

    def remove(self) -> None:
        """S8: nobody needs it any more."""
        with connected(self._target.postgres) as connection:
            place = found(connection, self._target)
            for home in {part.staged.home for part in self._parts if part.staged}:
                drop(connection, place.beside, home)

    def _insisting(self, do: Any) -> None:
        """`do`, again when the server was away: what has become of it, it sees by itself."""
        deadline = time.monotonic() + APPLY_TIMEOUT_S
        while True:
            try:
                with connected(self._target.postgres) as connection:
                    do(connection)
                return
            except ReadTimeout as error:
                if time.monotonic() > deadline:
                    raise OutcomeUnknown(
                        f"Batch {self._decision.batch} is decided, and whether "
                        f"{self._target.place} has it is unknown: {error}"
                    ) from None
            time.sleep(0.2)

    def _take(self, connection: psycopg.Connection[Any]) -> None:
        with self._marker(connection) as (_, markers, marker):
            self.begun = self._is_applied(marker)
            if marker.generation != self._holder:
                markers.write(replace(marker, generation=self._holder), self._job.job_and_ledger[0])

    def _apply(
        self, connection: psycopg.Connection[Any], parts: Sequence[Participant], passed: set[int]
    ) -> None:
        from psycopg import Error, sql

        try:
            with self._marker(connection) as (place, markers, marker):
                if self._is_applied(marker):
                    if passed - set(marker.passed):  # others may have been given up
                        back = self._taken_back(marker, passed | set(marker.passed))
                        markers.write(back, self._job.job_and_ledger[0])
                    return
                if not parts:
                    return
                home = next(part.staged.home for part in parts if part.staged)
                columns = columns_staged(connection, place, home)
                self._check_options(columns)
                staged = sql.Identifier(place.beside, home)
                for statement in _statements(self._target.keys, columns, place, staged, parts):
                    connection.execute(statement)
                now = Marker.of(
                    marker.ledger, self._holder, self._decision.batch, self._parts, passed
                )
                markers.write(now, self._job.job_and_ledger[0])
                crash_point("S7.in_table")
        except Error as error:
            if may_pass(error):
                raise
            raise self._refused(error) from None

    @contextmanager
    def _marker(
        self, connection: psycopg.Connection[Any]
    ) -> Iterator[tuple[Place, Markers, Marker]]:
        """A transaction that holds our marker. Raises Fenced, LedgerError."""
        with connection.transaction():
            connection.execute(_LIMITS)
            place = found(connection, self._target)
            markers = Markers(connection, place, self._job.sink, self._ledger.topic_id)
            marker = markers.read(lock=True)
            if marker is None:
                raise LedgerError(
                    f"The marker of {self._target.place} in '{place.beside}.eo_kafka_batches' went "
                    f"while a batch was written. Batch {self._decision.batch} stays decided. Start "
                    "the query again."
                )
            if marker.generation > self._holder:
                raise Fenced(
                    f"Generation {marker.generation} of job '{self._job.job}' has taken over "
                    f"{self._target.place} from {self._holder}. This driver stops and has changed "
                    "nothing in it."
                )
            if not History(self._ledger, self._job.sink, self._decision).accepts(marker):
                raise LedgerError(
                    f"{self._target.place} shows batch {marker.batch} of generation "
                    f"{marker.decided}, which is not what was there before batch "
                    f"{self._decision.batch}: its database was restored while the query ran. The "
                    "batch stays decided, and nothing was written. Start the query again."
                )
            yield place, markers, marker

    def _check_options(self, columns: Sequence[str]) -> None:
        """Raise LedgerError if the rows were staged to be appended, and have keys now, or so."""
        keyed = ROW in columns
        if keyed != bool(self._target.keys) or set(self._target.keys) - set(columns):
            were = "replace rows with their keys" if keyed else "be appended"
            raise LedgerError(
                f"Batch {self._decision.batch} is decided, and its rows are to {were}: option "
                "'keys' was changed since. Nothing was written. Start the query with the option as "
                "it was until a batch is written."
            )

    def _is_applied(self, marker: Marker) -> bool:
        return marker.shows(self._decision.batch, self._parts)

    def _taken_back(self, marker: Marker, passed: set[int]) -> Marker:
        """What the table is to show when rows of an applied batch have gone with their topic since,
        and the replay writes them to both. Raises RepairNeeded if it would repeat some."""
        check_gone_with_topic(
            self._target.place,
            self._decision.batch,
            sorted(passed - set(marker.passed)),
            repeats=not self._target.keys,
            fail=self._target.fail_on_loss,
        )
        if len(passed) < len(self._parts):
            return Marker.of(marker.ledger, self._holder, self._decision.batch, self._parts, passed)
        return History(self._ledger, self._job.sink, self._decision).expected()

    def _refused(self, error: psycopg.Error) -> RepairNeeded:
        rows = sum(part.rows for part in self._parts)
        return RepairNeeded(
            f"Batch {self._decision.batch} of job '{self._job.job}' is decided ({rows:,} rows), "
            f"and {self._target.place} does not take it: {said(error)}. Nothing of it is in the "
            "table, and it stays decided. Change the table so that it takes these rows (its "
            "constraint, trigger or privileges, or the row that stands in the way), and start the "
            "query again: it begins with this batch."
        )


def _statements(
    keys: Sequence[str],
    staged: Sequence[str],
    place: Place,
    home: sql.Identifier,
    parts: Sequence[Participant],
) -> Iterator[Any]:
    """What moves the staged rows of `parts`, of columns `staged`, into their table. All of a round
    are in one staging table, `home`."""
    from psycopg import sql

    columns = [name for name in staged if name not in OWN]
    names = {
        "table": sql.Identifier(place.schema, place.name),
        "staged": home,
        "columns": sql.SQL(", ").join(map(sql.Identifier, columns)),
        "keys": sql.SQL(", ").join(map(sql.Identifier, keys)),
        "parts": of_parts(parts),
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
