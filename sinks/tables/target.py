"""A table as the protocol knows it: a target whose rows are staged (sinks/staged.py). Driver."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...clients.postgres.client import connected
from ...core.errors import OptionsError, SinkError, Undecided, cut
from ...core.transaction import Decision, Participant
from ...state.ledger.job import Job
from ...state.ledger.ledger import Ledger
from ..marker import History, Marker
from ..staged_losses import check_restored, check_unequal
from .constraints import taken_over
from .marker import Markers
from .schema import columns_of, problems, staged_as
from .staging import GONE, PARTITION, StagingTables, drop, of_parts, rows_staged
from .table import TableTarget, found

if TYPE_CHECKING:
    import psycopg

    from .finisher import StagedTableRows

log = logging.getLogger(__name__)

_WAYS = (
    "the database was restored from an older copy, or is another one, or option 'table' or "
    "'stagingSchema' was changed, or somebody removed the marker"
)


@dataclass(frozen=True)
class StagedTable(TableTarget):
    """`StagedTarget` says what is asked."""

    @property
    def name(self) -> str:
        return self.place

    @property
    def counts_twice(self) -> bool:
        return not self.keys

    @property
    def how_lost(self) -> str:
        return "(its staging table is gone or was changed)"

    def check_same(self, job: Job, ledger: Ledger, *, fenced: bool) -> None:
        with connected(self.postgres) as connection:
            if not fenced:  # what was read may be older than what the table shows
                wrong = problems(connection, self) if self.columns else []
                if wrong:
                    raise OptionsError(wrong)
                return
            markers = _markers(connection, self, job, ledger)
            history = History(ledger, job.sink)
            marker = markers.read()
            # It is written before the first decision: without it another place has that, perhaps
            is_known = marker is not None or history.newest is None
            if is_known and history.accepts(marker or Marker(ledger.topic_id)):
                if marker is None:
                    markers.create()
                    markers.write(history.expected(), job.job_and_ledger[0])
                return
            # A copy of the ledger has another id than the one that it is a copy of
            others = markers.of_other_ledgers() if marker is None else []
            same = next((one for one in others if one.digest and history.accepts(one)), None)
            if same is None:
                check_restored(
                    self.place, job.job or "", marker, history, ways=_WAYS, fail=self.fail_on_loss
                )
                markers.create()
            taken = same or history.expected()
            here = replace(taken, ledger=ledger.topic_id, generation=ledger.generation)
            markers.write(here, job.job_and_ledger[0])

    def make_room(self, job: Job, ledger: Ledger, generation: int) -> None:
        kept = {
            part.staged.home
            for decision in ledger.unfinished()
            for part in decision.participants
            if part.staged
        }
        with connected(self.postgres) as connection:
            place = found(connection, self)
            staging = StagingTables(connection, place, ledger.topic_id, job.sink)
            removed = staging.remove_left(generation, kept)
            if removed:
                log.info("Removed what was staged and nothing decided: %s.", ", ".join(removed))
            if self.columns:  # not an operator's command
                columns = columns_of(connection, place)
                types = {name: staged_as(column) for name, column in columns.items()}
                constraints = taken_over(connection, place, self, columns, GONE)
                staging.make(self, types, constraints, generation, job.job_and_ledger[0])

    def check_staged(self, job: Job, batch: int, prepared: Sequence[Participant]) -> None:
        parts = [part for part in prepared if part.staged]
        if not parts:
            return
        with connected(self.postgres) as connection:
            place = found(connection, self)
            staged = rows_staged(connection, place, parts)
            lost = [part.partition for part in parts if staged.get(part.partition) != part.rows]
            if lost:
                raise Undecided(
                    f"Batch {batch} is not decided: rows of partitions {sorted(lost)} that were "
                    f"staged for {self.place} are not there any more. Nothing is visible; the "
                    "batch will be run again from the same offsets."
                )
            if self.keys and len(parts) > 1:
                self._check_keys(connection, place.beside, batch, parts)

    def _check_keys(
        self,
        connection: psycopg.Connection[Any],
        schema: str,
        batch: int,
        parts: Sequence[Participant],
    ) -> None:
        """Raise SinkError if two tasks have rows of one key: nobody knows which is the newer."""
        from psycopg import sql

        home = next(part.staged.home for part in parts if part.staged)
        keys = sql.SQL(", ").join(map(sql.Identifier, self.keys))
        twice = connection.execute(
            sql.SQL(
                "SELECT {keys} FROM {staged} s {parts} GROUP BY {keys} "
                "HAVING min({p}) <> max({p}) LIMIT 1"
            ).format(
                keys=keys,
                staged=sql.Identifier(schema, home),
                parts=of_parts(parts),
                p=sql.Identifier(PARTITION),
            )
        ).fetchone()
        if twice is not None:
            shown = ", ".join(
                f"{name}={cut(one)}" for name, one in zip(self.keys, twice, strict=True)
            )
            names = ", ".join(f"'{key}'" for key in self.keys)
            raise SinkError(
                f"Batch {batch} has rows of one key ({shown}) in several tasks, and which of them "
                "is the newest cannot be told. Nothing of the batch is decided or visible. Bring "
                f"the rows of a key together before the sink: repartition({names}); within a task "
                "the last row of a key counts."
            )

    def discard(
        self, job: Job, ledger: Ledger, batch: int, prepared: Sequence[Participant]
    ) -> None:
        decided = {decision.generation for decision in ledger.decisions.values()}
        homes = {
            part.staged.home for part in prepared if part.staged and part.generation not in decided
        }
        if not homes:
            return
        with connected(self.postgres) as connection:
            place = found(connection, self)
            for home in homes:
                drop(connection, place.beside, home)

    def check_unequal(self, decision: Decision, unequal: Sequence[Participant]) -> None:
        check_unequal(self.place, decision, unequal, fail=self.fail_on_loss)

    def rows_of(self, job: Job, ledger: Ledger, decision: Decision) -> StagedTableRows:
        from .finisher import StagedTableRows

        return StagedTableRows(self, job, ledger, decision)


def _markers(
    connection: psycopg.Connection[Any], target: TableTarget, job: Job, ledger: Ledger
) -> Markers:
    return Markers(connection, found(connection, target), job.sink, ledger.topic_id)
