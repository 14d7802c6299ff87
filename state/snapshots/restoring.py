"""Restores a job's newest snapshot, or an export, into an empty checkpoint.

Runs in the user's own process, before the query is started.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone

from ...core.errors import CheckpointError, CorruptLedger, LedgerError
from ...core.progress import bar
from ...core.transaction import Begun, DecisionState
from ...core.url_secrets import without_secrets
from ..ledger.blob_names import SnapshotHead
from ..ledger.coordinator import Coordinator
from ..ledger.job import Job
from ..ledger.ledger import Ledger
from ..ledger.owner import check_job, check_place
from ..ledger.settled_tokens import token_ends, tokens_between
from ..ledger.topics import TOKEN_PARTITION
from . import writing_back as files
from .checkpoint import Checkpoint, open_checkpoint
from .export import LATEST, Export
from .place import place_of
from .redo import can_be_planned, plan_again, redo
from .restored import Restored, note
from .search import Found, SnapshotSearch

log = logging.getLogger(__name__)


def restore(
    checkpoint: str,
    job: str,
    options: Mapping[str, str],
    snapshot: str = LATEST,
    *,
    progress: bool = True,
) -> SnapshotHead | None:
    """Write a job's newest snapshot into an empty checkpoint folder.

    `eo_kafka.start` does this by itself where the checkpoint is missing. Runs anywhere, before the
    query starts. Fences nobody: it waits for a decision that is being written elsewhere, and a
    running driver goes on, until a query that starts from the restored checkpoint replaces it.

    Args:
        checkpoint: The folder, a path or URL. It must be empty, or hold an interrupted restore.
        job: The job's name.
        options: The sink's options: `kafka.*`, and `ledgerTopic`, `stateTopic`,
            `transactionalIdPrefix` and `allowWeakReplication` where the job has them. Other
            options are ignored.
        snapshot: The name of an export to restore in place of the newest snapshot. It must hold the
            newest batch that the job wrote; from another one only a new job can start
            (`eo_kafka.start_from`).
        progress: Whether stderr shows a progress bar.

    Returns:
        The snapshot's head: its `batch`, `files`, `size` in bytes, `made_ms` (since 1970) and more.
        None if the job has no snapshot. Nothing is written then, unless tasks of its first batch
        have committed by themselves (`commit=idempotent`): then the folder says which records that
        batch had.

    Raises:
        CheckpointError: The folder is not empty, or holds what a restore of another job, or a
            `start_from`, left unfinished, or batches were written after the snapshot that cannot
            be repeated exactly. Nothing was restored.
        EoKafkaError: There is no export of this name.
        OptionsError: An option is wrong.
        EnvironmentRefused: The cluster cannot be reached, or is not configured as it must be.
        OutcomeUnknown, ReadTimeout: The brokers did not answer in time.
        CorruptLedger, CorruptSnapshot: A record is not what eo-kafka wrote.

    Examples:
        >>> found = eo_kafka.restore("/data/elsewhere", "firsts", kafka, progress=False)
        >>> found.files > 0
        True
    """
    return _restore(checkpoint, job, options, snapshot, progress=progress)


def restore_missing(checkpoint: str, job: str, options: Mapping[str, str]) -> SnapshotHead | None:
    """As `restore`, where nobody has said that the job is to go on in this folder: only if it is
    the one that the ledger names, or if that names none. Raises ForeignLedger, too."""
    return _restore(checkpoint, job, options, LATEST, asked_for=False)


def _restore(
    checkpoint: str,
    job: str,
    options: Mapping[str, str],
    snapshot: str,
    *,
    progress: bool = True,
    asked_for: bool = True,
) -> SnapshotHead | None:
    search = SnapshotSearch(job, options)
    export = None if snapshot == LATEST else search.exported(snapshot)
    target = open_checkpoint(checkpoint)
    if not search.has_ledger:
        if export is not None:
            _check_is_newest(Ledger(), export.export, search.options)
        with files.filling(target):
            files.check_nothing_left(target, job)
        return None
    ledger = Coordinator(search.options, search.control).read_settled()
    if asked_for:  # a renamed job may start, too
        check_job(search.control, search.options, ledger)
    if export is not None:
        _check_is_newest(ledger, export.export, search.options)
    found = export or search.newest(ledger)
    begun = ledger.interrupted(search.options.sink)
    if not asked_for and (found is not None or (begun is not None and not begun.batch)):
        check_place(search.options, ledger, place_of(target))
    if found is None:
        with files.filling(target):
            if not _plan_first_again(target, ledger, search):
                files.check_nothing_left(target, job)
        return None
    if export is None:
        _check_can_go_on(ledger, found.head, search.options)
    began = time.monotonic()
    what = f"Restoring batch {found.head.batch} of {job}"
    with bar(what, shown=progress) as told:
        files.restore(
            *(search.options.kafka, found.topic, found.end, found.head, target, told),
            files.Purpose(job),
            before_finish=lambda: _plan_interrupted_again(target, ledger, search),
        )
    took = time.monotonic() - began
    note(job, Restored(found.head.batch, found.head.size, took, time.time()))
    _say(found, job, checkpoint)
    since = ledger.since_snapshot(search.options.sink)
    if len(since) > 1:
        log.warning(
            "Batches %d to %d of job '%s' are run again, to rebuild the state. Start the code that "
            "ran them: other code may make another state of them, and nothing would tell.",
            *(found.head.batch, since[-1].batch, job),
        )
    return found.head


def _plan_first_again(checkpoint: Checkpoint, ledger: Ledger, search: SnapshotSearch) -> bool:
    """Whether that was needed."""
    begun = _torn(ledger, search)
    if begun is None or begun.batch:
        return False
    claim = files.Claim(checkpoint, files.Purpose(search.job))
    plan_again(checkpoint, begun)
    query = ledger.owner or str(uuid.uuid4())
    claim.check()
    checkpoint.write("metadata", [json.dumps({"id": query}).encode()])
    claim.finish()
    return True


def _torn(ledger: Ledger, search: SnapshotSearch) -> Begun | None:
    """The batch of which a task may have committed by itself, if Spark can be told to run it again.
    Of another one it need not be: whoever starts anew may read other topics."""
    options = search.options
    begun = ledger.interrupted(options.sink)
    if begun is None or not can_be_planned(begun):
        return None
    stable, end = search.control.look(ends=token_ends(options, TOKEN_PARTITION, None)).ends
    if stable < end:  # one is open, or hides what is behind it
        return begun
    newest = ledger.of_sink(options.sink).get(begun.batch - 1)
    start = max(ledger.one_phase_from or 0, newest.token_from if newest else 0)
    try:
        tokens = tokens_between(options, TOKEN_PARTITION, start, stable)
    except CorruptLedger:
        raise
    except LedgerError:  # its tokens may be lost: whoever starts says so
        return begun
    return begun if any(token.batch == begun.batch for token in tokens) else None


def _plan_interrupted_again(checkpoint: Checkpoint, ledger: Ledger, search: SnapshotSearch) -> None:
    """After the snapshot's batch and those since, which are written, Spark is to run the one that
    was interrupted with the records that it had. A query with state has to run all of them: its
    readers find them in the ledger (option 'jobName')."""
    begun = _torn(ledger, search)
    since = ledger.since_snapshot(search.options.sink)
    written = {one.batch: one.offsets for one in since if one.state is DecisionState.DONE}
    has_state = any(path.startswith("state/") for path in checkpoint.paths())
    if begun is None or begun.batch - 1 not in written or len(written) < len(since) or has_state:
        return
    redo(checkpoint, written, begun.batch - 1, restoring=True)
    plan_again(checkpoint, begun)


def _say(found: Found, job: str, checkpoint: str) -> None:
    head = found.head
    made = datetime.fromtimestamp(head.made_ms / 1000, timezone.utc).isoformat(timespec="seconds")
    log.info(
        "Job '%s' goes on at batch %d: snapshot '%s' of %s (%d files, %d bytes) was restored into "
        "'%s'.",
        *(job, head.batch, found.name, made, head.files, head.size, without_secrets(checkpoint)),
    )


def _check_can_go_on(ledger: Ledger, head: SnapshotHead, options: Job) -> None:
    """Batches after the snapshot would be run again with other records, and yet be skipped as
    written, if the ledger did not know which records they held."""
    newest = max(ledger.of_sink(options.sink), default=head.batch)
    known = ledger.since_snapshot(options.sink)
    last_known = known[-1].batch if known else head.batch
    if newest > last_known:
        raise CheckpointError(
            f"The newest snapshot of job '{options.job}' is that of batch {head.batch}, and "
            f"batches up to {newest} were written since, from {last_known + 1} on without one "
            "(option 'snapshots' was false, or the checkpoint could not be read). From that "
            "snapshot they could not be repeated exactly. Nothing was restored."
        )


def _check_is_newest(ledger: Ledger, export: Export, options: Job) -> None:
    """The ledger of the export's own job must say nothing that the export does not know."""
    written = ledger.of_sink(options.sink)
    newest = max(written, default=None)
    same = (
        newest == export.snapshot.batch
        and written[newest].offsets == export.offsets
        and ledger.owner == export.snapshot.query
    )
    if not same:
        now = "its ledger knows of none" if newest is None else f"it is at batch {newest} now"
        raise CheckpointError(
            f"The export '{export.name}' holds batch {export.snapshot.batch} of job "
            f"'{export.job}', and {now}, or was given up to another query: going on from the "
            "export under the same name could skip or repeat batches. Nothing was restored. Start "
            f"it under another job name: 'eo-kafka snapshots start-from {export.job} {export.name} "
            "--job NEW-NAME --checkpoint ... --bootstrap-servers ...'."
        )
