"""The driver's half of a batch: S6 decide, S7 finish, S8 done; and abort.

Spark builds a fresh writer in a fresh process for each call, so all that is known comes from the
tasks' reports and the ledger.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from eo_kafka.crash_points import crash_point
from eo_kafka.errors import (
    LedgerError,
    OutcomeUnknown,
    ParticipantsLost,
    RepairNeeded,
    Undecided,
)
from eo_kafka.sinks import control_plane
from eo_kafka.sinks.committable import TaskReport
from eo_kafka.sinks.control_plane import ControlPlane
from eo_kafka.sinks.coordinator import Coordinator, Record
from eo_kafka.sinks.finisher import Finisher
from eo_kafka.sinks.ledger_topic import TOKEN_PARTITION
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.recovery import settle
from eo_kafka.state import records
from eo_kafka.state.ledger import Ledger, with_state
from eo_kafka.transaction import Decision, DecisionState, IllegalMove, Participant

log = logging.getLogger(__name__)

ABORT_TIMEOUT_S = 15.0


def commit(options: SinkOptions, reports: Sequence[TaskReport], batch: int) -> None:
    """Make the batch's rows visible, all of them or, if this raises, by a later start or replay.

    Returns only when every participant's token is visible: then Spark writes its commit log.
    Raises Undecided (replayed freely), ParticipantsLost, RepairNeeded, Fenced, OutcomeUnknown.
    """
    _check_reports(reports, batch)
    if all(report.skipped for report in reports):
        return  # a replay of a batch that is DONE; S1 saw to that
    control = control_plane.shared(options.kafka)
    coordinator = Coordinator(options, control)
    try:
        decision = _decide(options, control, coordinator, reports)
        crash_point("S6.after_decision")
        if decision.state is not DecisionState.DONE:
            missing = Finisher(options, control, coordinator).finish(decision)
            if missing:
                raise ParticipantsLost(_lost_sentence(decision, missing, options))
            settle(coordinator, decision.generation, with_state(decision, DecisionState.DONE))
    except OutcomeUnknown:
        control_plane.forget(options.kafka)
        raise
    crash_point("S8.after_done")


def abort(options: SinkOptions, reports: Sequence[TaskReport | None], batch: int) -> None:
    """Abort what the tasks prepared, unless the batch is decided. Best effort: the next S1 does
    what is left. Spark calls this also when `commit` failed, with all reports."""
    known = [report for report in reports if report is not None]
    prepared = [report.prepared for report in known if report.prepared is not None]
    if not prepared:
        return
    control = control_plane.shared(options.kafka)
    coordinator = Coordinator(options, control)
    coordinator.fence()
    ledger = coordinator.read()
    decision = ledger.decisions.get((options.sink, batch))
    decided = decision is not None and decision.state is not DecisionState.VOID
    if decided or ledger.generation != known[0].generation:
        return
    crash_point("abort.before_end_txn")
    _abort(control, prepared, known[0].end_txn_version)


def _abort(control: ControlPlane, prepared: Sequence[Participant], version: int) -> None:
    # Exactly these transactions: InitProducerId could hit somebody else's under the same id.
    pending = {part.identity.transactional_id: part.identity for part in prepared}
    deadline = time.monotonic() + ABORT_TIMEOUT_S
    while pending and time.monotonic() < deadline:
        answers = control.end(pending.values(), commit=False, version=version)
        pending = {name: pending[name] for name, error in answers.items() if error == "NETWORK"}
        if pending:
            time.sleep(0.1)


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
) -> Decision:
    """S6: write the decision, after making sure that it may be written."""
    first = reports[0]
    decided: list[Decision] = []

    def attempt(ledger: Ledger) -> list[Record] | None:
        coordinator.check_owner(first.query_id)
        previous = ledger.decisions.get((options.sink, first.batch))
        if previous and (previous.round, previous.generation) == (first.round, first.generation):
            decided[:] = [previous]  # an earlier attempt landed; its answer was lost
            return None
        decision = _decision(options, previous, reports)
        _check_replacements(control, decision, first, options)
        _check_prepared(control, decision, options)
        crash_point("S6.before_decision")
        decided[:] = [decision]
        key = records.decision_key(decision.sink, decision.batch, decision.round)
        owner = [(records.OWNER_KEY, records.encode_owner(first.query_id))]
        return [(key, records.encode_decision(decision)), *(owner if not ledger.owner else [])]

    coordinator.write(first.generation, attempt)
    return decided[0]


def _decision(
    options: SinkOptions, previous: Decision | None, reports: Sequence[TaskReport]
) -> Decision:
    """What to decide: the prepared transactions, and those of an earlier round that committed."""
    first = reports[0]
    participants = [report.prepared for report in reports if report.prepared is not None]
    if first.missing and previous is not None:
        lost = {part.partition for part in first.missing}
        participants += [part for part in previous.participants if part.partition not in lost]
    decision = Decision(
        sink=options.sink,
        batch=first.batch,
        round=first.round,
        # An empty batch has nobody to wait for.
        state=DecisionState.DECIDED if participants else DecisionState.DONE,
        generation=first.generation,
        end_txn_version=first.end_txn_version,
        token_partition=TOKEN_PARTITION,
        # The tokens of an earlier round stand before those of this one.
        token_from=previous.token_from if first.missing and previous else first.token_from,
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
    control: ControlPlane, decision: Decision, first: TaskReport, options: SinkOptions
) -> None:
    """Each lost partition must come back with equal rows, or repeating part of the batch would
    repeat or lose some of them."""
    written = {part.partition: part for part in decision.participants}
    unequal = [
        lost
        for lost in first.missing
        if (part := written.get(lost.partition)) is None
        or (part.rows, part.digest) != (lost.rows, lost.digest)
    ]
    if not unequal:
        return
    _abort(
        control,
        [part for part in decision.participants if part.round == decision.round],
        decision.end_txn_version,
    )
    raise RepairNeeded(
        f"Batch {decision.batch} was decided, and Kafka aborted the transactions of partitions "
        f"{[lost.partition for lost in unequal]} ({sum(lost.rows for lost in unequal)} rows) "
        "before they were committed; the rest is committed. The replay's rows are not the same, so "
        "nothing was written. The batch's input range is in offsets/"
        f"{decision.batch} of the checkpoint. Start the query as it was when the batch was decided "
        "(same plan, same number of tasks) and it mends this; or, to go on without these rows: "
        f"'eo-kafka job repair {options.job} --batch {decision.batch} --accept-loss "
        "--bootstrap-servers ...'."
    )


def _check_prepared(control: ControlPlane, decision: Decision, options: SinkOptions) -> None:
    """Every new participant must be open, as itself, with time left to be ended."""
    mine = [part for part in decision.participants if part.round == decision.round]
    described = control.describe(part.identity.transactional_id for part in mine)
    now_ms = int(time.time() * 1000)
    for part in mine:
        found = described[part.identity.transactional_id]
        margin_ms = min(10_000, found.timeout_ms // 5)
        if not found.is_open(part.identity):
            problem = f"is not open any more (its id is {found.state.value}, epoch {found.epoch})"
        elif found.remaining_ms(now_ms) < margin_ms:
            problem = f"has {found.remaining_ms(now_ms)} ms left of {found.timeout_ms}"
        else:
            continue
        raise Undecided(
            f"Batch {decision.batch} is not decided: the transaction of partition "
            f"{part.partition} {problem}. Nothing is visible; the batch will be run again from the "
            f"same offsets. If this happens again, raise kafka.transaction.timeout.ms "
            f"({options.transaction_timeout_ms} now): a batch, from its first row to its commit, "
            "must fit in."
        )


def _lost_sentence(decision: Decision, missing: Sequence[Participant], options: SinkOptions) -> str:
    return (
        f"Batch {decision.batch} was decided, but Kafka had aborted the transactions of partitions "
        f"{[part.partition for part in missing]} ({sum(part.rows for part in missing)} rows): "
        f"they were open for longer than kafka.transaction.timeout.ms "
        f"({options.transaction_timeout_ms}), or another program uses the transactional ids under "
        f"'{options.prefix}'. Nothing is lost: start the query again; it writes what is missing."
    )
