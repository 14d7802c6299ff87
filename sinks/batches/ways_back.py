"""What a person may do where a checkpoint and its job's ledger have parted: parts of sentences.

Runs on the driver; nothing here reads or writes anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...core.errors import cut
from ...state.ledger.ledger import Ledger
from ...state.snapshots.batch_ends import by_name, name_of, without_marks
from ..options import SinkOptions
from .batch_identity import BatchIdentity

_LINE_SHOWN = 300  # characters of a source's offsets in an error


def shown(lines: Sequence[str]) -> str:
    """Where sources stand, for a sentence."""
    return ", ".join(cut(without_marks(line), _LINE_SHOWN) for line in lines) or "nothing"


def lacking(
    options: SinkOptions, batch: int, newest: int, checkpoint: str, *, has_snapshot: bool
) -> str:
    """That the ledger lacks the batches between, and what a person may do."""
    first, last = newest + 1, batch - 1
    which = f"batch {first}" if first == last else f"batches {first} to {last}"
    way = (
        f"a query without state writes them again if you delete the files of batches above "
        f"{newest} in 'offsets' and 'commits' of the checkpoint, the hidden ones ('.{first}.crc') "
        "too; one with state needs a copy of the checkpoint that is as old as the ledger"
    )
    if has_snapshot:
        way = restoring(options)
    return (
        f"The ledger of job '{options.job}' ends with batch {newest}, and checkpoint "
        f"'{checkpoint}' is at batch {batch}: of {which} the ledger knows nothing. It was restored "
        "from an older copy (a broker's disk, say), or is a copy that lags behind, or they were "
        "written without this ledger (another 'jobName' with this checkpoint, another format, "
        f"guarantee or 'ledgerTopic'). Batch {batch} is not decided. Look whether the output has "
        f"the rows of {which}. If it has them, set 'failOnDataLoss' to false at the sink until a "
        f"batch is written. If it lacks them, as when it was restored with the ledger: {way}."
    )


def writing_again(options: SinkOptions, batch: int, *, has_snapshot: bool) -> str:
    """How a person has Spark run a batch again that it has passed."""
    way = (
        f"delete 'commits/{batch}' of the checkpoint and the files of later batches in 'offsets' "
        f"and 'commits', the hidden ones ('.{batch}.crc') too: Spark runs batch {batch} again"
    )
    written = "let the function write it, and " if options.may_pass_batches else ""
    return written + (restoring(options) if has_snapshot else way)


def restoring(options: SinkOptions) -> str:
    return (
        "delete this checkpoint and restore the newest snapshot: 'eo-kafka snapshots restore "
        f"{options.job} CHECKPOINT --bootstrap-servers ...'"
    )


def way_of_target(options: SinkOptions, ledger: Ledger, wrote: str) -> str:
    """`wrote`: where the batch of this number went. A copy of a checkpoint looks like its query."""
    back = "If the query's target was changed between two runs, start it once more with the old one"
    if ledger.owner is None or ledger.owner != options.query_id or options.may_pass_batches:
        return f"A job's name is for one write: give each its own 'jobName'. {back}."
    place = f" (the ledger names '{ledger.checkpoint}')" if ledger.checkpoint else ""
    return (
        f"Has another query written it, with a copy of this checkpoint{place}? Then this one has "
        f"not written its rows of it: do not start it with {wrote}, give it its own 'jobName', and "
        f"it writes them. Only if there is no other query: {back[0].lower()}{back[1:]}, and change "
        "it when a batch is written; by a new 'jobName' it is written twice."
    )


def way_of_rows(options: SinkOptions, now: BatchIdentity) -> str:
    """What a person may do where only the rows tell that it is another batch."""
    accept = (
        f"'eo-kafka job repair {options.job} --batch {now.batch} --accept-loss "
        "--bootstrap-servers ...'"
    )
    other = "A 'batchId' is for one write: take the next number for new rows."
    if now.checkpoint is not None:
        other = (
            f"If checkpoint '{now.checkpoint.url}' was restored from an older copy, or files of it "
            f"are missing, batch {now.batch} may have new rows as well: only a copy that is as new "
            "as the ledger goes on with nothing lost or repeated."
        )
    return (
        f"{other} If these rows come from the same input and differ only because they were "
        f"computed again (rand(), the time of day), let the batch count as written: {accept}. Rows "
        "that are new in it are then lost."
    )


def way_back(options: SinkOptions, now: BatchIdentity, ledger: Ledger) -> str:
    """What a person may do where the checkpoint and the ledger have parted."""
    job = options.job
    newest = max(ledger.of_sink(options.sink))
    checkpoint = now.checkpoint.url if now.checkpoint else ""
    parted = (
        f"Checkpoint '{checkpoint}' does not match the job's ledger, which is at batch {newest}: "
        "it was restored from an older copy, or files of it are missing, or another driver has "
        "gone on from a copy of it."
    )
    if ledger.snapshot is not None:
        return (
            f"{parted} If a reader of the query lacks option 'jobName' ('{job}'), it does not "
            "repeat the batches since a restored snapshot (option 'snapshotInterval'): set it. "
            "Delete this checkpoint and restore the newest snapshot: 'eo-kafka snapshots restore "
            f"{job} CHECKPOINT --bootstrap-servers ...'.{_of_other_sources(now, ledger, options)}"
        )
    return (
        f"{parted} A query without state goes on where the job is, with nothing lost or repeated, "
        f"after 'eo-kafka job redo {job} CHECKPOINT --bootstrap-servers ...'. A query with state "
        "needs a copy of the checkpoint that is as new as the ledger."
    )


def _of_other_sources(now: BatchIdentity, ledger: Ledger, options: SinkOptions) -> str:
    written = ledger.decisions.get((options.sink, now.batch))
    before, here = (
        [name_of(line) for line in by_name(lines)]
        for lines in (written.offsets if written else now.ends, now.ends)
    )
    if before == here:
        return ""
    return (
        " A source was added or taken away before the batches since that snapshot were repeated: "
        "start it then with the sources that it had, and change them when it has written a batch."
    )
