"""Whether a batch that comes again is the one that was written, and a new one begins where the last
one ended; else what a person can do.

Runs on the driver, in `commit(N)`; nothing here writes anything.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Sequence

from ...core.digest import Digest
from ...core.errors import BatchMismatch, LedgerError
from ...core.transaction import Decision, DecisionState
from ...core.url_secrets import without_secrets
from ...state.ledger.ledger import Ledger
from ...state.snapshots.batch_ends import is_replayable, same_lines
from ...state.snapshots.offset_log import batches_in
from ..options import SinkOptions
from . import source_checks
from .batch_identity import BatchIdentity, checkpoint_of, plans_in, was_repartition
from .batch_times import other_times
from .committable import TaskReport, Torn
from .other_names import is_other_name
from .ways_back import lacking, shown, way_back, way_of_rows, way_of_target, writing_again

log = logging.getLogger(__name__)


def check_written(
    options: SinkOptions, identity: BatchIdentity, ledger: Ledger, reports: Sequence[TaskReport]
) -> None:
    """Of a batch that is written, and that all tasks have only run through: raise BatchMismatch if
    it was another one."""
    written = ledger.decisions.get((options.sink, identity.batch))
    if written is None:
        raise LedgerError(
            f"Batch {identity.batch} of job '{options.job}' was skipped as written, but the "
            "ledger no longer has it: it was reset or deleted meanwhile. Start the query "
            "again: it goes on from what the ledger says."
        )
    if written.accepted:
        return
    _check_same(options, identity, ledger, written)
    found = _other_rows(written, reports)
    if not found:
        return
    if written.offsets and identity.ends and _replayable(written.offsets, identity.ends):
        seeded = not written.participants and not written.target
        if seeded and written.batch == min(ledger.of_sink(options.sink)):
            return  # of 'snapshots start-from', whose rows are in another job's output
        log.warning(
            "Batch %d of job '%s' is skipped as written, and its rows are not those that were "
            "written: %s. They were computed anew (rand(), the time of day, other code or options, "
            "records that are gone since), or another query uses this job's name or a copy of its "
            "checkpoint; then its rows are missing: give it its own 'jobName' and a new "
            "checkpoint.",
            *(identity.batch, options.job, found),
        )
        return
    way = way_of_rows(options, identity)
    raise BatchMismatch(f"{_is_another(options, identity.batch, found)} {way}")


def check_target(options: SinkOptions, ledger: Ledger) -> None:
    """S1, before the fence: raise BatchMismatch if the batch that is about to run is written, and
    went elsewhere. S6 would refuse it, when who works here is fenced. Looks at the checkpoint only
    where the newest batch went elsewhere."""
    mine = ledger.of_sink(options.sink)
    if not mine or mine[max(mine)].target in ("", options.target):
        return
    if (checkpoint := checkpoint_of(options)) is None:
        return
    batch = max(batches_in("offsets", checkpoint.paths()), default=-1)
    written = mine.get(batch)
    if written and written.state is DecisionState.DONE and not written.accepted:
        _check_target(options, batch, ledger, written)


def check_decided(options: SinkOptions, identity: BatchIdentity, ledger: Ledger) -> None:
    """S6: raise BatchMismatch if a batch of this number was decided, and is to be mended now, and
    was another one; or if a new batch does not begin where the one before it ended, or a source of
    it got another name, or the ledger has older ones and lacks that one, or its rows are not
    there."""
    written = ledger.decisions.get((options.sink, identity.batch))
    if written is not None and written.state is not DecisionState.VOID:
        _check_same(options, identity, ledger, written)
        return
    source_checks.check_names(options, identity)
    _check_visible(options, identity, ledger)
    before = ledger.decisions.get((options.sink, identity.batch - 1))
    if before is None:
        _check_none_between(options, identity, ledger)
        return
    if before.accepted or not before.offsets or not identity.starts:
        return
    if _replayable(before.offsets, identity.starts) and not same_lines(
        before.offsets, identity.starts
    ):
        found = (
            f"it begins at {shown(identity.starts)}, and batch {before.batch}, which is written, "
            f"ended at {shown(before.offsets)}: the records between are at stake"
        )
        raise BatchMismatch(
            f"Batch {identity.batch} of job '{options.job}' is not decided: {found}. Nothing of it "
            f"is visible. {way_back(options, identity, ledger)}"
        )


def _check_none_between(options: SinkOptions, identity: BatchIdentity, ledger: Ledger) -> None:
    """Each batch of a stream is decided, also an empty one. Where the checkpoint has batches that
    the ledger lacks, the ledger went back, and perhaps the output with it: both are in one cluster.
    Raise BatchMismatch, unless losses are accepted; but a function of foreachBatch need not write
    each batch, and of Spark's repartition of state no sink is told."""
    mine = ledger.of_sink(options.sink)
    newest = max(mine, default=identity.batch)
    if newest >= identity.batch or options.may_pass_batches or identity.checkpoint is None:
        return
    plans, ends = plans_in(identity.checkpoint), mine[newest].offsets
    if all(was_repartition(plans, n, ends) for n in range(newest + 1, identity.batch)):
        return
    found = (identity.batch, newest, identity.checkpoint.url)
    _tell(options, lacking(options, *found, has_snapshot=ledger.snapshot is not None))


