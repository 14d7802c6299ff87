"""The row beside a table that says which decision it shows; it changes with the table's rows.

It names the ledger's topic by its id: where a ledger was deleted and made again, generations and
batches begin again, and numbers alone would take a new decision for an applied one. What it says of
the decision is compared with the ledger before anything is applied, so that a database that was
restored from an older copy is found.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import OutcomeUnknown
from ...core.transaction import Decision, DecisionState, Participant
from ...state.ledger.ledger import Ledger
from .table import Place

if TYPE_CHECKING:
    import psycopg

TABLE = "eo_kafka_batches"
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
_WRITE = """
INSERT INTO {} (ledger, sink, target, job, generation, batch, round, decided, digest, passed)
VALUES ({})
ON CONFLICT (ledger, sink, target) DO UPDATE SET generation = EXCLUDED.generation,
    batch = EXCLUDED.batch, round = EXCLUDED.round, decided = EXCLUDED.decided,
    digest = EXCLUDED.digest, passed = EXCLUDED.passed, written = now()
"""


@dataclass(frozen=True)
class Marker:
    """What a table shows: of batch `batch` in round `round` what the decision of generation
    `decided` names, but for the partitions in `passed`. Drivers of a generation before `generation`
    are shut out."""

    ledger: str
    generation: int = 0
    batch: int | None = None
    round: int | None = None
    decided: int | None = None
    digest: str | None = None
    passed: Sequence[int] = ()

    @classmethod
    def of(
        cls,
        ledger: str,
        generation: int,
        batch: int,
        parts: Sequence[Participant],
        passed: Collection[int] = (),
    ) -> Marker:
        """After `parts` of a batch, but those in `passed`."""
        first = parts[0]
        digest = _digest(parts, passed)
        whose = (batch, first.round, first.generation)
        return cls(ledger, generation, *whose, digest, sorted(passed))

    def shows(self, batch: int, parts: Sequence[Participant]) -> bool:
        """Whether these are the newest of the table."""
        if not parts:
            return False
        whose = (self.batch, self.round, self.decided)
        return whose == (batch, parts[0].round, parts[0].generation) and self.digest == _digest(
            parts, self.passed
        )


def newest_parts(decision: Decision, before_round: int | None = None) -> list[Participant]:
    """The participants of a decision with rows for the table, of its newest round that has any;
    of those before `before_round`."""
    parts = [
        part
        for part in decision.participants
        if part.staged and (before_round is None or part.round < before_round)
    ]
    newest = max((part.round for part in parts), default=0)
    return [part for part in parts if part.round == newest]


class History:
    """What a table should show, by the ledger."""

    def __init__(self, ledger: Ledger, sink: str, newest: Decision | None = None) -> None:
        """`newest`: a decision that the ledger may lack yet."""
        known = ledger.of_sink(sink)
        if newest is not None:
            known[newest.batch] = newest
        self._ledger = ledger
        self._written = [
            found
            for _, found in sorted(known.items())
            if found.state is not DecisionState.VOID and newest_parts(found)
        ]

    @property
    def generation(self) -> int:
        """The ledger's."""
        return self._ledger.generation

    @property
    def newest(self) -> Decision | None:
        """The newest decision that has rows for the table."""
        return self._written[-1] if self._written else None

    def accepts(self, marker: Marker) -> bool:
        """Whether the table may show this: the newest decision, or, if that may not be applied yet,
        what was there before it."""
        newest = self.newest
        if newest is None:  # nothing yet, or since a reset of the ledger
            return marker.decided is None or marker.decided <= self._ledger.generation
        if marker.shows(newest.batch, newest_parts(newest)):
            return True
        if newest.state is not DecisionState.DECIDED:
            return False
        before, parts = self._before(newest)
        if before is not None:
            return marker.shows(before.batch, parts)
        return marker.decided is None or marker.decided < newest.generation

    def expected(self) -> Marker:
        """What it should show at least."""
        here, generation, newest = self._ledger.topic_id, self._ledger.generation, self.newest
        if newest is not None and newest.state is not DecisionState.DECIDED:
            return Marker.of(here, generation, newest.batch, newest_parts(newest))
        before, parts = self._before(newest) if newest else (None, [])
        if before is None:
            return Marker(here, generation)
        return Marker.of(here, generation, before.batch, parts)

    def _before(self, newest: Decision) -> tuple[Decision | None, list[Participant]]:
        earlier = newest_parts(newest, before_round=newest.round)
        if earlier:
            return newest, earlier
        before = self._written[-2] if len(self._written) > 1 else None
        return before, newest_parts(before) if before else []


class Markers:
    """The markers of one sink and table. Its methods raise what psycopg does."""

    def __init__(
        self, connection: psycopg.Connection[Any], place: Place, sink: str, ledger: str
    ) -> None:
        from psycopg import sql

        if not ledger:
            raise OutcomeUnknown(
                "Kafka did not say the id of the ledger's topic, by which the table knows it. "
                "Start the query again."
            )
        self._connection = connection
        self._place, self._sink, self._ledger = place, sink, ledger
        self._table = sql.Identifier(place.beside, TABLE)

    def create(self) -> None:
        """The table of markers, if it is not there."""
        from psycopg import errors, sql

        if self._exists():
            return
        try:
            self._connection.execute(sql.SQL(_CREATE).format(self._table))
        except errors.UniqueViolation:  # somebody else made it at the same moment
            if not self._exists():
                raise

    def read(self, *, lock: bool = False) -> Marker | None:
        """Ours; with `lock`, nobody else changes it until the transaction ends."""
        mine = [one for one in self._all(lock=lock) if one.ledger == self._ledger]
        return mine[0] if mine else None

    def of_other_ledgers(self) -> list[Marker]:
        """Of ledgers that had other topics."""
        return [one for one in self._all() if one.ledger != self._ledger]

    def write(self, marker: Marker, job: str) -> None:
        """Ours from now on."""
        from psycopg import sql

        fields = (marker.batch, marker.round, marker.decided, marker.digest, list(marker.passed))
        values = (self._ledger, self._sink, self._place.words, job, marker.generation, *fields)
        written = sql.SQL(", ").join(map(sql.Literal, values))
        self._connection.execute(sql.SQL(_WRITE).format(self._table, written))

    def _exists(self) -> bool:
        asked = self._connection.execute(
            "SELECT EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s)",
            (self._place.beside, TABLE),
        ).fetchone()
        return asked is not None and bool(asked[0])

    def _all(self, *, lock: bool = False) -> list[Marker]:
        from psycopg import sql

        if not self._exists():
            return []
        whose = (sql.Literal(self._sink), sql.Literal(self._place.words))
        asked = sql.SQL(_READ).format(self._table, *whose)
        if lock:
            asked += sql.SQL(" AND ledger = {} FOR UPDATE").format(sql.Literal(self._ledger))
        rows = self._connection.execute(asked).fetchall()
        return [Marker(*row) for row in rows]


def _digest(parts: Sequence[Participant], passed: Collection[int]) -> str:
    """Of what is applied of `parts`."""
    applied = sorted(
        (part.partition, part.rows, part.digest, part.staged.attempt)
        for part in parts
        if part.staged and part.partition not in passed
    )
    return hashlib.sha256(json.dumps(applied).encode()).hexdigest()[:32]
