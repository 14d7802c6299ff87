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
FAIL_OVER = Setting(partitions=1, batches=2, fail_overs=1, one_by_one=True)
SWEPT_AFTER = Setting(partitions=1, fail_overs=1, sweeps=1, one_by_one=True)
IN_TURN = Setting(drivers=3, losses=1, one_by_one=True)
# rule -> (the setting in which it is missed, what is then seen)
NEEDED = {
    "marks": (LOSS, "is in the commit log and not whole in the table"),
    "looks_at_gate": (Setting(), "an older task prepares what nobody ends"),
    "ends_holders": (Setting(), "an older task prepares what nobody ends"),
    "closes_gate": (RETRY, "a task rolls back what is decided"),
    "spares_decided": (SWEEP, "a prepared transaction is gone for no reason"),
    "spares_lacking": (SWEPT_AFTER, "rows of a decided batch are rolled back"),
    "follows": (FAIL_OVER, "and lacks rows of batch"),
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


@pytest.mark.parametrize("setting", [FAIL_OVER, SWEPT_AFTER], ids=["two batches", "swept"])
def test_what_a_replica_that_lags_behind_has_of_a_batch_is_finished(setting: Setting) -> None:
    outcome = explore(setting)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels["it takes the server's place"]
    assert outcome.labels["S1 finishes what is DONE"]


@pytest.mark.full
@pytest.mark.parametrize(
    "setting",
    [
        Setting(batches=2),
        Setting(fail_overs=1, one_by_one=True),
        FAIL_OVER._replace(sweeps=1),
        FAIL_OVER._replace(drivers=3),
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
