"""Commits and aborts single transactions for an operator, and refuses what would be wrong.

An EndTxn names (producer id, epoch), so it ends exactly the transaction that was judged or none.
What nothing decided is aborted only after a newer generation stands in the ledger: from then on no
driver can decide it, so there is no moment in which an abort and a decision could cross. What an
older generation left is aborted only by a ledger that was read to a certain end (acknowledged.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...clients.kafka.control_errors import is_not_allowed
from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.partition_transactions import Missing, write_markers
from ...core.errors import EoKafkaError
from ...core.transaction import EndTxnAnswer, Identity, TransactionState
from ...sinks.options import SinkOptions
from ...state.ledger import records
from ...state.ledger.coordinator import Coordinator, Write
from ...state.ledger.ledger import Ledger
from .acknowledged import read_acknowledged
from .verdict import Judged, Standing, TokenState, abort_refusal, commit_refusal, hung_refusal

END_TIMEOUT_S = 30.0
JudgeAgain = Callable[[Sequence[Judged], Mapping[str, Ledger]], Sequence[Judged]]


@dataclass(frozen=True)
class Asked:
    """What the operator allowed."""

    commit: bool
    yes: bool = False
    force: bool = False
    dry_run: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of one transaction. `done`: it has, or will have, the outcome asked for."""

    judged: Judged
    done: bool
    said: str


def refusal(judged: Judged, asked: Asked) -> str | None:
    """Why the transaction is not ended, as the end of a sentence; None if it may be."""
    described = judged.described
    if judged.hung or judged.not_all:
        return hung_refusal(judged, asked.commit, asked.force)
    if described.state is TransactionState.PREPARE_COMMIT and not asked.commit:
        return "it is being committed already (PrepareCommit), which cannot be undone"
    if described.state is TransactionState.PREPARE_ABORT and asked.commit:
        return "it is being aborted already (PrepareAbort), which cannot be undone"
    if not judged.is_open:
        return f"it is not open (its id is {described.state.value}): nothing to end"
    if asked.force:
        return None
    return commit_refusal(judged) if asked.commit else abort_refusal(judged, asked.yes)


def end(
    control: ControlPlane,
    found: Sequence[Judged],
    asked: Asked,
    options_of: Callable[[Judged], SinkOptions],
    judge_again: JudgeAgain,
) -> list[Outcome]:
    """End what may be ended; one outcome for each of `found`.

    `options_of` are the options of a transaction's job. `judge_again` looks at transactions once
    more, by ledgers (of each topic) that were read to their ends, or closed to older drivers.
    Raises Fenced if another driver took the job over meanwhile; nothing that it could decide was
    ended then.
    """
    outcomes = [_first_look(one, asked) for one in found]
    if asked.dry_run:
        return outcomes
    outcomes = [
        _written(control, one.judged, asked) if one.done and one.judged.hung else one
        for one in outcomes
    ]
    wanted = {
        number: found[number].standing
        for number, outcome in enumerate(outcomes)
        if outcome.done and found[number].is_open and not found[number].hung
    }
    older, undecided = (
        [] if asked.commit else [number for number, standing in wanted.items() if standing is one]
        for one in (Standing.OLDER, Standing.CURRENT)
    )
    if asked.force:
        older = []
    first = [number for number in wanted if number not in (*older, *undecided)]
    _end_each(control, outcomes, first, asked)
    if older:
        _look_acknowledged(control, outcomes, older, asked, options_of, judge_again)
        sure = [number for number in older if outcomes[number].done]
        newer = [one for one in sure if outcomes[one].judged.standing is not Standing.OLDER]
        undecided += newer
        _end_each(control, outcomes, [one for one in sure if one not in newer], asked)
    if undecided:
        some = [found[number] for number in undecided]
        closed = close_to_drivers(some, options_of, control)
        again = _by_id(judge_again(some, closed))
        for number in undecided:
            now = again[found[number].described.transactional_id]
            if now.decision is not None and not asked.force:
                outcomes[number] = Outcome(now, False, "refused: it was decided meanwhile")
        _end_each(control, outcomes, [one for one in undecided if outcomes[one].done], asked)
    return outcomes


