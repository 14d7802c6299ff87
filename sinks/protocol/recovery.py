"""S1: takes over from earlier drivers, and finishes or aborts what they left.

Runs on the driver when Spark pickles the writer for the tasks, once a micro-batch. Nobody can tell
a new driver from the old one's next batch, and nobody needs to: each takes a new generation.
"""

from __future__ import annotations

import logging

from ...clients.kafka import control_plane
from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.transactional_id import GENERATION_SLOTS
from ...core.crash_points import crash_point
from ...core.errors import OutcomeUnknown, RepairNeeded
from ...core.process.moment import Moment
from ...core.transaction import Begun, Decision, DecisionState
from ...state.ledger import records
from ...state.ledger.coordinator import ATTEMPTS, Coordinator, Write
from ...state.ledger.ledger import fold, with_state, without_participants
from ..batches import batch_checks, batch_identity
from ..batches.committable import Torn, WritePlan
from ..batches.renamed import check_not_renamed
from ..options import SinkOptions
from . import on_reset, one_phase_recovery, preflight
from .finisher import Finisher

log = logging.getLogger(__name__)


def make_plan(options: SinkOptions, *, by_hand: bool = False) -> WritePlan:
    """Fence, take a generation, roll forward what was decided, abort what was not.

    `by_hand`: an operator's command, which may take rows for granted that went with their topic or
    whose tokens are lost, and an empty ledger for a new one. Raises ForeignLedger, LedgerError,
    Fenced, RepairNeeded, EnvironmentRefused or OutcomeUnknown; then no task is started.
    """
    preflight.ensure(options)
    control = control_plane.shared(options.kafka)
    coordinator = Coordinator(options, control, options.outputs)
    try:
        token_from, version = coordinator.look_first(may_be_new=by_hand)
        _check_is_mine(coordinator, options, fenced=False)
        if not by_hand:
            check_not_renamed(options, coordinator, control)
        plans = batch_identity.plans_of(options)
        generation, next_batch = _take_generation(coordinator, control, options, plans)
        finisher = Finisher(options, control, coordinator, by_hand=by_hand)
        unfinished = coordinator.ledger.unfinished()
        torn = _roll_all_forward(coordinator, finisher, generation, options)
        finisher.abort_stragglers(version)
        if unfinished:  # what is left of a batch that is VOID now is in the way of its next try
            _read_settled(coordinator, generation)
        if options.staging is not None:
            options.staging.make_room(options, coordinator.ledger, generation)
        one_phase = coordinator.ledger.one_phase_from is not None
        if torn is None and one_phase:
            torn = one_phase_recovery.find_torn(
                options, control, coordinator.ledger, finisher, version, coordinator.barrier
            )
            if torn is not None and options.staging is not None and not by_hand:
                raise RepairNeeded(one_phase_recovery.other_sink(options, torn))
        if one_phase:
            _read_settled(coordinator, generation)
        if on_reset.is_new_query(options, coordinator):
            on_reset.take_over(options, coordinator, generation, torn)
            _read_settled(coordinator, generation)
            next_batch = one_phase_recovery.about_to_run(options, coordinator.ledger, plans)
        if torn is None:
            one_phase_recovery.check_begins(options, coordinator.ledger, plans)
            _write_begun(coordinator, generation, next_batch)
    except OutcomeUnknown:
        control_plane.forget(options.kafka)
        raise
    if coordinator.identity is None:
        raise OutcomeUnknown("Nothing was written after the last fence.")
    decisions = coordinator.ledger.of_sink(options.sink)
    coordinator.keep()
    return WritePlan(
        generation=generation,
        coordinator=coordinator.identity,
        owner=coordinator.ledger.owner,
        end_txn_version=version,
        token_from=token_from,
        decisions={
            batch: found
            if _is_asked_for(found, generation, options)
            else without_participants(found)
            for batch, found in decisions.items()
        },
        torn=torn,
        began=Moment.now(),
        planned=batch_identity.planned(options, coordinator.ledger, plans),
        ledger_id=coordinator.ledger.topic_id,
        aborted=finisher.aborted,
    )


def _is_asked_for(decision: Decision, generation: int, options: SinkOptions) -> bool:
    """Whether tasks look at who took part: in the last use of their ids (one_phase.py). The plan
    goes to every task, and a hundred batches of two hundred participants are megabytes."""
    return options.one_phase and generation - decision.generation == GENERATION_SLOTS


