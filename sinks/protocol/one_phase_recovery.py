"""S1 for `commit=idempotent`: finds out which tasks of an interrupted batch had committed.

And it records which batch is about to run: interrupted, it could not be completed if its checkpoint
were lost, and with it which records it had.

Runs on the driver, in each S1 from the first with that option until a two-phase commit has decided
a batch: the option may be changed between two starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...clients.kafka.control_plane import ControlPlane
from ...core.errors import CorruptLedger, Undecided
from ...core.transaction import (
    NO_TRANSACTION,
    Begun,
    Decision,
    DecisionState,
    Participant,
    Token,
)
from ...state.ledger import records
from ...state.ledger.appender import Record
from ...state.ledger.ledger import Ledger
from ...state.ledger.settled_tokens import read_tokens, visible_tokens
from ...state.ledger.topics import TOKEN_PARTITION
from ...state.snapshots.checkpoint import open_checkpoint
from ...state.snapshots.offset_log import parse
from ..batches.batch_checks import check_decided
from ..batches.batch_identity import BatchIdentity, Plans, next_batch
from ..batches.committable import TaskReport, Torn
from ..options import SinkOptions
from .finisher import Finisher

PLAN_MAX = 1 << 20  # characters; of some 10,000 topics


def about_to_run(options: SinkOptions, ledger: Ledger, plans: Plans) -> Begun | None:
    """The next batch as Spark planned it; None if it is not planned yet, as where one is repeated
    that is decided. Raises CheckpointError."""
    if not options.one_phase:
        return None
    if options.checkpoint is None:
        return Begun(max(ledger.of_sink(options.sink), default=-1) + 1, "")
    batch = next_batch(options, ledger, plans)
    plan = plans(batch)
    return Begun(batch, plan if len(plan) <= PLAN_MAX else "") if plan else None


def check_begins(options: SinkOptions, ledger: Ledger, plans: Plans) -> None:
    """Before tasks commit by themselves, which may not be taken back: raise BatchMismatch where the
    batch that is about to run would not be decided. With an older checkpoint whose state was then
    repartitioned, it has a new number and reads what is written (the model found this)."""
    if not options.one_phase or options.checkpoint is None:
        return
    batch = next_batch(options, ledger, plans)
    if plan := plans(batch):
        starts = parse(plans(batch - 1)).ends if batch else ()
        checkpoint = open_checkpoint(options.checkpoint)
        mine = BatchIdentity(batch, options.target, starts, parse(plan), checkpoint)
        check_decided(options, mine, ledger)


def begins(ledger: Ledger, mine: Begun | None, *, may_be_torn: bool) -> list[Record]:
    """What names the batch that is about to run, unless the ledger has it. Where the ledger has
    the same batch with another end, or a later one, from another checkpoint, tasks of that may have
    committed: it stays until it is known that none has (the model found this)."""
    known = ledger.begun
    if mine is None or mine == known:
        return []
    has_another = known is not None and known.batch >= mine.batch
    # One that an eo-kafka of before ran may be torn, too: it recorded none.
    is_unknown = known is None and ledger.one_phase_from is not None
    if may_be_torn and (has_another or is_unknown):
        return []
    return [(records.BEGUN_KEY, records.encode_begun(mine))] if has_another or mine.plan else []


def starts(options: SinkOptions, control: ControlPlane, ledger: Ledger) -> list[Record]:
    """What is written with the generation whose tasks are the first to commit by themselves."""
    if not options.one_phase or ledger.one_phase_from is not None:
        return []
    _, topic = options.job_and_ledger
    tokens_from = control.end_offset(topic, TOKEN_PARTITION, committed=False)
    return [(records.ONE_PHASE_KEY, records.encode_one_phase(tokens_from))]


def ends(options: SinkOptions, ledger: Ledger) -> list[Record]:
    """What is written with a decision after which tokens count by decisions only again."""
    over = ledger.one_phase_from is not None and not options.one_phase
    return forgotten(ledger) if over else []


def forgotten(ledger: Ledger) -> list[Record]:
    """What takes out of the ledger that tasks commit by themselves."""
    begun: list[Record] = [(records.BEGUN_KEY, None)] if ledger.begun else []
    return [(records.ONE_PHASE_KEY, None), *begun]


def check_named(options: SinkOptions, control: ControlPlane, reports: Sequence[TaskReport]) -> None:
    """S6: raise Undecided if a token of the batch is visible that no report speaks for. An attempt
    had committed, its report was lost, and the next one brought no rows: so it had not looked."""
    first = reports[0]
    mine = (options.sink, first.batch, first.round, first.generation)
    named = {(part.partition, part.digest) for r in reports if (part := r.participant)}
    lost = [
        token
        for token in visible_tokens(options, control, TOKEN_PARTITION, first.token_from)
        if (token.sink, token.batch, token.round, token.generation) == mine
        and (token.partition, token.digest) not in named
    ]
    if lost:
        raise Undecided(
            f"Batch {first.batch} of job '{options.job}' is not decided: attempts of its tasks of "
            f"partitions {[token.partition for token in lost]} had committed "
            f"{sum(token.rows for token in lost)} rows (commit=idempotent), and their next "
            "attempts brought none. These rows are visible, and may be in other partitions, too. "
            "commit=idempotent is for queries that give the same rows to the same partitions each "
            "time; use commit=two-phase for this one."
        )


def find_torn(
    options: SinkOptions,
    control: ControlPlane,
    ledger: Ledger,
    finisher: Finisher,
    version: int,
    barrier: int,
) -> Torn | None:
    """The batch after the newest decided one, if tasks of it are committed.

    The caller has fenced the coordinator and then written a record into the token partition, which
    ends at `barrier`: what does not stand before that will not commit. Raises CorruptLedger,
    OutcomeUnknown.
    """
    newest = max(ledger.of_sink(options.sink).values(), key=lambda at: at.batch, default=None)
    start = max(ledger.one_phase_from or 0, newest.token_from if newest else 0)
    tokens = read_tokens(
        options,
        control,
        TOKEN_PARTITION,
        (start, barrier),
        lambda: finisher.abort_stragglers(version),
        0.0,
        whole=False,
    )
    settled = (newest.batch, newest.round) if newest else (-1, -1)
    found = [
        token
        for token in tokens
        if token.sink == options.sink and (token.batch, token.round) > settled
    ]
    if named := {name for token in found for name, _ in token.topics}:
        # What went with its topic is as if it had never been committed: a replay writes it again.
        gone = finisher.gone(found, found[0].batch, control.topic_ids(named))
        found = [token for token in found if token not in gone]
    if not found:
        return None
    _check_one_batch(found)
    decision = _as_decision(options, found, start, version)
    begun = ledger.interrupted(options.sink)
    if begun and begun.batch == decision.batch:
        decision = replace(decision, offsets=begun.ends)
    return Torn(decision, missing=(), decided=False)


def other_sink(options: SinkOptions, torn: Torn) -> str:
    """That a torn batch cannot be completed where rows are staged, of which nobody knows which are
    the ones that are visible."""
    batch, parts = torn.decision.batch, torn.committed
    topics = sorted({name for part in parts for name, _ in part.topics})
    rows = sum(part.rows for part in parts)
    return (
        f"Batch {batch} of job '{options.job}' was interrupted when tasks had committed {rows} of "
        f"its rows to topics {topics} (commit=idempotent), and the query writes elsewhere now. "
        "Nothing was written. Start it once more with the sink that it had, and it completes it. "
        "Or, to go on without the rows that are not visible: 'eo-kafka job repair "
        f"{options.job} --batch {batch} --accept-loss --bootstrap-servers ...'."
    )


def _check_one_batch(found: list[Token]) -> None:
    rounds = {(token.batch, token.round) for token in found}
    partitions = [token.partition for token in found]
    if len(rounds) > 1 or len(set(partitions)) < len(partitions):
        raise CorruptLedger(
            f"The tokens of (batch, round) {sorted(rounds)} say that a task committed twice or "
            f"in the wrong order (partitions {sorted(partitions)[:20]}). Nothing was written "
            "now. Compare input and output with 'eo-kafka verify', and report this."
        )


def _as_decision(
    options: SinkOptions, found: list[Token], start: int, end_txn_version: int
) -> Decision:
    return Decision(
        sink=options.sink,
        batch=found[0].batch,
        round=found[0].round,
        state=DecisionState.DECIDED,
        generation=found[0].generation,
        end_txn_version=end_txn_version,
        token_partition=TOKEN_PARTITION,
        token_from=start,
        participants=tuple(
            Participant(
                partition=token.partition,
                round=token.round,
                generation=token.generation,
                identity=NO_TRANSACTION,  # it has ended: nobody will name it to the broker
                rows=token.rows,
                digest=token.digest,
                topics=token.topics,
            )
            for token in sorted(found, key=lambda token: token.partition)
        ),
    )
