"""Every state that losing, restoring and copying checkpoints can lead to keeps the promise."""

from __future__ import annotations

import pytest
from restore_model import Rules, Setting, explore

ONE_PHASE = Setting(4, one_phase=True)
UNSEEN = Setting(4, one_phase=True, unseen=True)


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(Setting(4), id="a snapshot each batch"),
        pytest.param(Setting(4, every_batch=False), id="a snapshot now and then"),
        pytest.param(ONE_PHASE, id="tasks commit by themselves"),
        pytest.param(UNSEEN, id="and S1 may not see the plan"),
        pytest.param(Setting(7), id="more generations", marks=pytest.mark.full),
        pytest.param(Setting(6, one_phase=True), id="and more of them", marks=pytest.mark.full),
    ],
)
def test_no_record_is_lost_or_repeated_in_any_reachable_state(setting):
    states, problem = explore(Rules(), setting)
    assert problem is None
    assert states > 1_000


@pytest.mark.parametrize(
    ("rules", "found", "setting"),
    [
        (Rules(same_batch_check=False), "lost", Setting(4)),
        (Rules(generation_check=False), "duplicate", Setting(4)),
        (Rules(torn_must_be_equal=False), "duplicate", ONE_PHASE),
        (Rules(begun_before_tasks=False), "nobody knows what was torn", ONE_PHASE),
        (Rules(begun_of_torn_stays=False), "a false plan is believed", ONE_PHASE),
        (Rules(unknown_is_recorded=False), "a false plan is believed", UNSEEN),
    ],
)
def test_each_rule_is_needed(rules, found, setting):
    assert explore(rules, setting)[1] == found
