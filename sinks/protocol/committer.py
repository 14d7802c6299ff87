"""The driver's part of a batch: S6 decide, S7 finish, S8 done; and abort.

Spark builds a fresh writer for each call, often in another process, so all that is known comes from
the tasks' reports and the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from ...clients.kafka import control_plane
from ...clients.kafka.config import contact
from ...core.crash_points import crash_point
from ...core.errors import Fenced, LedgerError, OutcomeUnknown, ParticipantsLost
from ...core.patience import served
from ...core.transaction import Decision, DecisionState, Participant
from ...state.ledger.coordinator import Coordinator, Write
from ...state.ledger.ledger import Ledger, with_state
from ..batches import batch_checks, source_checks
from ..batches.batch_identity import BatchIdentity
from ..batches.committable import TaskReport
from ..options import SinkOptions
from ..transactions.stragglers import end_all, end_listed, list_open
from .batch_figures import DECIDE, DONE, FINISH, SNAPSHOT, Course
from .commit_plan import CommittedBatch, plan
from .finisher import Finisher
from .recovery import settle
from .snapshots import Snapshots

log = logging.getLogger(__name__)


def commit(options: SinkOptions, reports: Sequence[TaskReport], batch: int) -> Course:
    """Make the batch's rows visible, all of them or, if this raises, by a later start or replay.

    Returns only when every participant's token is visible: then Spark writes its commit log. What
    it returns is for people: what the steps took.
    Raises Undecided (replayed freely), ParticipantsLost, RepairNeeded, BatchMismatch, Fenced,
    OutcomeUnknown.
    """
    _check_reports(reports, batch)
    course = Course()
    control = control_plane.shared(options.kafka)
    committed = [part for report in reports if report.committed and (part := report.participant)]
    coordinator = Coordinator(
        options,
        control,
        {*_written(committed), *filter(None, [options.state_topic])},
        [part.identity for part in committed],
    )
    identity = BatchIdentity.of(options, reports[0])
    snapshots = Snapshots.of(options, control, reports[0], identity.planned)
    ready = CommittedBatch(options, control, coordinator, reports, identity, snapshots, course)
    if all(report.skipped for report in reports):
        # A replay of a batch that is DONE, S1 saw to that: if it is the same batch.
        written = coordinator.read(fenced=False)
        batch_checks.check_written(options, identity, written, reports)
        if identity.keeps_state:
            # The sink's principal need not be allowed to see what the sources read.
            now = control.look(others=identity.topic_ids).topic_ids
            source_checks.check_state(options, identity, written, now)
        course.lap(DECIDE)
        if snapshots is not None and _lacks_snapshot(options, batch, written):
            _take_first(ready, snapshots)
        return course
    try:
        decision = _decide(ready)
        course.lap(DECIDE)
        crash_point("S6.after_decision")
        finisher = Finisher(options, control, coordinator, wrote=ready.wrote or None)
        if decision.state is DecisionState.DONE:
            finisher.end_others(decision)  # an attempt may have opened one, and lost
            if finisher.aborted:
                coordinator.settle()
            course.lap(FINISH)
        else:
            missing = finisher.finish(decision).missing
            course.lap(FINISH)
            if missing:
                raise ParticipantsLost(_lost_sentence(decision, missing, options))
            settle(coordinator, decision.generation, with_state(decision, DecisionState.DONE))
            finisher.forget(decision)
            course.lap(DONE)
        course.aborted = finisher.aborted
    except OutcomeUnknown:
        control_plane.forget(options.kafka)
        raise
    coordinator.keep()
    served(contact(options.kafka))
    crash_point("S8.after_done")
    course.snapshot = snapshots.taken if snapshots else None
    return course


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
    outputs = options.outputs | _written([part for part in prepared if part.has_transaction])
    coordinator = Coordinator(options, control, outputs)
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
    if unseen := coordinator.settle():
        log.warning(
            "What was open of the batch is aborted. Partitions %s have no leader now: Kafka 4.3.0 "
            "to 4.4.0 then leave that out there (KAFKA-20734), and their readers stand still until "
            "the query is started again, or 'eo-kafka txn abort --topic' writes it.",
            sorted(unseen),
        )
    if known and options.staging is not None:
        generations = {decision.generation for decision in coordinator.ledger.decisions.values()}
        left = [part for part in prepared if part.staged and part.generation not in generations]
        if left:
            options.staging.discard(options, coordinator.ledger, known[0].batch, left)


def _written(parts: Sequence[Participant]) -> set[str]:
    return {name for part in parts for name, _ in part.topics}


def _check_reports(reports: Sequence[TaskReport], batch: int) -> None:
    facts = {(report.batch, report.generation, report.round) for report in reports}
    if len(facts) != 1 or next(iter(facts))[0] != batch:
        raise LedgerError(
            f"The reports of batch {batch} contradict each other (batch, generation, round): "
            f"{sorted(facts)}. Nothing is decided; start the query again."
        )


def _decide(batch: CommittedBatch) -> Decision:
    """S6: write the decision, after making sure that it may be written."""
    first, coordinator = batch.reports[0], batch.coordinator
    decided: list[Decision] = []

    def attempt(ledger: Ledger) -> Write:
        coordinator.check_owner(first.query_id)
        made = plan(batch, ledger)
        decided[:] = [made.decision]
        return made.write()

    crash_point("S6.before_fence")
    coordinator.look_whether_replaced(first.coordinator, first.generation)
    coordinator.write(first.generation, attempt)
    return decided[0]


def _lacks_snapshot(options: SinkOptions, batch: int, ledger: Ledger) -> bool:
    """Whether the batch is the newest, and a lost checkpoint could not be restored: the job was
    made by start-from, say. Until there is new input, no decision takes a snapshot."""
    return ledger.snapshot is None and batch == max(ledger.of_sink(options.sink), default=None)


def _take_first(batch: CommittedBatch, snapshots: Snapshots) -> None:
    """A snapshot of a batch that is written already."""
    first, coordinator = batch.reports[0], batch.coordinator

    def attempt(ledger: Ledger) -> Write | None:
        coordinator.check_owner(first.query_id)
        if not _lacks_snapshot(batch.options, first.batch, ledger):
            return None  # an earlier attempt landed, its answer was lost
        return snapshots.take(coordinator, ledger)

    coordinator.look_whether_replaced(first.coordinator, first.generation)
    coordinator.write(first.generation, attempt)
    batch.course.lap(SNAPSHOT)
    batch.course.snapshot = snapshots.taken


def _lost_sentence(decision: Decision, missing: Sequence[Participant], options: SinkOptions) -> str:
    if any(part.staged and not part.has_transaction for part in missing):
        return (
            f"Batch {decision.batch} was decided, and the staged rows of partitions "
            f"{[part.partition for part in missing]} ({sum(part.rows for part in missing)} "
            "rows) are not there any more. Nothing is lost: start the query again; it writes what "
            "is missing."
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
