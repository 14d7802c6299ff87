"""A map as the protocol knows it: a target whose rows are staged (sinks/staged.py). Driver.

Are all there, is it still the same map, and what is left over?
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...core.errors import LedgerError, Undecided, cut
from ...core.transaction import Decision, Participant
from ...state.ledger.job import Job
from ...state.ledger.ledger import Ledger
from ...state.snapshots.checkpoint import open_checkpoint
from ...state.snapshots.offset_log import batches_in
from ..options import IDEMPOTENT, SinkOptions
from ..staged_losses import tell_unequal
from .applied import MARKERS, Done, places_of
from .expiry import check_kept
from .placing import check_placed
from .staging import MapTarget, Staging, chunk_keys

if TYPE_CHECKING:
    from .finisher import StagedMapRows

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StagedMap(MapTarget):
    """`StagedTarget` says what is asked."""

    @property
    def name(self) -> str:
        return f"map '{cut(self.map)}'"

    @property
    def counts_twice(self) -> bool:
        return self.merge is not None

    @property
    def how_lost(self) -> str:
        return "with the members that held them"

    def check_same(self, job: SinkOptions, ledger: Ledger, *, fenced: bool) -> None:
        if not fenced:
            check_placed(self.hazelcast, self.map)
            for name in (Staging(self, job.job_and_ledger[0]).name, MARKERS):
                check_kept(self.hazelcast, name)
        self._check_place(job, ledger)
        if fenced:  # else it may be done by now
            self._check_not_passed(job, ledger)
        written = [
            found
            for found in ledger.of_sink(job.sink).values()
            if any(part.staged for part in found.participants)
        ]
        if not written:
            return
        newest = max(written, key=lambda found: found.batch)
        clusters = {part.staged.home for part in newest.participants if part.staged}
        here = Staging(self, job.job_and_ledger[0]).cluster
        if clusters == {here}:
            Done(self, job.job_and_ledger[0], job.sink, ledger).check_all()
            return
        sentence = (
            f"Batch {newest.batch} went to cluster {', '.join(sorted(clusters))}, and {self.place} "
            f"is now in cluster {here}: all members were started anew, or the options lead to "
            "another cluster. Entries that this job has written are gone from the map, and what "
            "was staged with them."
        )
        if self.fail_on_loss:
            raise LedgerError(
                f"{sentence} Nothing was written. If the map must be complete, fill it from "
                "elsewhere first. Then, or to go on with what is left, set option 'failOnDataLoss' "
                "to false until a batch is written; a batch that was decided but not applied is "
                "written again as a whole. To write everything again, use a new checkpoint and a "
                "new 'jobName'."
            )
        log.warning("%s Going on with what is left, as 'failOnDataLoss' is false.", sentence)

    def _check_place(self, job: Job, ledger: Ledger) -> None:
        """Staged rows are found by the job's name, and do not say which map they are for. Raise
        LedgerError if some wait for another one."""
        for decision in ledger.unfinished():
            places = {part.staged.place for part in decision.participants if part.staged}
            if decision.sink == job.sink and places - {self.map}:
                raise LedgerError(
                    f"Batch {decision.batch} of job '{job.job}' is decided and waits for map "
                    f"{places_of([decision])}, and option 'map' is '{cut(self.map)}' now. "
                    "Nothing was written. Start the query with the option as it was until a batch "
                    "is written, and change it then."
                )

    def _check_not_passed(self, job: SinkOptions, ledger: Ledger) -> None:
        """Spark notes a batch when it is done. Raise LedgerError if it has noted one that waits, or
        a later one: others wrote them, and what waits is older than what is there. A function of
        foreachBatch may have hidden an error from Spark; what is not staged any more is applied."""
        waiting = [one for one in ledger.unfinished() if one.sink == job.sink]
        if not waiting or job.may_pass_batches or job.checkpoint is None:
            return
        if ledger.owner != job.query_id:
            return  # its checkpoint is not the one that the batch ran with
        checkpoint = open_checkpoint(job.checkpoint)
        noted = max(batches_in("commits", checkpoint.paths()), default=-1)
        for decision in (one for one in waiting if one.batch <= noted):
            keys = [
                key
                for part in decision.participants
                for key in chunk_keys(decision.sink, decision.batch, part)
            ]
            if len(Staging(self, job.job_and_ledger[0]).missing(keys)) < len(keys):
                raise LedgerError(
                    f"Batch {decision.batch} of job '{job.job}' is decided, and its rows wait for "
                    f"{self.place} since; but checkpoint '{checkpoint.url}' is at batch {noted}: "
                    f"batches from {decision.batch} on were written without the ledger ('commit' "
                    f"'{IDEMPOTENT}', say). To apply old rows now would bring old entries back. "
                    f"Nothing was written. Give the query a new 'jobName' (readers that have it, "
                    f"too): its ledger begins behind batch {noted}, and what waits is left as it "
                    f"is. Or go on with 'commit' '{IDEMPOTENT}'."
                )

    def is_same(self, place: str, sink: str, ledger: str | None) -> bool:
        return False  # decisions name it as staged rows do

    def catch_up(self, job: Job, ledger: Ledger) -> None:
        """Nothing: what is settled and not there stops the query."""

    def make_room(self, job: Job, ledger: Ledger, generation: int) -> None:
        kept = {
            key
            for decision in ledger.unfinished()
            for part in decision.participants
            for key in chunk_keys(decision.sink, decision.batch, part)
        }
        staging = Staging(self, job.job_and_ledger[0])
        removed = staging.remove_left(job.sink, generation, kept)
        if removed:
            log.info("Removed %d staged chunks that nothing decided.", removed)

    def check_staged(
        self, job: Job, ledger: Ledger, batch: int, prepared: Sequence[Participant]
    ) -> None:
        parts = [part for part in prepared if part.staged]
        if not parts:
            return
        staging = Staging(self, job.job_and_ledger[0])
        strange = {part.staged.home for part in parts if part.staged} - {staging.cluster}
        missing = staging.missing(
            key for part in parts for key in chunk_keys(job.sink, batch, part)
        )
        if strange or missing:
            partitions = sorted({key.partition for key in missing})
            what = f"of partitions {partitions}" if missing else "in another cluster"
            raise Undecided(
                f"Batch {batch} is not decided: rows {what} that were staged for "
                f"{self.place} are not there any more, as members were lost with all "
                "copies. Nothing is visible; the batch will be run again from the same offsets."
            )

    def discard(self, job: Job, ledger: Ledger, batch: int, left: Sequence[Participant]) -> None:
        staging = Staging(self, job.job_and_ledger[0])
        staging.remove(key for part in left for key in chunk_keys(job.sink, batch, part))

    def check_unequal(self, decision: Decision, unequal: Sequence[Participant]) -> None:
        tell_unequal(
            f"Batch {decision.batch} was decided and applied in part, and then lost partitions "
            f"{[part.partition for part in unequal]} ({sum(part.rows for part in unequal)} rows).",
            fail=self.fail_on_loss,
        )

    def rows_of(self, job: Job, ledger: Ledger, decision: Decision) -> StagedMapRows:
        from .finisher import StagedMapRows

        return StagedMapRows(self, job.job_and_ledger[0], decision, ledger)
