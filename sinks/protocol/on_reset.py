"""A query with another id comes to a job's ledger: refused, or, by option `onReset`, it takes over.

Runs on the driver, within S1: under this driver's fence and generation, when what the last query
decided is committed, and what it had open is ended. One transaction then names the new owner and
forgets the last one's batches. A death before it leaves the ledger the last query's, and the new
one comes again; a death after it leaves it the new one's, which goes on as any owner does.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

from ...core.crash_points import crash_point
from ...core.errors import CheckpointError, ForeignLedger, LedgerError
from ...state.ledger import records
from ...state.ledger.appender import Record
from ...state.ledger.coordinator import Coordinator, Write
from ...state.ledger.ledger import Ledger
from ...state.ledger.succession import (
    CONTINUE,
    STOP,
    SUCCESSION_KEY,
    Succession,
    encode_succession,
)
from ...state.snapshots.batch_ends import (
    continued_from,
    is_of_nothing,
    is_replayable,
    same_lines,
)
from ...state.snapshots.checkpoint import Checkpoint, open_checkpoint
from ...state.snapshots.offset_log import NOT_PLANNED, planned_batch
from ...state.snapshots.place import place_of
from ..batches.batch_identity import BatchIdentity, checkpoint_of
from ..batches.committable import Torn
from ..batches.other_names import is_other_name
from ..batches.ways_back import shown
from ..options import BATCH_WRITES, SinkOptions
from . import one_phase_recovery, passed_over

log = logging.getLogger(__name__)


def is_new_query(options: SinkOptions, coordinator: Coordinator) -> bool:
    """Whether the ledger is another query's, and this one takes it over. Raises ForeignLedger if it
    may not: before the fence by what can be read, and once more after it."""
    ledger, mine, topic = coordinator.ledger, options.query_id, coordinator.topic
    if mine is not None and mine in ledger.succession.replaced:
        if ledger.owner is None:
            raise ForeignLedger(
                f"Ledger '{topic}' was this query's, {mine}, and was given up by 'eo-kafka job "
                "reset': nobody knows any more which of its batches are written. Nothing was "
                "written or skipped. Start with a new checkpoint; or, if the output holds all rows "
                "of the last batch that commits/ in the checkpoint names and none of a later one, "
                "give this query a new 'jobName'."
            )
        raise ForeignLedger(
            f"This query, {mine}, wrote ledger '{topic}' once, and query {ledger.owner} has taken "
            "it over (option 'onReset'). Nothing was written or skipped. Its checkpoint is older "
            "than what the job has written since, so it cannot go on: stop it, and start the "
            "newest checkpoint."
        )
    if options.on_reset == STOP or ledger.owner in (None, mine):
        coordinator.check_owner(mine)
        if ledger.owner is None:
            _check_readers(options, ledger)
        return False
    if mine is None:
        raise ForeignLedger(
            f"Ledger '{topic}' belongs to query {ledger.owner}. Whether this is that one is not "
            "known here, and option 'onReset' needs it. Nothing was written or skipped. Give the "
            "query option 'checkpointLocation'."
        )
    _check_same_job(options, ledger)
    if options.on_reset != CONTINUE:
        _check_readers(options, ledger)
        passed_over.check_nothing(options, ledger)
    return True


def _check_readers(options: SinkOptions, ledger: Ledger) -> None:
    """The sink begins anew. Raise ForeignLedger if a source of the query, in its first batch, went
    on where a query before had ended."""
    if options.checkpoint is None:
        return
    checkpoint = open_checkpoint(options.checkpoint)
    if planned_batch(checkpoint, 1, NOT_PLANNED) is not NOT_PLANNED:
        return  # a query that has written goes on with another ledger, say after `job reset`
    planned = planned_batch(checkpoint, 0, NOT_PLANNED).ends
    from_ledgers = _continued(planned)
    if not from_ledgers:
        return
    mine = options.job_and_ledger[1]
    found = f"the sink's option 'onReset' is '{options.on_reset}'"
    if from_ledgers != {mine}:
        found = f"the sink's ledger is '{mine}'"
    elif ledger.owner is None:
        found = "that ledger is empty now: it was reset or deleted since"
    raise ForeignLedger(
        f"A reader of this query went on where ledger {_quoted(from_ledgers)} says that the query "
        f"before had ended (its option 'onReset' is 'continue'), at {shown(planned)}; but {found}, "
        "so what was before would be missing. Nothing was written or skipped. Give readers and "
        "sink the same 'jobName' and the same 'onReset', delete this new checkpoint (a pipeline: "
        "full refresh again) and start again."
    )


def _continued(planned: Sequence[str]) -> set[str]:
    """The ledgers at whose ends the sources say that they started."""
    return {ledger for line in planned if (ledger := continued_from(line)) is not None}


def _quoted(ledgers: set[str]) -> str:
    return " and ".join(f"'{one}'" for one in sorted(ledgers))


def _check_same_job(options: SinkOptions, ledger: Ledger) -> None:
    """A refreshed query has the name and the target of the last one; another may have taken only
    the job's name, such as a second flow of a pipeline's sink."""
    batches, name, found = ledger.of_sink(options.sink), ledger.succession.name, ""
    wrote = batches[max(batches)].target if batches else ""
    if (ledger.owner or "").startswith(BATCH_WRITES):
        found = f"its owner are the {ledger.owner}"
    elif name and options.query_name != name:
        found = f"its query is named '{name}', and this one '{options.query_name or ''}'"
    elif wrote and wrote != options.target and not is_other_name(options, ledger, wrote):
        found = f"its batches went to {wrote}, and this query writes to {options.target}"
    if found:
        _, topic = options.job_and_ledger
        raise ForeignLedger(
            f"Ledger '{topic}' belongs to another write: {found}. Nothing was written or skipped. "
            "If the job's name is used twice (by two flows of a pipeline, say), give this query "
            "its own 'jobName'. If it was changed: "
            f"'{options.reset_command}'."
        )


def take_over(
    options: SinkOptions, coordinator: Coordinator, generation: int, torn: Torn | None
) -> None:
    """Make this query the owner. The caller has finished what was decided (`torn`: what could not
    be) and aborted what was not.

    Raises ForeignLedger or LedgerError, with the ledger as it was; else as Coordinator.write.
    """
    if torn is not None:
        batch = torn.decision.batch
        raise LedgerError(
            f"Batch {batch} of the query before is partly lost, and only that query can complete "
            f"it. Nothing was changed. Start it once more with its checkpoint; or go on without "
            f"what is missing: 'eo-kafka job repair {options.job} --batch {batch} --accept-loss "
            "--bootstrap-servers ...'. Then start this one."
        )
    came_from = _check_continues(options, coordinator.ledger)
    tokens_from = coordinator.barrier  # all tokens of the last query's stand before it
    crash_point("reset.before_write")

    def attempt(ledger: Ledger) -> Write:
        new = came_from
        if ledger.owner == options.query_id:  # it has landed, and the answer was lost
            new = ledger.succession
        else:
            replaced = (*ledger.succession.replaced, ledger.owner or "")
            new = replace(came_from, replaced=replaced, name=options.query_name or "")
        written = [
            *forgotten(options, ledger),
            *owned(options.query_id or "", new, place_of(checkpoint_of(options))),
        ]
        if options.one_phase:
            written.append((records.ONE_PHASE_KEY, records.encode_one_phase(tokens_from)))
        return Write(written)

    sentence = _sentence(options, coordinator.ledger)
    coordinator.write(generation, attempt)
    log.warning("%s", sentence)
    crash_point("reset.after_write")


def _sentence(options: SinkOptions, ledger: Ledger) -> str:
    """The option may stand there for years when a checkpoint is lost, and no refresh is meant."""
    what = "this one goes on there."
    if options.on_reset != CONTINUE:
        what = (
            "this one reads and writes everything again, beside what is there, from where its "
            "readers' 'startingOffsets' say. If that is not meant, stop it, and start with a new "
            "checkpoint and 'startingOffsets' of that end."
        )
        found = passed_over.find(options, ledger)
        if found.begins:
            what += f" But {found.between}, as the readers' options say."
        elif not found.is_known:
            what += (
                " Where each reader begins is not known here: one without 'startingOffsets' starts "
                "at 'latest', and what came since that end is read by neither."
            )
    return (
        f"Query {options.query_id} has taken job '{options.job}' over from query {ledger.owner} "
        f"(option 'onReset' is '{options.on_reset}'), which ended at "
        f"{shown(ledger.ends(options.sink))}: {what}"
    )


def owned(query_id: str, succession: Succession, place: str) -> list[Record]:
    """What names the ledger's owner, and where its checkpoint is."""
    owner = (records.OWNER_KEY, records.encode_owner(query_id, place))
    if succession == Succession():
        return [owner]
    return [owner, (SUCCESSION_KEY, encode_succession(succession))]


