"""The table of markers beside a table: a row for each that writes it (sinks/marker.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...core.errors import Fenced, LedgerError, OutcomeUnknown
from ..marker import Marker
from .table import Place, is_beside, make_beside

if TYPE_CHECKING:
    from typing import LiteralString

    import psycopg
    from psycopg import sql

TABLE = "eo_kafka_batches"
# A driver that stands still in the transaction loses it, and its successor waits for that.
LIMITS = "SET LOCAL idle_in_transaction_session_timeout = '15s'; SET LOCAL lock_timeout = '60s'"
_CREATE = """
CREATE TABLE IF NOT EXISTS {} (
    ledger text, sink text, target text,
    job text NOT NULL,
    generation bigint NOT NULL,
    batch bigint, round int, decided bigint, digest text, passed int[] NOT NULL,
    written timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (ledger, sink, target))
"""
_READ = """
SELECT ledger, generation, batch, round, decided, digest, passed FROM {}
WHERE sink = {} AND target = {}
"""
_FORGET = "DELETE FROM {} WHERE sink = {} AND target = {} AND job = {} AND ledger <> {}"
_INSERT = """
INSERT INTO {} (ledger, sink, target, job, generation, batch, round, decided, digest, passed)
VALUES ({}) ON CONFLICT (ledger, sink, target) """
_NOTHING = "DO NOTHING"
_UPDATE = """DO UPDATE SET generation = EXCLUDED.generation,
    batch = EXCLUDED.batch, round = EXCLUDED.round, decided = EXCLUDED.decided,
    digest = EXCLUDED.digest, passed = EXCLUDED.passed, written = now()
"""


class Markers:
    """The markers of one sink and table. Its methods raise what psycopg does."""

    def __init__(
        self, connection: psycopg.Connection[Any], place: Place, sink: str, ledger: str
    ) -> None:
        from psycopg import sql

        if not ledger:
            raise OutcomeUnknown(
                "Kafka did not say the id of the ledger's topic, by which the table knows it. "
                "Start the query again. A Kafka whose inter.broker.protocol.version is below 2.8 "
                "has none: raise it first."
            )
        self._connection = connection
        self._place, self._sink, self._ledger = place, sink, ledger
        self._table = sql.Identifier(place.beside, TABLE)

    def create(self) -> None:
        """The table of markers, if it is not there."""
        make_beside(self._connection, self._place, TABLE, _CREATE)

    def shut_out(self, generation: int, job: str) -> None:
        """Every driver before this one, in a transaction of the caller's, which has the marker's
        lock from then on. Raises Fenced, LedgerError."""
        marker = self.read(lock=True)
        if marker is None:
            raise LedgerError(
                f"The marker of table '{self._place.words}' in '{self._place.beside}.{TABLE}' went "
                "while a batch began. Start the query again."
            )
        if marker.generation > generation:
            raise Fenced(
                f"Generation {marker.generation} of job '{job}' has taken over table "
                f"'{self._place.words}' from {generation}. This driver stops and has changed "
                "nothing in it."
            )
        self.write(replace(marker, generation=generation), job)

    def read(self, *, lock: bool = False) -> Marker | None:
        """Ours; with `lock`, nobody else changes it until the transaction ends."""
        mine = [one for one in self._all(lock=lock) if one.ledger == self._ledger]
        return mine[0] if mine else None

    def of_other_ledgers(self) -> list[Marker]:
        """Of ledgers that had other topics."""
        return [one for one in self._all() if one.ledger != self._ledger]

    def newest_of(self, job: str) -> Marker | None:
        """What the table shows of a job by another ledger, whichever that was."""
        from psycopg import sql

        newest = sql.SQL(" AND job = {} AND ledger <> {} ORDER BY written DESC LIMIT 1")
        found = self._asked(newest.format(sql.Literal(job), sql.Literal(self._ledger)))
        return found[0] if found else None

    def forget_others(self, job: str) -> None:
        """Of the job's other ledgers: one that comes back would find its old marker, and not what
        the table shows since."""
        from psycopg import sql

        values = map(sql.Literal, (self._sink, self._place.words, job, self._ledger))
        self._connection.execute(sql.SQL(_FORGET).format(self._table, *values))

    def begin(self, before: Marker | None, marker: Marker, job: str) -> None:
        """Ours from now on, unless another one is there than was read as `before`: that is a newer
        driver's, which has perhaps applied a batch. In a transaction of the caller's, if any was
        read."""
        if before is None:
            self._write(_INSERT + _NOTHING, marker, job)
        elif self.read(lock=True) == before:
            self.write(marker, job)

    def write(self, marker: Marker, job: str) -> None:
        """Ours from now on."""
        self._write(_INSERT + _UPDATE, marker, job)

    def _write(self, words: LiteralString, marker: Marker, job: str) -> None:
        from psycopg import sql

        fields = (marker.batch, marker.round, marker.decided, marker.digest, list(marker.passed))
        values = (self._ledger, self._sink, self._place.words, job, marker.generation, *fields)
        written = sql.SQL(", ").join(map(sql.Literal, values))
        self._connection.execute(sql.SQL(words).format(self._table, written))

    def _all(self, *, lock: bool = False) -> list[Marker]:
        from psycopg import sql

        mine = sql.SQL(" AND ledger = {} FOR UPDATE").format(sql.Literal(self._ledger))
        return self._asked(mine if lock else sql.SQL(""))

    def _asked(self, which: sql.Composable) -> list[Marker]:
        from psycopg import sql

        if not is_beside(self._connection, self._place, TABLE):
            return []
        whose = (sql.Literal(self._sink), sql.Literal(self._place.words))
        asked = sql.SQL(_READ).format(self._table, *whose)
        rows = self._connection.execute(asked + which).fetchall()
        return [Marker(*row) for row in rows]
