"""S7 of a decision whose rows wait for a table, in whichever way: who may carry it out, and whether
the table has it already.

Runs on the driver; safe to repeat, by anybody: the marker is looked at before anything is done,
under a lock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...clients.postgres.client import connected, waited_too_long, where_waited
from ...core.errors import Fenced, LedgerError, ReadTimeout, RepairNeeded, cut
from ...core.transaction import Decision, Participant
from ...state.ledger.job import Job
from ...state.ledger.ledger import Ledger
from ..insisting import insisting
from ..marker import History, Marker
from ..staged import parts_now
from ..staged_losses import check_gone_with_topic
from .marker import LIMITS, Markers
from .table import Place, TableTarget, found

if TYPE_CHECKING:
    import psycopg

PAUSE_S = 0.2
_WHO = (
    "SELECT pid, relation::regclass, mode, granted, state, xact_start, query FROM pg_locks "
    "LEFT JOIN pg_stat_activity USING (pid) JOIN pg_class c ON c.oid = relation "
    "WHERE c.oid = '{}'::regclass OR relname IN ('eo_kafka_batches', 'eo_kafka_prepared')"
)


class DecidedTableRows(ABC):
    """The rows of one decision. Its methods raise Fenced, OutcomeUnknown, LedgerError."""

    def __init__(self, target: TableTarget, job: Job, ledger: Ledger, decision: Decision) -> None:
        self._target = target
        self._job = job
        self._ledger = ledger
        self._decision = decision
        self._holder = ledger.generation
        self._parts = parts_now(decision)
        self.begun = False

    def take(self) -> None:
        """Shut out every earlier driver, and learn whether it is applied."""
        self._insisting(self._take)

    def in_part(self) -> set[int]:
        """None: what a task has written is one transaction."""
        return set()

    def apply(self, but: Collection[int]) -> None:
        """Everything, of all partitions `but` these, unless it is applied."""
        parts = [part for part in self._parts if part.partition not in but]
        passed = {part.partition for part in self._parts} - {part.partition for part in parts}
        self._insisting(lambda connection: self._apply(connection, parts, passed))

    @abstractmethod
    def lost(self) -> set[int]:
        """The partitions that have rows which are neither applied nor waiting any more."""

    @abstractmethod
    def not_applied(self) -> tuple[Participant, ...]:
        """The participants that have rows which are not applied."""

    @abstractmethod
    def remove(self) -> None:
        """S8: nobody needs it any more."""

    @abstractmethod
    def _apply(
        self, connection: psycopg.Connection[Any], parts: Sequence[Participant], passed: set[int]
    ) -> None: ...

    def _insisting(self, do: Callable[[psycopg.Connection[Any]], None]) -> None:
        from psycopg import Error

        held: list[Error] = []

        def once() -> None:
            with connected(self._target.postgres) as connection:
                try:
                    do(connection)
                except Error as error:
                    if not waited_too_long(error):
                        raise
                    held.append(error)

        insisting(once, self._decision.batch, self._target.place, (ReadTimeout,), PAUSE_S)
        if held:
            raise self._held_up(where_waited(held[0]))

    def _take(self, connection: psycopg.Connection[Any]) -> None:
        with self._marker(connection) as (_, markers, marker):
            self.begun = self._is_applied(marker)
            if marker.generation != self._holder:
                markers.write(replace(marker, generation=self._holder), self._job.job_and_ledger[0])

    @contextmanager
    def _marker(
        self, connection: psycopg.Connection[Any]
    ) -> Iterator[tuple[Place, Markers, Marker]]:
        """A transaction that holds our marker. Raises Fenced, LedgerError."""
        with connection.transaction():
            connection.execute(LIMITS)
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

    def _is_shown(self, markers: Markers, marker: Marker, passed: set[int]) -> bool:
        """Whether the table has it; if so, `passed` is noted: others may have been given up."""
        if not self._is_applied(marker):
            return False
        if passed - set(marker.passed):
            back = self._taken_back(marker, passed | set(marker.passed))
            markers.write(back, self._job.job_and_ledger[0])
        return True

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

    def _held_up(self, why: str) -> ReadTimeout:
        """Not tried again here: it has waited for as long as LIMITS says."""
        table = cut(self._target.table).replace("'", "''")
        return ReadTimeout(
            f"Batch {self._decision.batch} of job '{self._job.job}' is decided, and "
            f"{self._target.place} does not show it yet: PostgreSQL has ended the statement, which "
            f"took too long ({why}). Another session, or a prepared transaction, has a lock on the "
            "table, a row of it, its marker or the batch's marks, or waits for one that keeps all "
            "others out, as VACUUM FULL does. The batch stays decided. See who: "
            f"{_WHO.format(table)}. Have that session end, one that waits (granted is false), too: "
            "SELECT pg_cancel_backend(pid). A row without a pid is a prepared transaction: leave "
            "those that begin with eo_kafka_prepared_ in pg_prepared_xacts, their jobs end them. "
            "Then start the query again: it begins with this batch."
        )

    def _refused(self, why: str) -> RepairNeeded:
        rows = sum(part.rows for part in self._parts)
        return RepairNeeded(
            f"Batch {self._decision.batch} of job '{self._job.job}' is decided ({rows:,} rows), "
            f"and {self._target.place} does not take it: {why}. Nothing of it is in the "
            "table, and it stays decided. Change the table so that it takes these rows (a "
            "column's type, its constraint, trigger or privileges, or the row that stands in the "
            "way), and start the query again: it begins with this batch."
        )