def moved(
    options: SinkOptions, ledger: Ledger, query_id: str | None, checkpoint: Checkpoint | None
) -> list[Record]:
    """What has the ledger learn where its owner's checkpoint is now: S1, or S6 where only the tasks
    are told. A copy of a checkpoint has the query's id, too, so two queries may come in turns, and
    each is told."""
    here = place_of(checkpoint)
    if ledger.owner is None or ledger.owner != query_id or here in ("", ledger.checkpoint):
        return []
    if ledger.checkpoint:
        log.warning(
            "Job '%s' goes on with checkpoint '%s'; until now it had '%s'. If it was moved, that "
            "is all. If it was copied, and both are used, two queries share one job, and each "
            "passes over what the other has written: stop this one, and give it its own 'jobName' "
            "and a new checkpoint.",
            *(options.job, here, ledger.checkpoint),
        )
    return owned(ledger.owner, Succession(), here)


def forgotten(options: SinkOptions, ledger: Ledger) -> list[Record]:
    """What takes a job's batches, snapshot and way to commit out of its ledger. The next snapshot,
    whoever's it is, removes what this one leaves in the state topic."""
    snapshot: list[Record] = []
    if ledger.snapshot is not None or ledger.loading_from is not None:
        topic = ledger.snapshot.topic if ledger.snapshot is not None else ledger.loading_topic
        loading = records.encode_loading(0, topic)
        snapshot = [(records.SNAPSHOT_KEY, None), (records.LOADING_KEY, loading)]
    mine = ledger.tombstones(options.sink, keep=0)
    return [*one_phase_recovery.forgotten(ledger), *snapshot, *mine]


