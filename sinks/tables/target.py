"""A table as the protocol knows it: a target whose rows are staged (sinks/staged.py). Driver."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ...clients.postgres.client import connected
from ...clients.postgres.pooling import check_own_session
from ...core.errors import OptionsError, RepairNeeded, SinkError, Undecided, cut
from ...core.transaction import Decision, Participant
from ...state.ledger.job import Job
from ...state.ledger.ledger import Ledger
from ..marker import History, Marker, needed, newest_parts
from ..options import TWO_PHASE
from ..staged_losses import check_begins, check_restored, check_unequal
from . import lagging
from .constraints import taken_over
from .marker import LIMITS, Markers
from .prepared import PreparedTransactions, is_prepared
from .schema import columns_of, of_rows, problems, staged_as
from .staging import GONE, PARTITION, StagingTables, drop, not_staged, of_parts
from .table import TableTarget, found

if TYPE_CHECKING:
    import psycopg

    from ..options import SinkOptions
    from .decided import DecidedTableRows
    from .table import Place

log = logging.getLogger(__name__)

_PUBLISHED = """
SELECT pubname::text FROM pg_publication WHERE puballtables AND pubinsert
"""
_PUBLISHED_BY_SCHEMA = """
UNION SELECT p.pubname::text FROM pg_publication p
JOIN pg_publication_namespace s ON s.pnpubid = p.oid JOIN pg_namespace n ON n.oid = s.pnnspid
WHERE p.pubinsert AND n.nspname = %s
"""
_looked_at: set[tuple[TableTarget, Place]] = set()
_WAYS = (
    "a replica that lags behind has taken the server's place, the database was restored from an "
    "older copy, or is another one, or option 'table' or 'stagingSchema' was changed, or somebody "
    "removed the marker"
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
        return "(its staging table, or prepared transaction, is gone or was changed)"

    def check_same(self, job: SinkOptions, ledger: Ledger, *, fenced: bool) -> None:
        with connected(self.postgres) as connection:
            if not fenced:  # what was read may be older than what the table shows
                check_own_session(connection, self.postgres)
                wrong = problems(connection, self) if self.columns else []
                if wrong:
                    raise OptionsError(wrong)
                return
            markers = _markers(connection, self, job, ledger)
            history, name = History(ledger, job.sink), job.job_and_ledger[0]
            marker = markers.read()
            # It is written before the first decision: without it another place has that, perhaps
            is_known = marker is not None or history.newest is None
            if is_known and history.accepts(marker or Marker(ledger.topic_id)):
                if ledger.owner is None and (marker is None or marker.batch is None):
                    shown = markers.newest_of(name)
                    check_begins(self.place, job, ledger, shown, fail=self.fail_on_loss)
                if marker is None:
                    markers.create()
                    markers.begin(None, history.expected(), name)
                return
            # A copy of the ledger has another id than the one that it is a copy of
            others = markers.of_other_ledgers() if marker is None else []
            same = next((one for one in others if one.digest and history.accepts(one)), None)
            if same is None:
                if self._lacks(connection, markers, marker, job, ledger):
                    return  # once it has a generation: catch_up
                markers.create()
            taken = same or history.expected()
            here = replace(taken, ledger=ledger.topic_id, generation=ledger.generation)
            with connection.transaction():
                connection.execute(LIMITS)
                markers.begin(marker, here, name)
                markers.forget_others(name)

    def _lacks(
        self,
        connection: psycopg.Connection[Any],
        markers: Markers,
        marker: Marker | None,
        job: Job,
        ledger: Ledger,
    ) -> list[lagging.Lagging]:
        """What it lacks of settled batches and can be put in. Raises LedgerError if it lacks more,
        or shows what the ledger does not know, unless losses are accepted."""
        left = lagging.look(connection, self, job, ledger, marker)
        if not lagging.may_finish(left):
            name = job.job_and_ledger[0]
            check_restored(
                self.place,
                job.job or "",
                marker or markers.newest_of(name),
                History(ledger, job.sink),
                ways=_WAYS,
                waits=" ".join(one.words for one in left),
                fail=self.fail_on_loss,
            )
        return left

    def catch_up(self, job: Job, ledger: Ledger) -> None:
        with connected(self.postgres) as connection:
            markers = _markers(connection, self, job, ledger)
            marker = markers.read()
            if marker is not None and History(ledger, job.sink).accepts(marker):
                return
            left = self._lacks(connection, markers, marker, job, ledger)
        lagging.finish(self, job, ledger, left)

    def is_same(self, place: str, sink: str, ledger: str | None) -> bool:
        with connected(self.postgres) as connection:
            here = found(connection, self)
            if here.words != place:
                return False
            return ledger is None or Markers(connection, here, sink, ledger).read() is not None

    def make_room(self, job: Job, ledger: Ledger, generation: int) -> None:
        name = job.job_and_ledger[0]
        with connected(self.postgres) as connection:
            place = found(connection, self)
            markers = Markers(connection, place, job.sink, ledger.topic_id)
            marker = markers.read()
            # Another server may have taken this one's place since the look at the start
            kept = needed(ledger, (marker.decided if marker else 0) or 0)
            staging = StagingTables(connection, place, ledger.topic_id, job.sink)
            removed = staging.remove_left(generation, kept)
            prepared = _prepared(connection, place, job, ledger)
            if prepared.are_used:  # also if the option was another one since
                with connection.transaction():
                    connection.execute(LIMITS)
                    markers.shut_out(generation, name)
                removed += prepared.shut_out(kept, 0, generation)
                self._check_strays(prepared, prepared.strays(kept, generation))
            if removed:
                log.info("Removed what was staged and nothing decided: %s.", ", ".join(removed))
            if not self.columns:  # an operator's command
                return
            _warn_of_publications(connection, self, place)
            if self.commit == TWO_PHASE:
                _warn_of_room(connection, job, ledger)
                prepared.open_gate(generation, markers, name)
                return
            columns = columns_of(connection, place)
            if wrong := list(of_rows(self, columns)):  # altered since the look at the start
                raise OptionsError(wrong)
            types = {name: staged_as(column) for name, column in columns.items()}
            constraints = taken_over(connection, place, self, columns, GONE)
            staging.make(self, types, constraints, generation, name)

    def _check_strays(
        self, prepared: PreparedTransactions, strays: Sequence[tuple[str, int]]
    ) -> None:
        """Raise RepairNeeded if somebody has committed what nothing decided."""
        rows = sum(count for _, count in strays if count > 0)
        names = [name for name, count in strays if count > 0]
        if names:
            sentence = (
                f"{len(names)} prepared transactions were committed by hand though nothing had "
                f"decided them ({', '.join(names[:3])}): their {rows:,} rows are in {self.place}, "
                "and the batch will be written as a whole."
            )
            if self.fail_on_loss:
                raise RepairNeeded(
                    f"{sentence} Nothing was written now. Delete these rows, or leave them to be "
                    "there twice; then delete the names from "
                    f"'{prepared.place.beside}.eo_kafka_prepared' and start the query again."
                )
            log.warning("%s Going on, as 'failOnDataLoss' is false.", sentence)
        prepared.forget([name for name, _ in strays])

    def check_staged(
        self, job: Job, ledger: Ledger, batch: int, prepared: Sequence[Participant]
    ) -> None:
        parts = [part for part in prepared if part.staged]
        if not parts:
            return
        with connected(self.postgres) as connection:
            place = found(connection, self)
            waiting = [part for part in parts if is_prepared(part)]
            if waiting:
                # They stay: no attempt of a task is left that could end another one's
                known = _prepared(connection, place, job, ledger)
                known.shut_gate(max(part.generation for part in waiting))
                listed = known.listed()
                gone = [p.partition for p in waiting if p.staged and p.staged.home not in listed]
                self._check_lost(batch, gone)
                return
            self._check_lost(batch, not_staged(connection, place, parts))
            if self.keys and len(parts) > 1:
                self._check_keys(connection, place.beside, batch, parts)

    def _check_lost(self, batch: int, lost: Collection[int]) -> None:
        if lost:
            raise Undecided(
                f"Batch {batch} is not decided: rows of partitions {sorted(lost)} that were "
                f"staged for {self.place} are not there any more. Nothing is visible; the "
                "batch will be run again from the same offsets."
            )

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

    def discard(self, job: Job, ledger: Ledger, batch: int, left: Sequence[Participant]) -> None:
        with connected(self.postgres) as connection:
            place = found(connection, self)
            for home in {p.staged.home for p in left if p.staged and not is_prepared(p)}:
                drop(connection, place.beside, home)
            # A newer driver has done so, and its tasks hold
            for mine in {p.generation for p in left if is_prepared(p)} & {ledger.generation}:
                _prepared(connection, place, job, ledger).shut_out((), mine, mine)

    def check_unequal(self, decision: Decision, unequal: Sequence[Participant]) -> None:
        check_unequal(self.place, decision, unequal, fail=self.fail_on_loss)

    def rows_of(self, job: Job, ledger: Ledger, decision: Decision) -> DecidedTableRows:
        """As its tasks have left them, whatever option `commit` says now."""
        from .finisher import StagedTableRows
        from .prepared_finisher import PreparedTableRows

        if any(is_prepared(part) for part in newest_parts(decision)):
            return PreparedTableRows(self, job, ledger, decision)
        return StagedTableRows(self, job, ledger, decision)


def _markers(
    connection: psycopg.Connection[Any], target: TableTarget, job: Job, ledger: Ledger
) -> Markers:
    return Markers(connection, found(connection, target), job.sink, ledger.topic_id)


def _prepared(
    connection: psycopg.Connection[Any], place: Place, job: Job, ledger: Ledger
) -> PreparedTransactions:
    return PreparedTransactions(connection, place, ledger.topic_id, job.sink)


def _warn_of_publications(
    connection: psycopg.Connection[Any], target: TableTarget, place: Place
) -> None:
    """If what is made for each batch is sent to subscribers. Once a process."""
    if (target, place) in _looked_at:
        return
    _looked_at.add((target, place))
    found = connection.execute(_PUBLISHED).fetchall()
    if connection.info.server_version >= 150_000:
        found = connection.execute(_PUBLISHED + _PUBLISHED_BY_SCHEMA, [place.beside]).fetchall()
    for (name,) in found:
        log.warning(
            "Publication '%s' takes in every table of the database or of schema '%s', also those "
            "that eo-kafka makes there for each batch: a subscriber that lacks them stops, and one "
            "that has them gets these rows, too. Publish table by table (CREATE PUBLICATION ... "
            "FOR TABLE), or name a schema that is not published in option 'stagingSchema'. For "
            "Debezium, '.*[.]eo_kafka_.*' in 'table.exclude.list' does.",
            cut(name),
            place.beside,
        )


def _warn_of_room(connection: psycopg.Connection[Any], job: Job, ledger: Ledger) -> None:
    """If the tasks of the newest batch would not find room, each with one that is repeated."""
    known = ledger.of_sink(job.sink)
    tasks = len(known[max(known)].participants) if known else 0
    row = connection.execute("SHOW max_prepared_transactions").fetchone()
    if row is not None and int(row[0]) < 2 * tasks:
        log.warning(
            "max_prepared_transactions is %s, and the last batch had %d tasks with rows: each "
            "needs one, and another one if it is repeated. Set it to %d at least.",
            row[0],
            tasks,
            2 * tasks,
        )
