"""S7 of prepared transactions: COMMIT PREPARED of each, then one that writes the marker.

Runs on the driver; safe to repeat, by anybody: each prepared transaction has a row in it, its mark,
and the marker is written only if the marks of all are there.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...clients.postgres.client import connected, may_pass, said
from ...core.crash_points import crash_point
from ...core.errors import LedgerError, RepairNeeded
from ...core.transaction import Participant
from ..marker import Marker
from .decided import DecidedTableRows
from .prepared import PREFIX, TABLE, PreparedTransactions, parsed
from .table import found

if TYPE_CHECKING:
    import psycopg

log = logging.getLogger(__name__)


class PreparedTableRows(DecidedTableRows):
    """Rows in prepared transactions, one a task."""

    _passed: Sequence[int] | None = None  # by the marker, if it shows the decision

    def lost(self) -> set[int]:
        """The partitions that have rows which are neither there nor prepared any more."""
        if self._passed is not None:
            # What Kafka aborted, it says again; of a table alone nobody else does
            has_topic = any(part.has_token for part in self._parts)
            return set() if has_topic else set(self._passed)
        with connected(self._target.postgres) as connection:
            prepared = self._prepared(connection)
            if prepared.all_wait(self._parts):
                return set()
            # In this order: one that is committed in between has gone from the list and is marked
            listed = prepared.listed(PREFIX)  # a ledger's copy has another id, and their names stay
            there = self._marked(prepared)
            listed |= prepared.given_up()  # and Kafka says so again
        self.begun = self.begun or bool(there)
        return {
            part.partition
            for part in self._parts
            if part.partition not in there and part.staged and part.staged.home not in listed
        }

    def not_applied(self) -> tuple[Participant, ...]:
        """Those that are lost: what is left of the others gets into the table first."""
        lost = self.lost()
        if self._passed is None:
            self.apply(but=lost)
        return tuple(part for part in self._parts if part.partition in lost)

    def remove(self) -> None:
        """S8: attempts of this batch that lost against others, and were not ended."""
        with connected(self._target.postgres) as connection:
            prepared, mine = self._prepared(connection), self._decision.generation
            kept = [part.staged.home for part in self._decision.participants if part.staged]
            prepared.roll_back(prepared.left(kept, mine, mine))

    def _take(self, connection: psycopg.Connection[Any]) -> None:
        prepared = self._prepared(connection)
        with self._marker(connection) as (_, _, marker):
            if marker.generation < self._parts[0].generation:  # S1 wrote both: an older copy's
                prepared.note_kept(self._prefix)
        super()._take(connection)
        prepared.end_holders()
        with self._marker(connection) as (_, _, marker):  # they may have written it until then
            shown = self._is_applied(marker)
            self._passed = marker.passed if shown else None
        self.begun = shown or bool(self._marked(prepared))

    @property
    def _prefix(self) -> str:
        """Of the names as they were prepared: a ledger's copy has another id."""
        home = next(part.staged.home for part in self._parts if part.staged)
        found = parsed(home)
        assert found is not None
        return found[0]

    def _marked(self, prepared: PreparedTransactions) -> set[int]:
        """The partitions whose rows are in the table, which does not show the batch yet. Raises
        RepairNeeded if nobody can tell."""
        if prepared.all_wait(self._parts):
            return set()
        there = prepared.committed(self._decision.batch, self._parts)
        if prepared.is_kept(self._prefix):  # in this order
            return there
        sentence = (
            f"Batch {self._decision.batch} of job '{self._job.job}' is decided, and rows of "
            f"'{prepared.place.beside}.{TABLE}' were removed by hand, which say what of it is in "
            f"{self._target.place}."
        )
        if self._target.fail_on_loss:
            raise RepairNeeded(
                f"{sentence} What is not prepared any more may be there, and would be there twice "
                "if it were written again. Nothing was changed. Delete the rows of this batch that "
                "are there, and set option 'failOnDataLoss' to false until it is written: it is "
                "then written again. What is still in pg_prepared_xacts is not there yet."
            )
        log.warning("%s Going on, as 'failOnDataLoss' is false.", sentence)
        prepared.note_kept(self._prefix)
        return there

    def _apply(
        self, connection: psycopg.Connection[Any], parts: Sequence[Participant], passed: set[int]
    ) -> None:
        from psycopg import Error

        prepared = self._prepared(connection)
        gone = [p.staged.home for p in self._parts if p.staged and p.partition in passed]
        try:
            with prepared.held():
                with self._marker(connection) as (_, markers, marker):
                    shown = self._is_shown(markers, marker, passed)
                if not shown and parts:
                    self._commit_all(prepared, parts)
                    self._write_marker(connection, prepared, parts, passed)
                if self._decision.round and not (shown or parts):
                    prepared.note_given_up(gone)  # the marker cannot say so: it shows other rows
                if self._decision.round or shown or parts:
                    prepared.roll_back(gone)
        except Error as error:
            if may_pass(error):
                raise
            raise self._refused(said(error)) from None

    def _commit_all(self, prepared: PreparedTransactions, parts: Sequence[Participant]) -> None:
        there = self._marked(prepared)
        for part in parts:
            if part.partition in there or part.staged is None:
                continue
            if not prepared.commit(part.staged.home) and not prepared.committed(
                self._decision.batch, [part]
            ):
                raise LedgerError(
                    f"Batch {self._decision.batch} is decided, and the prepared transaction of "
                    f"partition {part.partition} ({part.rows:,} rows for {self._target.place}) "
                    "went while it was committed: somebody rolled it back, or another server took "
                    "this one's place. It stays decided. Start the query again: it finds out what "
                    "is there, and writes what is missing."
                )
            crash_point("S7.in_commits")

    def _write_marker(
        self,
        connection: psycopg.Connection[Any],
        prepared: PreparedTransactions,
        parts: Sequence[Participant],
        passed: set[int],
    ) -> None:
        with self._marker(connection) as (_, markers, marker):
            if self._is_applied(marker):
                return
            batch = self._decision.batch
            unmarked = {part.partition for part in parts} - prepared.committed(batch, parts)
            if unmarked:
                raise LedgerError(
                    f"Batch {batch} is decided, and partitions {sorted(unmarked)} of it are not in "
                    f"{self._target.place}, where they were a moment ago: another server took this "
                    "one's place. It stays decided. Start the query again."
                )
            now = Marker.of(marker.ledger, self._holder, batch, self._parts, passed)
            markers.write(now, self._job.job_and_ledger[0])
            prepared.forget([part.staged.home for part in parts if part.staged])
            crash_point("S7.in_table")

    def _refused(self, why: str) -> RepairNeeded:
        rows = sum(part.rows for part in self._parts)
        return RepairNeeded(
            f"Batch {self._decision.batch} of job '{self._job.job}' is decided ({rows:,} rows), "
            f"and PostgreSQL does not finish what its tasks have prepared in {self._target.place}: "
            f"{why}. Tasks that were committed before stay so, the batch stays decided, "
            "and nothing is repeated. Only the role that prepared them, or a superuser, may commit "
            "them: start the query again as that role (option 'user'): it begins with this batch."
        )

    def _prepared(self, connection: psycopg.Connection[Any]) -> PreparedTransactions:
        place = found(connection, self._target)
        return PreparedTransactions(connection, place, self._ledger.topic_id, self._job.sink)
