"""S6, before the decision: a batch's checks, and all that its decision's transaction will write.

`plan` either refuses the batch, or returns a plan. It asks Kafka and reads the checkpoint; nothing
that a reader or a later driver could take for a decision is written before it returns. Only the
files of a large snapshot go ahead (snapshots.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.control_requests import TopicPartition
from ...core.crash_points import crash_point
from ...core.errors import LedgerError, RepairNeeded
from ...core.transaction import Decision, DecisionState, IllegalMove
from ...state.ledger import records
from ...state.ledger.appender import Record
from ...state.ledger.coordinator import Coordinator, Write
from ...state.ledger.ledger import Ledger
from ...state.ledger.topics import TOKEN_PARTITION
from ...state.snapshots.place import place_of
from ..batches import batch_checks, replay, source_checks, ways_back
from ..batches.batch_identity import BatchIdentity
from ..batches.committable import TaskReport, Torn, torn_of
from ..batches.prepared_check import check_prepared
from ..options import SinkOptions
from ..transactions.stragglers import end_all
from . import on_reset, one_phase_recovery
from .batch_figures import DECIDE, SNAPSHOT, Course
from .snapshots import Snapshots


@dataclass(frozen=True)
class CommittedBatch:
    """A batch whose tasks have all reported, and whom to ask about it."""

    options: SinkOptions
    control: ControlPlane
    coordinator: Coordinator
    reports: Sequence[TaskReport]
    identity: BatchIdentity
    snapshots: Snapshots | None
    course: Course
    wrote: set[TopicPartition] = field(default_factory=set)  # what is prepared, once it is checked


@dataclass(frozen=True)
class CommitPlan:
    """What one transaction of the coordinator writes."""

    decision: Decision
    others: Sequence[Record] = ()  # of the ledger
    snapshot: Write | None = None

    def write(self) -> Write:
        """The decision first."""
        ledger = [records.decision_record(self.decision), *self.others]
        if self.snapshot is None:
            return Write(ledger)
        return Write([*ledger, *self.snapshot.records], self.snapshot.state)


def plan(batch: CommittedBatch, ledger: Ledger) -> CommitPlan:
    """What to decide, by what the ledger holds. Driver, once a batch, and again for each attempt to
    write it. Raises what each check raises: BatchMismatch, RepairNeeded, DataLossError, Undecided,
    LedgerError."""
    options, reports, first = batch.options, batch.reports, batch.reports[0]
    previous = ledger.decisions.get((options.sink, first.batch))
    if previous and (previous.round, previous.generation) == (first.round, first.generation):
        # An earlier attempt landed, its answer was lost. Once more, to prove that the fence is ours
        return CommitPlan(previous)
    batch_checks.check_decided(options, batch.identity, ledger)
    rows = sum(report.rows for report in reports)
    on_reset.check_first(options, batch.identity, ledger, rows)
    reports = _to_commit(batch, ledger)
    decision = _decision(options, previous, reports)
    snapshot = _snapshot(batch, ledger)
    # Last, for transactions can end at any time.
    source_ids = check_prepared(
        batch.control, reports, options, batch.identity, ledger, batch.wrote
    )
    if options.one_phase:
        one_phase_recovery.check_named(options, batch.control, reports)
    source_checks.check_sources(options, batch.identity, ledger, source_ids)
    decision = batch.identity.on(decision, source_ids, repeatable=options.snapshots)
    named = replace(ledger.succession, name=options.query_name or "")
    query, place = first.query_id, batch.identity.checkpoint
    done = decision.state is DecisionState.DONE  # of another S8 makes room
    others = [
        *on_reset.moved(options, ledger, query, place),
        *([] if ledger.owner else on_reset.owned(query, named, place_of(place))),
        *one_phase_recovery.ends(options, ledger),
        *(ledger.tombstones(options.sink) if done else []),
    ]
    crash_point("S6.before_decision")
    return CommitPlan(decision, others, snapshot)


def _snapshot(batch: CommittedBatch, ledger: Ledger) -> Write | None:
    if batch.snapshots is None:
        return None
    batch.course.lap(DECIDE)
    written = batch.snapshots.take(batch.coordinator, ledger)
    batch.course.lap(SNAPSHOT)
    return written


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
        token_until=max(report.token_until for report in reports),
    )
    try:
        decision.check_follows(previous)
    except IllegalMove as error:
        raise LedgerError(
            f"The ledger does not allow this commit ({error}). Nothing was decided now."
        ) from None
    return decision


def _to_commit(batch: CommittedBatch, ledger: Ledger) -> Sequence[TaskReport]:
    """The reports, of a torn batch without what is visible already (S7 ends it). Equal rows must
    come back, or writing the rest would repeat or lose some: else RepairNeeded."""
    options, reports = batch.options, batch.reports
    torn = torn_of(reports)
    if torn is None:
        return reports
    if options.staging is not None:
        replayed = {report.partition: (report.rows, report.digest) for report in reports}
        unequal = [p for p in torn.missing if replayed.get(p.partition) != (p.rows, p.digest)]
        if unequal:
            options.staging.check_unequal(torn.decision, unequal)
        return reports
    brought = [replay.Content(one.partition, one.rows, one.digest) for one in reports]
    found = replay.compare(torn, brought)
    if found.unequal:
        prepared = [report.prepared for report in reports if report.prepared is not None]
        mine = [part.identity for part in prepared if part.has_transaction]
        end_all(batch.control, mine, reports[0].end_txn_version)
        raise RepairNeeded(_repair_sentence(batch, torn, found.unequal, ledger))
    return [
        replace(report, participant=None) if report.partition in found.visible else report
        for report in reports
    ]


def _repair_sentence(
    found: CommittedBatch, torn: Torn, unequal: Sequence[int], ledger: Ledger
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
    return (
        f"{happened} The replay's rows of partitions {list(unequal)} are not the same, so nothing "
        f"was written. {_way_on(found, torn, ledger)}"
    )


def _way_on(found: CommittedBatch, torn: Torn, ledger: Ledger) -> str:
    options, batch, now = found.options, torn.decision.batch, found.identity
    before = torn.decision.offsets
    if torn.decided or not before or not now.ends or before == now.ends:
        return (
            f"The batch's input range is in offsets/{batch} of the checkpoint. Start the query as "
            "it was when the batch first ran: it then completes the batch. That is the same plan, "
            "the same number of tasks, and the same schemas: where a schema registry has a newer "
            "one since, give its older one as 'value.schema' or 'key.schema', to source and sink. "
            f"Or, to go on without the missing rows: 'eo-kafka job repair {options.job} "
            f"--batch {batch} --accept-loss --bootstrap-servers ...'."
        )
    stateful = "a query with state needs a copy of the checkpoint that is as new as the ledger"
    if ledger.snapshot is not None:
        stateful = (
            f"of a query with state, give each reader option 'jobName' ('{options.job}'), delete "
            "the checkpoint and restore the newest snapshot: 'eo-kafka snapshots restore "
            f"{options.job} CHECKPOINT --bootstrap-servers ...'"
        )
    return (
        f"It ended at {ways_back.shown(before)} when it first ran, and ends at "
        f"{ways_back.shown(now.ends)} now: the checkpoint was lost or restored since. A query "
        f"without state completes the batch after 'eo-kafka job redo {options.job} CHECKPOINT "
        f"--bootstrap-servers ...'; {stateful}."
    )
