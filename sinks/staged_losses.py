"""What is said, and done, where a table or another target does not hold what the ledger says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.errors import LedgerError, RepairNeeded
from ..core.transaction import Decision, Participant
from ..state.ledger.ledger import Ledger
from ..state.snapshots.checkpoint import open_checkpoint
from ..state.snapshots.offset_log import batches_in
from .marker import History, Marker

if TYPE_CHECKING:
    from .options import SinkOptions

log = logging.getLogger(__name__)


def check_restored(
    place: str,
    job: str,
    marker: Marker | None,
    history: History,
    *,
    ways: str,
    waits: str = "",
    fail: bool,
) -> None:
    """Of a target that shows what the ledger does not know: raise LedgerError, unless losses are
    accepted. `ways`: how it may have come to that, the middle of a sentence; `waits`: what of the
    batches that it does not show is there, as sentences."""
    newest = history.newest
    known = f"batch {newest.batch} (generation {newest.generation})" if newest else "no batch"
    shows = (
        f"batch {marker.batch} (generation {marker.decided})"
        if marker is not None and marker.batch is not None
        else "no batch of this job"
    )
    ahead = marker is not None and (marker.decided or 0) > (
        newest.generation if newest else history.generation
    )
    why = (
        "the ledger is older than that: it was restored from an older copy, is a copy that lags "
        "behind, or was cut off"
        if ahead
        else f"{ways}: batches between would be missing in it, or be there twice"
    )
    sentence = (
        f"{place} shows {shows} as the newest one of job '{job}', and the ledger has "
        f"{known}: {why}."
    )
    if waits:
        sentence += f" {waits}"
    if fail and waits:
        raise LedgerError(
            f"{sentence} Nothing was written or removed, and 'eo-kafka txn list --table-config "
            "FILE' shows what waits: delete nothing. If a server or copy has the newest batch, "
            "name it in option 'url' or restore it, and start again. Or set option "
            "'failOnDataLoss' to false until a batch is written: what waits is put in then, "
            "nothing is written twice, and what is neither there nor waits stays missing."
        )
    if fail:
        raise LedgerError(
            f"{sentence} Nothing was written. Restore the newest copy and start again. Or, to "
            "go on with what is there, set option 'failOnDataLoss' to false until a batch "
            "is written. To write everything again, empty it and use a new checkpoint "
            "and a new 'jobName'."
        )
    log.warning("%s Going on with what is there, as 'failOnDataLoss' is false.", sentence)


def check_begins(
    place: str, options: SinkOptions, ledger: Ledger, marker: Marker | None, *, fail: bool
) -> None:
    """Of a target on which a ledger begins anew, beside the `marker` of another ledger of the job:
    raise LedgerError, unless losses are accepted, if the query has written there by that one the
    batch that Spark runs now. Batch 0 is a new query's."""
    shown = marker.batch if marker is not None else None
    if not shown or options.checkpoint is None or ledger.owner is not None or ledger.decisions:
        return
    batch = max(batches_in("offsets", open_checkpoint(options.checkpoint).paths()), default=0)
    if not 0 < batch <= shown:
        return
    sentence = (
        f"{place} shows batch {shown} of job '{options.job}', by another ledger, and ledger "
        f"'{options.ledger_topic}' is empty. Spark runs batch {batch} now: its rows would be there "
        "twice."
    )
    if fail:
        raise LedgerError(
            f"{sentence} Nothing was written. Start the query with the Kafka and the 'ledgerTopic' "
            "that it had. If they are gone for good: a query without state goes on with a new "
            f"checkpoint, and with 'startingOffsets' of where batch {shown} ended (file "
            f"'offsets/{shown}' of the old checkpoint). Or take the rows of the batches from "
            f"{batch} on out of it, and set option 'failOnDataLoss' to false until a batch is "
            "written: they are written again."
        )
    log.warning("%s Going on, as 'failOnDataLoss' is false.", sentence)


def check_gone_with_topic(
    place: str, batch: int, partitions: Sequence[int], *, repeats: bool, fail: bool
) -> None:
    """Of a batch that is applied, rows of which have gone with their topic since: the replay writes
    them to both once more. Raise RepairNeeded if that repeats some, unless it is accepted."""
    sentence = (
        f"Batch {batch} is in {place}, and rows of its partitions {list(partitions)} have gone "
        "with the topic that they were written to as well: it was deleted since."
    )
    if fail and repeats:
        raise RepairNeeded(
            f"{sentence} The replay would write them there once more. Nothing was changed. Delete "
            "them there and set option 'failOnDataLoss' to false until the batch is written, or "
            "set it and have them twice."
        )
    log.warning("%s The replay writes them into both once more.", sentence)


def check_unequal(
    place: str, decision: Decision, unequal: Sequence[Participant], *, fail: bool
) -> None:
    """S6 of a replay with other rows than those that are missing: as `tell_unequal`."""
    tell_unequal(
        f"Batch {decision.batch} is in {place} in part: the transactions of partitions "
        f"{[part.partition for part in unequal]} ({sum(part.rows for part in unequal)} rows) "
        "in the topic were aborted by Kafka.",
        fail=fail,
    )


def tell_unequal(sentence: str, *, fail: bool) -> None:
    """Of a replay's rows that are not those which are missing, as the `sentence` says: raise
    RepairNeeded, unless losses are accepted."""
    sentence += " The replay's rows of these partitions are not the same."
    if fail:
        raise RepairNeeded(
            f"{sentence} Nothing was written. Start the query as it was when the batch first "
            "ran (same plan, same number of tasks): it then completes the batch. Or set option "
            "'failOnDataLoss' to false until the batch is written: the replay's rows are then "
            "written in addition to those of the first run."
        )
    log.warning("%s They are written as they are, as 'failOnDataLoss' is false.", sentence)