def _take_generation(
    coordinator: Coordinator,
    control: ControlPlane,
    options: SinkOptions,
    plans: batch_identity.Plans,
) -> tuple[int, Begun | None]:
    """Write the next generation in a committed coordinator transaction. It commits only if nobody
    has fenced since, so what was read before it, and it, is all of the ledger at that moment.
    Returns it, and the batch that is about to run, if its tasks commit by themselves."""
    for _ in range(ATTEMPTS):
        coordinator.fence()
        crash_point("S1.after_fence")
        generation = coordinator.read().generation + 1
        _check_is_mine(coordinator, options, fenced=True)
        record = (records.GENERATION_KEY, records.encode_generation(generation))
        next_batch = one_phase_recovery.about_to_run(options, coordinator.ledger, plans)
        written = [
            record,
            *on_reset.moved(
                options, coordinator.ledger, options.query_id, batch_identity.checkpoint_of(options)
            ),
            *one_phase_recovery.starts(options, control, coordinator.ledger),
            *one_phase_recovery.begins(coordinator.ledger, next_batch, may_be_torn=True),
        ]
        commits_by_tasks = options.one_phase or coordinator.ledger.one_phase_from is not None
        if coordinator.try_append(written, barrier=generation if commits_by_tasks else None):
            crash_point("S1.after_generation")
            fold(written, coordinator.ledger)
            return generation, next_batch
    raise OutcomeUnknown(
        f"No generation could be taken in ledger '{coordinator.topic}' in {ATTEMPTS} attempts: "
        f"{coordinator.problem}. If another driver of the same job is starting at the same time, "
        "run one of them. If none is, the brokers do not append as Kafka's do, or one is cut off."
    )


def _write_begun(coordinator: Coordinator, generation: int, next_batch: Begun | None) -> None:
    """No task of another batch of its number has committed."""
    written = one_phase_recovery.begins(coordinator.ledger, next_batch, may_be_torn=False)
    if not written:
        return
    if not coordinator.try_append(written):
        coordinator.write(generation, lambda _: Write(written))
    fold(written, coordinator.ledger)


def _check_is_mine(coordinator: Coordinator, options: SinkOptions, *, fenced: bool) -> None:
    """Who must not write is refused: before the fence, by what can be read without it, so that who
    works is not disturbed; and after it, by all there is. It is known then where it has written."""
    on_reset.is_new_query(options, coordinator)
    if options.topic is None:  # rows name them
        coordinator.markers.look_also(coordinator.ledger.written())
    if options.staging is not None:
        options.staging.check_same(options, coordinator.ledger, fenced=fenced)
    batch_checks.check_target(options, coordinator.ledger)


def _read_settled(coordinator: Coordinator, generation: int) -> None:
    """Read what was settled. What a newer driver decided since must not look so: its batch would be
    skipped here, committed in Spark's log, and could still be lost (the model found this)."""
    coordinator.read()
    coordinator.check_generation(generation)


def _roll_all_forward(
    coordinator: Coordinator, finisher: Finisher, generation: int, options: SinkOptions
) -> Torn | None:
    """What is DONE, if a table lacks it since, and then what is decided, oldest first."""
    if options.staging is not None:
        options.staging.catch_up(options, coordinator.ledger)
    torn = None
    for decision in coordinator.ledger.unfinished():
        torn = _roll_forward(coordinator, finisher, generation, decision) or torn
    return torn


def _roll_forward(
    coordinator: Coordinator, finisher: Finisher, generation: int, decision: Decision
) -> Torn | None:
    """S7 and S8 for a decision that an earlier driver left. Returns what cannot be mended here."""
    found = finisher.finish(decision)
    rows = sum(part.rows for part in found.missing)
    if found.torn:
        log.warning(
            "Batch %d: of %d decided tasks, those of partitions %s were lost, with %d rows "
            "(transactions aborted by the broker, or staged rows gone). They are written when "
            "batch %d is written again, if its rows are the same; not by another batch.",
            decision.batch,
            len(decision.participants),
            [part.partition for part in found.missing],
            rows,
            decision.batch,
        )
        return Torn(decision, found.missing)
    state = DecisionState.VOID if found.missing else DecisionState.DONE
    log.warning(
        "Batch %d, decided by an earlier driver, is now %s%s.",
        decision.batch,
        state.value,
        f": its {rows:,} rows were lost (transactions aborted "
        "by the broker, or staged rows gone). They are written when this batch is written again"
        if found.missing
        else "",
    )
    settle(coordinator, generation, with_state(decision, state))
    finisher.forget(decision)
    return None


def settle(coordinator: Coordinator, generation: int, settled: Decision) -> None:
    """S8: write a decision's final state, and tombstones for what is too old to be asked for."""
    record = records.decision_record(settled)
    if coordinator.try_append([record, *coordinator.ledger.tombstones(settled.sink)]):
        return
    coordinator.write(generation, lambda _: Write([record]))  # it may stand there twice