def _check_visible(options: SinkOptions, identity: BatchIdentity, ledger: Ledger) -> None:
    """The rows of the newest batch before were committed when Spark passed it, and S1 did not find
    them: the cluster went back; or a function of foreachBatch, which had written them, did not when
    their batch ran again. Raise BatchMismatch, unless losses are accepted."""
    mine, checkpoint = ledger.of_sink(options.sink), identity.checkpoint
    last = max((batch for batch in mine if batch < identity.batch), default=-1)
    if last < 0 or mine[last].state is DecisionState.DONE or checkpoint is None:
        return
    rows = mine[last].rows
    is_void = mine[last].state is DecisionState.VOID
    lost = f"none of its {rows:,} rows is" if is_void else f"some of its {rows:,} rows are not"
    again = writing_again(options, last, has_snapshot=ledger.snapshot is not None)
    passed = f"the function of foreachBatch did not write batch {last} when Spark ran it again, or"
    _tell(
        options,
        f"Batch {last} of job '{options.job}' was decided, and {lost} in the output; but "
        f"checkpoint '{checkpoint.url}' is at batch {identity.batch}: "
        f"{passed if options.may_pass_batches else 'so they were there, and'} the cluster has lost "
        "its newest records since (a broker's disk that went back, an unclean leader election). "
        f"Batch {identity.batch} is not decided. To write batch {last} again, "
        f"{again}. To go on without it, set 'failOnDataLoss' to false at the sink until a batch is "
        "written.",
    )


def _tell(options: SinkOptions, sentence: str) -> None:
    """Of a loss."""
    if options.fail_on_data_loss:
        raise BatchMismatch(sentence)
    log.warning("Going on, as the sink's 'failOnDataLoss' is false: %s", sentence)


def check_next(
    options: SinkOptions,
    batch: int,
    newest: int,
    checkpoint: str | None,
    planned: Container[int] = (),
) -> None:
    """The same before a task commits by itself (commit=idempotent), which may not be taken back:
    what is visible would be written once more, in another batch. Before one that is `planned` S1
    has seen repartitions of state only. Raises BatchMismatch."""
    may_pass = options.may_pass_batches or not options.fail_on_data_loss or checkpoint is None
    may_pass = may_pass or batch in planned
    if 0 <= newest < batch - 1 and not may_pass:
        found = (batch, newest, without_secrets(f"{checkpoint}"))
        raise BatchMismatch(lacking(options, *found, has_snapshot=options.snapshots))


