"""The driver's part of a batch: S6 decide, S7 finish, S8 done; and abort.

Spark builds a fresh writer in a fresh process for each call, so all that is known comes from the
tasks' reports and the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from ...clients.kafka import control_plane
from ...clients.kafka.control_plane import ControlPlane
from ...core.crash_points import crash_point
from ...core.errors import Fenced, LedgerError, OutcomeUnknown, ParticipantsLost, RepairNeeded
from ...core.transaction import Decision, DecisionState, IllegalMove, Participant
from ...state.ledger import records
from ...state.ledger.coordinator import Coordinator, Write
from ...state.ledger.ledger import Ledger, with_state
from ...state.ledger.topics import TOKEN_PARTITION
from ..options import SinkOptions
from . import batch_identity, one_phase_recovery
from .batch_identity import BatchIdentity
from .committable import TaskReport, Torn, torn_of
from .finisher import Finisher
from .prepared_check import check_prepared
from .recovery import settle
from .snapshots import Snapshots
from .stragglers import end_all, end_listed, list_open

log = logging.getLogger(__name__)


def commit(options: SinkOptions, reports: Sequence[TaskReport], batch: int) -> None:
    """Make the batch's rows visible, all of them or, if this raises, by a later start or replay.

    Returns only when every participant's token is visible: then Spark writes its commit log.
    Raises Undecided (replayed freely), ParticipantsLost, RepairNeeded, BatchMismatch, Fenced,
    OutcomeUnknown.
    """
    _check_reports(reports, batch)
    control = control_plane.shared(options.kafka)
    coordinator = Coordinator(options, control)
    identity = BatchIdentity.of(options, reports[0])
    snapshots = Snapshots.of(options, control, reports[0], identity.ends)
    if all(report.skipped for report in reports):
        # A replay of a batch that is DONE, S1 saw to that: if it is the same batch.
        written = coordinator.read(fenced=False)
        batch_identity.check_written(options, identity, written, reports)
        return
    try:
        decision = _decide(options, control, coordinator, reports, identity, snapshots)
        crash_point("S6.after_decision")
        finisher = Finisher(options, control, coordinator)
        if decision.state is DecisionState.DONE:
            finisher.end_others(decision)  # an attempt may have opened one, and lost
        else:
            missing = finisher.finish(decision).missing
            if missing:
                raise ParticipantsLost(_lost_sentence(decision, missing, options))
            settle(coordinator, decision.generation, with_state(decision, DecisionState.DONE))
            finisher.forget(decision)
    except OutcomeUnknown:
        control_plane.forget(options.kafka)
        raise
    coordinator.keep()
    crash_point("S8.after_done")


def abort(
    options: SinkOptions, reports: Sequence[TaskReport | None], generation: int | None = None
) -> None:
    """Abort what the tasks prepared and nothing decided; if `generation`, this driver's last, is
    still the newest, whatever else this sink has open, too: of attempts that did not report.

    Spark calls this also when `commit` failed, with all reports, and when the query is stopped in
    the middle of a batch, with those that there are. Raises what a cluster that is away makes it
    raise: the next S1 does what is left.
    """
    known = [report for report in reports if report is not None]
    prepared = [report.prepared for report in known if report.prepared is not None]
    mine = known[0].generation if known else generation
    if mine is None:
        return
    control = control_plane.shared(options.kafka)
    coordinator = Coordinator(options, control)
    newest = coordinator.read(fenced=False).generation
    if newest <= mine:  # not fenced, a read may end before one's own
        # A decision of ours may still be on its way. A newer driver's fence has settled that, and
        # it must not be fenced by us.
        with suppress(Fenced):
            coordinator.take_again(mine)
        newest = coordinator.ledger.generation
    decided = {
        part.identity
        for decision in coordinator.ledger.decisions.values()
        for part in decision.participants
    }
    crash_point("abort.before_end_txn")
    undecided = [part for part in prepared if part.identity not in decided]
    version = known[0].end_txn_version if known else control.end_txn_version()
    end_all(control, [part.identity for part in undecided if part.has_transaction], version)
    if newest == mine:
        found = list_open(control, options.ids, options.sink)
        others = [one for one in found if one.identity not in decided]
        end_listed(control, options.ids, coordinator.identity, others, version)
    if known and options.staging is not None:
        options.staging.discard(options, coordinator.ledger, known[0].batch, prepared)


def _check_reports(reports: Sequence[TaskReport], batch: int) -> None:
    facts = {(report.batch, report.generation, report.round) for report in reports}
    if len(facts) != 1 or next(iter(facts))[0] != batch:
        raise LedgerError(
            f"The reports of batch {batch} contradict each other (batch, generation, round): "
            f"{sorted(facts)}. Nothing is decided; start the query again."
        )


def _decide(
    options: SinkOptions,
    control: ControlPlane,
    coordinator: Coordinator,
    reports: Sequence[TaskReport],
    identity: BatchIdentity,
    snapshots: Snapshots | None,
) -> Decision:
    """S6: write the decision, after making sure that it may be written."""
    first = reports[0]
    decided: list[Decision] = []

    def attempt(ledger: Ledger) -> Write | None:
        coordinator.check_owner(first.query_id)
        previous = ledger.decisions.get((options.sink, first.batch))
        if previous and (previous.round, previous.generation) == (first.round, first.generation):
            decided[:] = [previous]  # an earlier attempt landed; its answer was lost
            return Write([_record(previous)])  # once more: it proves that the fence is ours
        batch_identity.check_decided(options, identity, ledger)
        decision = _decision(options, previous, reports)
        _check_replacements(control, reports, options)
        snapshot = snapshots.take(coordinator, ledger) if snapshots else Write([])
        source_ids = check_prepared(control, reports, options, identity, ledger)
        batch_identity.check_sources(options, first.batch, ledger, source_ids)
        decision = identity.on(decision, source_ids, repeatable=options.snapshots)
        crash_point("S6.before_decision")
        decided[:] = [decision]
        owner = [(records.OWNER_KEY, records.encode_owner(first.query_id))]
        done = decision.state is DecisionState.DONE  # of another S8 makes room
        written = [
            _record(decision),
            *(owner if not ledger.owner else []),
            *one_phase_recovery.ends(options, ledger),
            *(ledger.tombstones(options.sink) if done else []),
            *snapshot.records,
        ]
        return Write(written, snapshot.state)

    crash_point("S6.before_fence")
    coordinator.look_whether_replaced(first.coordinator, first.generation)
    coordinator.write(first.generation, attempt)
    return decided[0]


def _record(decision: Decision) -> tuple[bytes, bytes]:
    key = records.decision_key(decision.sink, decision.batch, decision.round)
    return key, records.encode_decision(decision)


def _decision(
    options: SinkOptions,
    previous: Decision | None,
    reports: Sequence[TaskReport],
) -> Decision:
    """What to decide: the prepared transactions, and those of an earlier round that committed."""
    first, torn = reports[0], torn_of(reports)
    participants = [report.participant for report in reports if report.participant is not None]
    if torn is not None:
        participants += torn.committed
    decision = Decision(
        sink=options.sink,
        batch=first.batch,
        round=first.round,
        # An empty batch has nobody to wait for, nor has one whose tasks have committed.
        state=DecisionState.DECIDED if any(r.prepared for r in reports) else DecisionState.DONE,
        generation=first.generation,
        end_txn_version=first.end_txn_version,
        token_partition=TOKEN_PARTITION,
        # The tokens of an earlier round stand before those of this one.
        token_from=torn.decision.token_from if torn else first.token_from,
        participants=tuple(sorted(participants, key=lambda part: part.partition)),
    )
    try:
        decision.check_follows(previous)
    except IllegalMove as error:
        raise LedgerError(
            f"The ledger does not allow this commit ({error}). Nothing was decided now."
        ) from None
    return decision


def _check_replacements(
    control: ControlPlane, reports: Sequence[TaskReport], options: SinkOptions
) -> None:
    """Of a torn batch, each partition must come back with equal rows, also those that are committed
    (of a decided one no other may have rows), or writing the rest would repeat or lose some."""
    torn = torn_of(reports)
    if torn is None:
        return
    replayed = {report.partition: (report.rows, report.digest) for report in reports}
    known = torn.missing if options.staging is not None else torn.decision.participants
    unequal = [part for part in known if replayed.get(part.partition) != (part.rows, part.digest)]
    there = {part.partition for part in torn.decision.participants}
    more = [report for report in reports if report.rows and report.partition not in there]
    if not torn.decided:
        more = []  # nobody knows what else there was
    if not unequal and not more:
        return
    if options.staging is not None:
        options.staging.check_unequal(torn.decision, unequal)
        return
    prepared = [report.prepared for report in reports if report.prepared is not None]
    mine = [part.identity for part in prepared if part.has_transaction]
    end_all(control, mine, reports[0].end_txn_version)
    raise RepairNeeded(_repair_sentence(torn, unequal, more, options))


def _repair_sentence(
    torn: Torn,
    unequal: Sequence[Participant],
    more: Sequence[TaskReport],
    options: SinkOptions,
) -> str:
    batch = torn.decision.batch
    lost = torn.missing if torn.decided else torn.committed
    partitions, rows = [part.partition for part in lost], sum(part.rows for part in lost)
    happened = (
        f"Batch {batch} was decided, and Kafka aborted the transactions of partitions {partitions} "
        f"({rows} rows) before they were committed; the rest is committed."
        if torn.decided
        else f"Batch {batch} was interrupted when its tasks of partitions {partitions} ({rows} "
        "rows) had committed (commit=idempotent)."
    )
    other = sorted([*(p.partition for p in unequal), *(report.partition for report in more)])
    return (
        f"{happened} The replay's rows of partitions {other} are not the same, so nothing was "
        f"written. The batch's input range is in offsets/{batch} of the checkpoint. Start the "
        "query as it was when the batch first ran (same plan, same number of tasks): it then "
        "completes the batch. Or, to go on without the missing rows: 'eo-kafka job repair "
        f"{options.job} --batch {batch} --accept-loss --bootstrap-servers ...'."
    )


def _lost_sentence(decision: Decision, missing: Sequence[Participant], options: SinkOptions) -> str:
    if any(part.staged and not part.has_transaction for part in missing):
        return (
            f"Batch {decision.batch} was decided, and the staged rows of partitions "
            f"{[part.partition for part in missing]} ({sum(part.rows for part in missing)} "
            "rows) is gone: members were lost with all copies. Nothing is lost: start the "
            "query again; it writes what is missing."
        )
    topics = ", ".join(sorted({name for part in missing for name, _ in part.topics}))
    return (
        f"Batch {decision.batch} was decided, but Kafka had aborted the transactions of partitions "
        f"{[part.partition for part in missing]} ({sum(part.rows for part in missing)} rows): "
        f"they were open for longer than kafka.transaction.timeout.ms "
        f"({options.transaction_timeout_ms}), or another program uses the transactional ids under "
        f"'{options.prefix}', or a topic they wrote to was deleted and made again ({topics}). "
        "Nothing is lost: start the query again; it writes what is missing."
    )
