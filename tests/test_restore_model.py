"""Every state that losing, restoring and copying checkpoints can lead to keeps the promise."""

from __future__ import annotations

import pytest
from restore_model import Rules, Setting, explore


@pytest.mark.parametrize(
    "setting",
    [
        pytest.param(Setting(4), id="a snapshot each batch"),
        pytest.param(Setting(4, every_batch=False), id="a snapshot now and then"),
        pytest.param(Setting(7), id="more generations", marks=pytest.mark.full),
    ],
)
def test_no_record_is_lost_or_repeated_in_any_reachable_state(setting):
    states, problem = explore(Rules(), setting)
    assert problem is None
    assert states > 1_000


@pytest.mark.parametrize(
    ("rules", "found"),
    [
        (Rules(same_batch_check=False), "lost"),
        (Rules(generation_check=False), "duplicate"),
    ],
)
def test_each_rule_is_needed(rules, found):
    assert explore(rules, Setting(4))[1] == found
