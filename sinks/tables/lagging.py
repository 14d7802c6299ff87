"""What a table lacks of batches that are DONE, and what of that is there: a replica that lags has
taken the server's place. Driver, S1.

Such a replica has a beginning of what the server wrote: perhaps the staged rows or the prepared
transactions of a batch, or its rows and their marks, and not its marker. Then these are all there
is of the batch: they are put in, as its S7 did (tests/models/prepared_model.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...clients.postgres.client import connected
from ...core.errors import RepairNeeded
from ...core.transaction import Decision, Participant
from ...state.ledger.job import Job
from ...state.ledger.ledger import Ledger
from ..marker import History, Marker, may_be_forgotten, needed, newest_parts
from .marker import LIMITS, Markers
from .prepared import PREFIX, PreparedTransactions, is_prepared, parsed
from .staging import StagingTables, not_staged
from .table import found

if TYPE_CHECKING:
    import psycopg

    from .target import StagedTable

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Lagging:
    """A decision that the table does not show, by partitions: whose rows are in the table, by their
    marks, and whose wait beside it. `is_sure`: all others are neither; or nobody knows."""

    step: Decision
    marked: set[int]
    waiting: set[int]
    is_sure: bool

    @property
    def parts(self) -> list[Participant]:
        return newest_parts(self.step)

    @property
    def lost(self) -> set[int]:
        return {part.partition for part in self.parts} - self.marked - self.waiting

    @property
    def words(self) -> str:
        """What is where, as sentences."""
        kinds = [
            (self.marked, "are in the table, and only its marker does not say so"),
            (self.waiting, "wait beside it"),
            (self.lost, "are neither" if self.is_sure else "are in the table, or lost"),
        ]
        found = [
            f"those of partitions {sorted(which)} "
            f"({sum(part.rows for part in self.parts if part.partition in which):,}) {words}"
            for which, words in kinds
            if which
        ]
        return f"Of the rows of batch {self.step.batch}, {', '.join(found)}."


def look(
    connection: psycopg.Connection[Any],
    target: StagedTable,
    job: Job,
    ledger: Ledger,
    marker: Marker | None,
) -> list[Lagging]:
    """What is settled and not in the table, which shows this, if anything of it is beside it.
    Raises RepairNeeded if that cannot be known and rows wait there."""
    place = found(connection, target)
    steps = History(ledger, job.sink).lacking(marker)
    prepared = PreparedTransactions(connection, place, ledger.topic_id, job.sink)
    if steps is None:
        _check_nothing_waits(target, prepared, job, ledger, marker)
        return []
    left = [_found(prepared, one, marker) for one in steps]
    return left if any(one.marked | one.waiting or not one.is_sure for one in left) else []


def _found(prepared: PreparedTransactions, step: Decision, marker: Marker | None) -> Lagging:
    parts = newest_parts(step)
    if not any(map(is_prepared, parts)):
        gone = not_staged(prepared.connection, prepared.place, parts)
        return Lagging(step, set(), {part.partition for part in parts} - gone, True)
    # In this order: one that is committed in between has gone from the list and is marked
    listed = prepared.listed(PREFIX)
    marked = prepared.committed(step.batch, parts)
    home = next(part.staged.home for part in parts if part.staged)
    whose = parsed(home)
    is_older = marker is not None and marker.generation < step.generation  # than its S1
    is_kept = whose is not None and prepared.is_kept(whose[0])
    waiting = {part.partition for part in parts if part.staged and part.staged.home in listed}
    return Lagging(step, marked, waiting - marked, is_kept or is_older)


def _check_nothing_waits(
    target: StagedTable,
    prepared: PreparedTransactions,
    job: Job,
    ledger: Ledger,
    marker: Marker | None,
) -> None:
    place, shown = prepared.place, (marker.decided if marker else 0) or 0
    staging = StagingTables(prepared.connection, place, ledger.topic_id, prepared.sink)
    kept = needed(ledger, shown)
    names = {**staging.there(), **prepared.of_generations()}
    waiting = sorted(
        name
        for name, generation in names.items()
        if name in kept
        or (generation > shown and may_be_forgotten(ledger, prepared.sink, generation))
    )
    if waiting:
        raise RepairNeeded(
            f"{target.place} shows what the ledger of job '{job.job}' does not know, and "
            f"rows of decided batches may wait beside it: {', '.join(waiting[:3])}. Nothing was "
            "changed. 'eo-kafka txn list --table-config FILE' shows all, with batches and times. "
            "Look whether their rows are in the table. What is not there put in by hand: COMMIT "
            "PREPARED 'NAME', or INSERT from the staging table. Then drop the staging tables, or "
            "ROLLBACK PREPARED the others, and start the query again."
        )


def may_finish(left: Sequence[Lagging]) -> bool:
    """Whether all that the table lacks is there: one batch, right after what it shows."""
    return len(left) == 1 and left[0].is_sure and not left[0].lost


def finish(target: StagedTable, job: Job, ledger: Ledger, left: Sequence[Lagging]) -> None:
    """Put in what waits, each partition once, and have the marker say so; of what is lost it says
    that it was passed over."""
    for one in left:
        batch = one.step.batch
        older = {at: found for at, found in ledger.decisions.items() if at[1] < batch}
        then = replace(ledger, decisions=older)
        if not one.marked | one.waiting:
            continue
        log.warning(
            "The ledger has batch %d as DONE, and %s does not show it: a replica that lags behind "
            "has taken the server's place, or it was restored from an older copy. %s What waits is "
            "put in now, nothing is written twice, and the marker says so.",
            *(batch, target.place, one.words),
        )
        _put_forward(target, job, ledger, History(then, job.sink, one.step))
        rows = target.rows_of(job, then, one.step)
        rows.take()
        rows.apply(but=one.lost)
    _put_forward(target, job, ledger, History(ledger, job.sink))


def _put_forward(target: StagedTable, job: Job, ledger: Ledger, history: History) -> None:
    """The marker, over what is lost."""
    with connected(target.postgres) as connection:
        markers = Markers(connection, found(connection, target), job.sink, ledger.topic_id)
        marker = markers.read()
        if marker is None or not history.accepts(marker):
            expected = replace(history.expected(), generation=ledger.generation)
            with connection.transaction():
                connection.execute(LIMITS)
                markers.begin(marker, expected, job.job_and_ledger[0])