def _check_continues(options: SinkOptions, ledger: Ledger) -> Succession:
    """With `onReset=continue`: from where the query goes on. Raises ForeignLedger if it cannot, or
    does not."""
    if options.on_reset != CONTINUE:
        return Succession()
    ends = ledger.ends(options.sink)
    checkpoint = open_checkpoint(options.checkpoint or "")
    planned = planned_batch(checkpoint, 0, NOT_PLANNED).ends
    problem = ""
    if any(path.startswith("state/") for path in checkpoint.paths()):
        problem = "the query keeps state, which the ledger does not hold"
    elif not ends:
        problem = "the ledger does not say where the sources of the query before ended"
    elif any(is_of_nothing(line) or not is_replayable(line) for line in ends):
        problem = "a source of the query before was not Kafka, or had read nothing"
    elif others := _continued(planned) - {options.job_and_ledger[1]}:
        problem = f"a reader went on by another ledger, {_quoted(others)}: its 'jobName' differs"
    elif not same_lines(planned, ends):
        problem = (
            f"its sources start at {shown(planned)}, and the query before ended at {shown(ends)}. "
            "Every reader needs format 'eo-kafka' and the sink's 'jobName', and 'onReset' "
            "'continue', too; if they have them, the query before has gone on meanwhile"
        )
    if problem:
        raise ForeignLedger(
            f"This query cannot continue job '{options.job}' (option 'onReset'): {problem}. "
            f"Nothing was written or skipped. {_WAYS}"
        )
    newest = ledger.of_sink(options.sink)
    ids = newest[max(newest)].source_ids if newest else ledger.succession.source_ids
    return Succession(continued_from=ends, source_ids=ids)


_WAYS = (
    "Correct that, delete this new checkpoint (a pipeline: full refresh again) and start again; or "
    "start with the old checkpoint; or choose 'new-job', which reads and writes everything again, "
    "from 'startingOffsets' on (without it, from 'latest')."
)


def check_first(options: SinkOptions, identity: BatchIdentity, ledger: Ledger, rows: int) -> None:
    """S6 of a ledger's first batch: raise CheckpointError if a pipeline's checkpoint was moved; or
    unless, after `onReset=continue`, the batch begins where the query before ended. The source
    shows that by a batch 0 that ends there and holds nothing."""
    if ledger.of_sink(options.sink):
        return
    came_from = ledger.succession.continued_from
    if options.job_of_flow and identity.batch and not came_from:
        raise CheckpointError(
            f"Batch {identity.batch} is this flow's next one, and its ledger, of job "
            f"'{options.job}', has none before it. A flow without option 'jobName' is named after "
            "its pipeline's 'storage': that was moved, or another version of eo-kafka or another "
            "sink wrote the batches before. Nothing was written. Give the sink the 'jobName' that "
            "its ledger has ('eo-kafka job show JOB'), or, if there is none, "
            f"'{options.job}' or any other."
        )
    if not came_from:
        return
    begins = identity.starts if identity.batch else identity.ends
    if same_lines(begins, came_from) and (identity.batch or not rows):
        return
    found = f"batch 0 has {rows:,} rows" if same_lines(begins, came_from) else shown(begins)
    raise CheckpointError(
        f"Job '{options.job}' is to continue at {shown(came_from)} (option 'onReset'), and this "
        f"query does not start there: {found}. Nothing of batch {identity.batch} is visible. Its "
        "readers need 'jobName' and 'onReset' 'continue', too; if they have them, and it was ended "
        f"in its first batch, start it once more. {_WAYS}"
    )
