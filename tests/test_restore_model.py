"""Every state that losing, restoring and copying checkpoints can lead to keeps the promise."""

from __future__ import annotations

import pytest
from restore_model import Rules, Setting, explore

UNKNOWN = "nobody knows which records the torn batch held"


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(Setting(4), id="a snapshot each batch"),
        pytest.param(Setting(4, every_batch=False), id="a snapshot now and then"),
        pytest.param(Setting(4, one_phase=True), id="tasks commit by themselves"),
        pytest.param(Setting(7), id="more generations", marks=pytest.mark.full),
        pytest.param(Setting(6, one_phase=True), id="and more of them", marks=pytest.mark.full),
    ],
)
def test_no_record_is_lost_or_repeated_in_any_reachable_state(setting):
    states, problem = explore(Rules(), setting)
    assert problem is None
    assert states > 1_000


@pytest.mark.parametrize(
    ("rules", "found", "one_phase"),
    [
        (Rules(same_batch_check=False), "lost", False),
        (Rules(generation_check=False), "duplicate", False),
        (Rules(torn_must_be_equal=False), "duplicate", True),
        (Rules(begun_before_tasks=False), UNKNOWN, True),
        (Rules(begun_of_torn_stays=False), UNKNOWN, True),
    ],
)
def test_each_rule_is_needed(rules, found, one_phase):
    assert explore(rules, Setting(4, one_phase=one_phase))[1] == found
