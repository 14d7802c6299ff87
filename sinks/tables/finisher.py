"""S7 of rows that are staged for a table: one transaction for the rows and the marker that says so.

Runs on the driver; safe to repeat, by anybody: the marker is looked at before anything is done,
under a lock that only this transaction holds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from ...clients.postgres.client import connected, may_pass, said
from ...core.crash_points import crash_point
from ...core.errors import LedgerError
from ...core.transaction import Participant
from ..marker import Marker
from .decided import DecidedTableRows
from .marker import Markers
from .moving import altered, move
from .staging import ROW, columns_staged, drop, not_staged, of_parts
from .table import found

if TYPE_CHECKING:
    import psycopg


class StagedTableRows(DecidedTableRows):
    """Rows in a staging table."""

    def lost(self) -> set[int]:
        """The partitions that have rows which are neither applied nor staged any more."""
        if self.begun:
            return set()
        with connected(self._target.postgres) as connection:
            return not_staged(connection, found(connection, self._target), self._parts)

    def not_applied(self) -> tuple[Participant, ...]:
        """All participants, or none: they are applied in one transaction."""
        return () if self.begun else tuple(self._parts)

    def remove(self) -> None:
        """S8: nobody needs it any more, unless another server has taken this one's place since S7
        and lacks the batch: then the next start puts it in."""
        with connected(self._target.postgres) as connection, connection.transaction():
            place = found(connection, self._target)
            marker = Markers(connection, place, self._job.sink, self._ledger.topic_id).read()
            if marker is None or not self._is_applied(marker):
                return
            for home in {part.staged.home for part in self._parts if part.staged}:
                drop(connection, place.beside, home)

    def _apply(
        self, connection: psycopg.Connection[Any], parts: Sequence[Participant], passed: set[int]
    ) -> None:
        from psycopg import Error, sql

        try:
            with self._marker(connection) as (place, markers, marker):
                if self._is_shown(markers, marker, passed) or not parts:
                    return
                if gone := not_staged(connection, place, parts):
                    raise self._gone(gone)
                home = next(part.staged.home for part in parts if part.staged)
                columns = columns_staged(connection, place, home)
                self._check_options(columns)
                staged = sql.Identifier(place.beside, home)
                rows = sum(part.rows for part in parts)
                move(connection, self._target, columns, place, staged, of_parts(parts), rows)
                if why := altered(connection, self._target, place, home, of_parts(parts)):
                    raise self._refused(why)
                now = Marker.of(
                    marker.ledger, self._holder, self._decision.batch, self._parts, passed
                )
                markers.write(now, self._job.job_and_ledger[0])
                crash_point("S7.in_table")
        except Error as error:
            if may_pass(error):
                raise
            raise self._refused(said(error)) from None

    def _gone(self, partitions: Collection[int]) -> LedgerError:
        return LedgerError(
            f"Batch {self._decision.batch} is decided, and rows of partitions {sorted(partitions)} "
            f"of it that were staged for {self._target.place} a moment ago are not there any more: "
            "another server took this one's place, or somebody removed them. Nothing was written, "
            "and it stays decided. Start the query again: it writes the batch again."
        )

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
