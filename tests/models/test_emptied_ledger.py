"""Whether an empty ledger is a lost one, by what Kafka keeps of the coordinator's id.

Drivers of one batch die at any step, appends are refused, aborted or not answered, and people
delete the ledger.

One driver lives at a time. Of two that start for the first time at once, one that dies between its
fence and its append leaves word that the ledger was empty, as it was when that one looked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from commit_explorer import Model, Outcome, walk

from eo_kafka.core.transaction import Described, TransactionState
from eo_kafka.state.ledger.appender import NEW_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS
from eo_kafka.state.ledger.lost_ledger import is_remembered

S = TransactionState
NOTHING, GENERATION, DECISION = range(3)  # what the ledger holds at most
Rule = Callable[[Described], bool]


class World(NamedTuple):
    ledger: int = NOTHING
    tokens: bool = False  # the ledger knows the rows
    rows: int = 0  # how often they are visible
    state: S = S.MISSING
    as_new: bool = False  # so the id was taken last
    step: str = "start"
    is_lost: bool = False  # somebody deleted a ledger that held something


def moves(world: World, rule: Rule, marks: Rule) -> Iterator[tuple[str, World]]:
    """What can happen next. `marks`: whether an id that is taken over an empty ledger says so."""
    step = world.step
    if step in ("start", "refused"):
        emptied = world._replace(ledger=NOTHING, tokens=False, step="start")
        yield "deleted by hand", emptied._replace(is_lost=world.is_lost or world.ledger > NOTHING)
        if world.ledger:  # the rows that are there are not the new job's
            anew = emptied._replace(rows=0, state=S.EMPTY, as_new=True, is_lost=False)
            yield "job delete", anew
    elif step != "done":
        yield "dies", world._replace(step="start")
    if step == "start":
        if world.ledger == NOTHING and rule(_described(world)):
            yield "S1 refuses", world._replace(step="refused")
        else:
            yield "S1 looks", world._replace(step="S1 fence")
    elif step == "refused":
        yield "job reset fences", _fenced(world, marks, "reset append")
    elif step == "reset append":
        yield "it is refused", world._replace(step="start")
        # by a person who has looked at the output
        reset = world._replace(ledger=GENERATION, state=S.COMPLETE_COMMIT, rows=0, is_lost=False)
        yield "job reset", reset._replace(step="start")
    elif step == "S1 fence":
        yield "S1 fences", _fenced(world, marks, "S1 append")
    elif step == "S1 append":
        yield from _append(world, max(world.ledger, GENERATION), "tasks", "S1 fence")
    elif step == "tasks":  # that commit by themselves; they skip what is written
        rows = world.rows + (not world.tokens)
        yield "tasks commit", world._replace(rows=rows, tokens=True, step="S6 fence")
    elif step == "S6 fence":
        yield "S6 fences", world._replace(state=S.EMPTY, as_new=False, step="S6 append")
    elif step == "S6 append":
        yield from _append(world, DECISION, "done", "S6 fence")


def _described(world: World) -> Described:
    timeout_ms = NEW_TIMEOUT_MS if world.as_new else TRANSACTION_TIMEOUT_MS
    return Described("coordinator", world.state, timeout_ms=timeout_ms)


def _fenced(world: World, marks: Rule, step: str) -> World:
    as_new = world.ledger == NOTHING and marks(_described(world))
    return world._replace(state=S.EMPTY, as_new=as_new, step=step)


def _append(world: World, what: int, then: str, again: str) -> Iterator[tuple[str, World]]:
    yield "an append is refused", world._replace(step=again)
    yield "an append is aborted", world._replace(state=S.COMPLETE_ABORT, step=again)
    landed = world._replace(ledger=what, state=S.COMPLETE_COMMIT)
    yield "an append's answer is lost", landed._replace(step=again)
    yield "an append lands", landed._replace(step=then)


def fault(world: World) -> str:
    if world.rows > 1:
        return "rows are repeated"
    if world.step == "refused" and not world.is_lost:
        return "a ledger that nobody deleted counts as lost"
    return ""


def is_new(found: Described) -> bool:
    return not is_remembered(found)


def explore(rule: Rule, marks: Rule = is_new) -> Outcome:
    of_rule = Model(
        World(),
        lambda world: moves(world, rule, marks),
        fault,
        lambda world: world.step == "done",
        lambda world: True,
    )
    return walk(of_rule, liveness=True)


def test_a_lost_ledger_is_found_out_and_no_other_counts_as_one() -> None:
    outcome = explore(is_remembered)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.finished
    assert outcome.labels["S1 refuses"]


def test_a_reset_that_fails_does_not_make_a_lost_ledger_a_new_one() -> None:
    outcome = explore(is_remembered, marks=lambda found: True)

    assert "rows are repeated" in outcome.fault, outcome.fault or "no fault: is it needed?"


@pytest.mark.parametrize(
    ("rule", "seen"),
    [
        (lambda found: found.state is S.COMPLETE_COMMIT, "rows are repeated"),
        (
            lambda found: found.state is not S.MISSING and found.timeout_ms != NEW_TIMEOUT_MS,
            "rows are repeated",
        ),
        (lambda found: found.state is not S.MISSING, "nobody deleted counts as lost"),
    ],
    ids=["the last end", "the fence", "that it is known"],
)
def test_each_half_of_the_rule_is_needed(rule: Rule, seen: str) -> None:
    outcome = explore(rule)

    assert seen in outcome.fault, outcome.fault or "no fault: is it needed?"