def check_torn(options: SinkOptions, batch: int, torn: Torn | None) -> None:
    """Before a task of a batch that is not decided commits by itself: raise BatchMismatch if
    another batch was interrupted when tasks of it had committed. With a checkpoint from before
    Spark's repartition of state, which takes a number, the same records come in a batch of a lower
    number."""
    if torn is None or torn.decided or torn.decision.batch == batch:
        return
    other, job = torn.decision.batch, options.job
    found = (
        f"Batch {other} of job '{job}' was interrupted when tasks had committed rows of it "
        f"(commit=idempotent), and now batch {batch} is to be written: "
    )
    if options.may_pass_batches and batch > other:
        raise BatchMismatch(
            f"{found}the function of foreachBatch did not write batch {other} when Spark ran it "
            f"again. Nothing of batch {batch} is visible. To have the other rows of batch {other} "
            f"written, {writing_again(options, other, has_snapshot=options.snapshots)}."
        )
    raise BatchMismatch(
        f"{found}the checkpoint is another one than batch {other} ran with, of before a "
        f"repartition of the state, say. It may read what batch {other} has read. Nothing of batch "
        f"{batch} is visible. Bring the checkpoint back that batch {other} ran with. If it is "
        f"gone, 'eo-kafka verify' says what the output has; then 'eo-kafka job reset {job}', and a "
        "new checkpoint with 'startingOffsets' at the readers (without it, they start at 'latest')."
    )


def _check_same(
    options: SinkOptions, now: BatchIdentity, ledger: Ledger, written: Decision
) -> None:
    """Raise BatchMismatch if a batch of this number was another one, as target and offsets tell."""
    _check_target(options, now.batch, ledger, written)
    if found := _difference(written, now):
        way = way_back(options, now, ledger)
        raise BatchMismatch(f"{_is_another(options, now.batch, found)} {way}")


def _check_target(options: SinkOptions, batch: int, ledger: Ledger, written: Decision) -> None:
    wrote = written.target
    if wrote and wrote != options.target and not is_other_name(options, ledger, wrote):
        found = f"it went to {wrote}, and this one goes to {options.target}"
        way = way_of_target(options, ledger, wrote)
        raise BatchMismatch(f"{_is_another(options, batch, found)} {way}")


def _difference(written: Decision, now: BatchIdentity) -> str:
    """What of their sources differs, as the end of a sentence; "" if nothing does."""
    if not written.offsets or not now.ends:
        return ""
    known = [(written.offsets, now.ends)]
    if written.starts and now.starts:
        known.append((written.starts, now.starts))
    if all(same_lines(theirs, mine) or not _replayable(theirs, mine) for theirs, mine in known):
        return other_times(written, now)
    return (
        f"it held {_range(written.starts, written.offsets)}, and this one holds "
        f"{_range(now.starts, now.ends)}"
    )


def _other_rows(written: Decision, reports: Sequence[TaskReport]) -> str:
    """Whether the rows differ; the end of a sentence."""
    before, here = Digest(), Digest()
    for part in written.participants:
        before.merge(Digest.of(part.rows, part.digest))
    for report in reports:
        if report.rows:
            here.merge(Digest.of(report.rows, report.digest))
    if before == here:
        return ""
    if before.rows == here.rows:
        return f"both have {before.rows:,} rows, and not the same ones"
    return f"it had {before.rows:,} rows, and this one has {here.rows:,}"


def _replayable(theirs: Sequence[str], mine: Sequence[str]) -> bool:
    return all(is_replayable(line) for line in (*theirs, *mine))


def _is_another(options: SinkOptions, batch: int, found: str) -> str:
    return (
        f"Batch {batch} of job '{options.job}' is already written, and the batch "
        f"{batch} that comes now is another one: {found}. Nothing was written or skipped "
        "now."
    )


def _range(starts: Sequence[str], ends: Sequence[str]) -> str:
    return f"{shown(starts)} to {shown(ends)}" if starts else f"offsets up to {shown(ends)}"
