"""Who is refused fences nobody, and who has fenced knows it. Each rule for it is needed."""

from __future__ import annotations

import pytest
from commit_explorer import assert_kept, assert_needed, explore
from model_fences import LOOKS, learn
from model_sweep import READABLE

TWO_DRIVERS = LOOKS._replace(deaths=False)
CRASH_LOOP = TWO_DRIVERS._replace(crash_loops=True)  # the second driver is another query's
IDENTITY = READABLE._replace(
    drivers=2, after_fence=learn, splits=("all-in-0",), timeouts=1, deaths=False
)
REFUSED = "a driver that is refused has fenced the one that works"
LOST = "a decided transaction was lost though nothing timed out"
# rule -> (the settings in which it is missed, what is then seen)
NEEDED = {
    "look_before_fence": ((TWO_DRIVERS, CRASH_LOOP), REFUSED),
    "look_before_each_fence": ((TWO_DRIVERS,), REFUSED),
    "identity_proven": ((IDENTITY,), LOST),
}


def test_a_newer_driver_is_not_fenced_by_the_one_it_replaced() -> None:
    outcome = explore(TWO_DRIVERS, liveness=True)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels["S6 looks and is refused"]
    assert outcome.labels["S8 looks and is refused"]


def test_a_driver_of_another_query_may_start_again_for_ever() -> None:
    outcome = explore(CRASH_LOOP)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels["S1 looks and is refused"]
    assert outcome.finished


def test_an_identity_counts_once_something_was_appended_under_it() -> None:
    outcome = explore(IDENTITY)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels["S6 DECIDED, answer lost"]
    assert outcome.finished


@pytest.mark.full
@pytest.mark.parametrize(
    "setting",
    [LOOKS, LOOKS._replace(after_fence=learn, lost_answers=True), CRASH_LOOP._replace(drivers=3)],
    ids=["drivers die", "fences in two steps", "crash loop, two drivers"],
)
def test_larger_worlds_keep_every_promise(setting) -> None:  # type: ignore[no-untyped-def]
    assert_kept(setting)


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_promise_is_broken(rule: str) -> None:
    settings, seen = NEEDED[rule]
    for setting in settings:
        assert_needed(rule, setting, seen)
