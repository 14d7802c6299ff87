"""Every interleaving of drivers and tasks that prepare and commit transactions of PostgreSQL keeps
its promises, and each rule is needed."""

from __future__ import annotations

import prepared_model
import pytest
from commit_explorer import Model, Outcome, walk
from prepared_model import s1_plan
from prepared_world import Driver, Rules, Setting, World

LOSS = Setting(losses=1)
RETRY = Setting(partitions=1, attempts=2)
SWEEP = Setting(sweeps=1)
REMOVED = Setting(removals=1)
IN_TURN = Setting(drivers=3, losses=1, one_by_one=True)
# rule -> (the setting in which it is missed, what is then seen)
NEEDED = {
    "marks": (LOSS, "is in the commit log and not whole in the table"),
    "looks_at_gate": (Setting(), "an older task prepares what nobody ends"),
    "ends_holders": (Setting(), "an older task prepares what nobody ends"),
    "closes_gate": (RETRY, "a task rolls back what is decided"),
    "spares_decided": (SWEEP, "a prepared transaction is gone for no reason"),
    "spares_newer": (Setting(), "a prepared transaction is gone for no reason"),
    "takes_first": (LOSS, "rows are there twice"),
    "looks_who_holds": (LOSS, "rows are there twice"),
    "sees_removed": (REMOVED, "rows are there twice"),
    "marker_names_passed": (IN_TURN, "is in the commit log and not whole in the table"),
}


def explore(setting: Setting, *, liveness: bool = False) -> Outcome:
    of_table = Model(
        World((Driver(s1_plan),)),
        lambda world: prepared_model.moves(world, setting),
        lambda world: prepared_model.fault(world) or prepared_model.whole(world, setting),
        lambda world: prepared_model.finished(world, setting),
        lambda world: len(world.drivers) < setting.drivers,
    )
    return walk(of_table, liveness=liveness)


@pytest.mark.parametrize("setting", [Setting(), RETRY, SWEEP, LOSS], ids=str)
def test_what_is_decided_is_there_once_and_nothing_else_stays_prepared(setting: Setting) -> None:
    outcome = explore(setting, liveness=True)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.finished
    seen = outcome.labels
    assert seen["S7 commits one, answer lost"]
    assert seen["finds the gate closed"]
    assert bool(seen["rolls back an older attempt"]) is (setting.attempts > 1)
    assert bool(seen["S7 VOID"]) is bool(setting.losses)


def test_what_a_replica_lacks_is_written_again_also_twice() -> None:
    outcome = explore(IN_TURN._replace(losses=2))

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels["S6 DECIDED round 2"]


def test_nothing_is_written_twice_when_a_person_removes_the_marks() -> None:
    """The query stops then, until a person says what is there."""
    outcome = explore(REMOVED)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels["a person removes the marks"]


@pytest.mark.full
@pytest.mark.parametrize(
    "setting",
    [
        Setting(batches=2),
        Setting(drivers=3, partitions=1),
        LOSS._replace(losses=2),
        RETRY._replace(losses=1),
        SWEEP._replace(losses=1),
        Setting(drivers=3, losses=1, partitions=1),
    ],
    ids=str,
)
def test_more_of_everything_changes_nothing(setting: Setting) -> None:
    outcome = explore(setting)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.finished


def test_every_rule_is_tried() -> None:
    assert set(NEEDED) == set(Rules._fields)


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_promise_is_broken(rule: str) -> None:
    setting, seen = NEEDED[rule]

    outcome = explore(setting._replace(rules=Rules()._replace(**{rule: False})))

    assert seen in outcome.fault
    assert outcome.trace