def _look_acknowledged(
    control: ControlPlane,
    outcomes: list[Outcome],
    older: Sequence[int],
    asked: Asked,
    options_of: Callable[[Judged], SinkOptions],
    judge_again: JudgeAgain,
) -> None:
    """Judge again what is of an older generation, as it seems, by all that stands in the ledgers:
    the end that was told may have been an old one, and slots are used again."""
    by_topic: dict[str, list[int]] = {}
    for number in older:
        job = outcomes[number].judged.job
        by_topic.setdefault(job.topic if job else "", []).append(number)
    for topic, numbers in by_topic.items():
        some = [outcomes[number].judged for number in numbers]
        try:
            ledger = read_acknowledged(options_of(some[0]), control)
            again = _by_id(judge_again(some, {topic: ledger}))
        except EoKafkaError as error:
            for number, one in zip(numbers, some, strict=True):
                outcomes[number] = Outcome(one, False, f"refused: {error}")
            continue
        for number, one in zip(numbers, some, strict=True):
            now = again[one.described.transactional_id]
            is_it = now.described.identity == one.described.identity  # else it has ended
            if is_it and now.standing is not Standing.OLDER:
                outcomes[number] = _first_look(now, asked)


def _by_id(judged: Sequence[Judged]) -> dict[str, Judged]:
    """Coordinators answer in no order."""
    return {one.described.transactional_id: one for one in judged}


def close_to_drivers(
    found: Sequence[Judged], options_of: Callable[[Judged], SinkOptions], control: ControlPlane
) -> dict[str, Ledger]:
    """Take the next generation in each job's ledger: every driver of today stops, and the next
    start takes another. All that stands before it, by topic; another question might be answered by
    a leader that is cut off. Raises Fenced if a driver takes one at the same time."""
    closed = {}
    for one in {job.job.topic: job for job in found if job.job}.values():
        topic, ledger = close_ledger(options_of(one), control)
        closed[topic] = ledger
    return closed


def close_ledger(options: SinkOptions, control: ControlPlane) -> tuple[str, Ledger]:
    """The same of one job: its ledger's topic, and all that stands before the generation that was
    taken. Raises LedgerError of a lost ledger: with that generation in it, it would look new."""
    coordinator = Coordinator(options, control)
    coordinator.look_first(may_be_new=False)
    coordinator.fence()
    generation = coordinator.read().generation
    coordinator.write(
        generation,
        lambda ledger: Write(
            [(records.GENERATION_KEY, records.encode_generation(ledger.generation + 1))]
        ),
    )
    return coordinator.topic, coordinator.ledger


def _first_look(judged: Judged, asked: Asked) -> Outcome:
    if not judged.is_open and judged.token is TokenState.VISIBLE and asked.commit:
        return Outcome(judged, True, "is committed already")
    reason = refusal(judged, asked)
    if reason is not None:
        return Outcome(judged, False, f"refused: {reason}")
    return Outcome(judged, True, f"would {'commit' if asked.commit else 'abort'} it")


def _written(control: ControlPlane, judged: Judged, asked: Asked) -> Outcome:
    """The end of a transaction that hangs, where it is missing."""
    name, ended = judged.described.transactional_id, judged.ended
    epoch = ended.epoch if ended else judged.described.epoch
    missing = [Missing(one, name, epoch, asked.commit) for one in judged.hung]
    try:
        control.ask(write_markers, control.admin, missing)
    except EoKafkaError as error:
        why = "this principal needs Alter on the cluster" if is_not_allowed(error) else str(error)
        return Outcome(judged, False, f"refused: {why}")
    return Outcome(judged, True, "committed" if asked.commit else "aborted")


def _end_each(
    control: ControlPlane, outcomes: list[Outcome], wanted: Sequence[int], asked: Asked
) -> None:
    answers = _end(control, [outcomes[number].judged for number in wanted], asked.commit)
    for number in wanted:
        judged = outcomes[number].judged
        outcomes[number] = _last_look(judged, asked, *answers[judged.described.transactional_id])


def _end(
    control: ControlPlane, wanted: Sequence[Judged], commit: bool
) -> dict[str, tuple[EndTxnAnswer, str]]:
    answers: dict[str, tuple[EndTxnAnswer, str]] = {}
    by_version: dict[int, list[Identity]] = {}
    default = control.end_txn_version()
    for one in wanted:
        version = one.decision.end_txn_version if one.decision else default
        identity = one.participant.identity if one.participant else one.described.identity
        by_version.setdefault(version, []).append(identity)
    for version, identities in by_version.items():
        answers |= control.end_all(identities, commit, version, END_TIMEOUT_S)
    return answers


def _last_look(judged: Judged, asked: Asked, meaning: EndTxnAnswer, answer: str) -> Outcome:
    word = "committed" if asked.commit else "aborted"
    if meaning is EndTxnAnswer.ENDED:
        return Outcome(judged, True, word)
    if meaning is EndTxnAnswer.RETRY:
        return Outcome(judged, False, f"no final answer in {END_TIMEOUT_S:.0f} s ({answer})")
    if meaning is EndTxnAnswer.LOOK:
        return Outcome(judged, False, f"not {word}: it had ended meanwhile ({answer})")
    return Outcome(judged, False, f"Kafka refused ({answer})")
