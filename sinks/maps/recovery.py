"""Checks and cleans up staged rows of a map, before and after their decision.

Are all there, is it still the same map, and what is left over? Runs on the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...core.errors import LedgerError, RepairNeeded, Undecided
from ...core.transaction import Decision, Participant
from ...state.ledger.job import Job
from ...state.ledger.ledger import Ledger
from .staging import MapTarget, Staging, chunk_keys

log = logging.getLogger(__name__)


def check_same_map(target: MapTarget, job: Job, ledger: Ledger) -> None:
    """S1, before anything is rolled forward: raise LedgerError if the map that the job's batches
    went into is gone with all of its members; a warning if losses are accepted."""
    written = [
        found
        for found in ledger.of_sink(job.sink).values()
        if any(part.staged for part in found.participants)
    ]
    if not written:
        return
    newest = max(written, key=lambda found: found.batch)
    clusters = {part.staged.cluster for part in newest.participants if part.staged}
    here = Staging(target, job.job_and_ledger[0]).cluster
    if clusters == {here}:
        return
    sentence = (
        f"Batch {newest.batch} went to cluster {', '.join(sorted(clusters))}, and {target.place} "
        f"is now in cluster {here}: all members were started anew, or the options lead to another "
        "cluster. Entries that this job has written are gone from the map, and what was staged "
        "with them."
    )
    if target.fail_on_loss:
        raise LedgerError(
            f"{sentence} Nothing was written. Fill the map again from elsewhere if it must be "
            "whole; then, or to go on with what is left, set option 'failOnDataLoss' to false "
            "until a batch is written: a batch that was decided and not applied is written again "
            "as a whole. To write all of it again, use a new checkpoint and 'jobName'."
        )
    log.warning("%s Going on with what is left, as 'failOnDataLoss' is false.", sentence)


def remove_left(target: MapTarget, job: Job, ledger: Ledger, generation: int) -> None:
    """S1, after everything is rolled forward: remove what earlier generations staged and nothing
    decided."""
    kept = {
        key
        for decision in ledger.unfinished()
        for part in decision.participants
        for key in chunk_keys(decision.sink, decision.batch, part)
    }
    staging = Staging(target, job.job_and_ledger[0])
    removed = staging.remove_left(job.sink, generation, kept)
    if removed:
        log.info("Removed %d staged chunks that nothing decided.", removed)


def check_staged(target: MapTarget, job: Job, batch: int, prepared: Sequence[Participant]) -> None:
    """S6: raise Undecided unless all that the tasks staged for `batch` is there."""
    parts = [part for part in prepared if part.staged]
    if not parts:
        return
    staging = Staging(target, job.job_and_ledger[0])
    strange = {part.staged.cluster for part in parts if part.staged} - {staging.cluster}
    missing = staging.missing(key for part in parts for key in chunk_keys(job.sink, batch, part))
    if strange or missing:
        partitions = sorted({key.partition for key in missing})
        what = f"of partitions {partitions}" if missing else "in another cluster"
        raise Undecided(
            f"Batch {batch} is not decided: rows {what} that were staged for "
            f"{target.place} are not there any more, as members were lost with all "
            "copies. Nothing is visible; the batch will be run again from the same offsets."
        )


def discard(
    target: MapTarget, job: Job, ledger: Ledger, batch: int, prepared: Sequence[Participant]
) -> None:
    """Remove what was staged for a batch that this generation has not decided and never will."""
    decided = {decision.generation for decision in ledger.decisions.values()}
    parts = [part for part in prepared if part.staged and part.generation not in decided]
    if not parts:
        return
    staging = Staging(target, job.job_and_ledger[0])
    staging.remove(key for part in parts for key in chunk_keys(job.sink, batch, part))


def check_unequal_is_accepted(
    target: MapTarget, decision: Decision, unequal: Sequence[Participant]
) -> None:
    """S6 of a replay that writes what is missing of a batch, with other rows: raise RepairNeeded,
    unless losses are accepted."""
    sentence = (
        f"Batch {decision.batch} was decided and applied in part, and then lost partitions "
        f"{[part.partition for part in unequal]} ({sum(part.rows for part in unequal)} rows). The "
        "replay's rows of these partitions are not the same."
    )
    if target.fail_on_loss:
        raise RepairNeeded(
            f"{sentence} Nothing was written. Start the query as it was when the batch was first "
            "run (same plan, same number of tasks) and it mends this; or set option "
            "'failOnDataLoss' to false until the batch is written: then the replay's rows are "
            "written as they are, beside those of the first run that are there already."
        )
    log.warning("%s They are written as they are, as 'failOnDataLoss' is false.", sentence)
