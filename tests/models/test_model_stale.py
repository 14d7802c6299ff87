"""A leader that is cut off cannot make a driver lose or repeat rows; each rule for it is needed."""

from __future__ import annotations

import pytest
from commit_explorer import assert_kept, assert_needed
from model_stale import CUT
from model_sweep import READABLE
from one_phase_model import ONE_PHASE

LOST = "a decided transaction was lost though nothing timed out"
ONE = CUT._replace(deaths=False)
IDEMPOTENT = ONE_PHASE._replace(cuts=1, splits=("ab",), one_by_one=True)
OLD_COORDINATOR = ONE_PHASE._replace(old_coordinators=1, splits=("ab",), deaths=False)
OLD_TOPICS = READABLE._replace(
    recreations=1, old_topics=1, drivers=2, one_by_one=True, splits=("all-in-0",)
)
# rule -> (the setting in which it is missed, what is then seen)
NEEDED = {
    "append_where_read_ended": (ONE, LOST),
    "own_append_is_read": (
        CUT._replace(timeouts=2, one_by_one=True),
        "in the commit log and of its rows visible",
    ),
    "tokens_known_to_reach": (ONE, LOST),
    "barrier_before_tokens": (IDEMPOTENT, "visible twice"),
    "gone_as_most_say": (OLD_TOPICS, "visible twice"),
    "newer_barrier_stops": (OLD_COORDINATOR, "visible twice"),
}


def test_two_drivers_keep_every_promise() -> None:
    assert assert_kept(ONE).labels["S1 was fenced, again"]


def test_tasks_that_commit_by_themselves_keep_every_promise() -> None:
    assert_kept(IDEMPOTENT)


def test_brokers_that_tell_old_coordinators_and_topics_break_no_promise() -> None:
    assert_kept(OLD_COORDINATOR)
    assert_kept(OLD_TOPICS)
    assert_kept(CUT._replace(cuts=0, old_coordinators=1, deaths=False))


@pytest.mark.full
@pytest.mark.parametrize("timeouts", [0, 2])
def test_drivers_that_die_keep_every_promise(timeouts: int) -> None:
    assert_kept(CUT._replace(timeouts=timeouts, one_by_one=timeouts > 0))


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_promise_is_broken(rule: str) -> None:
    assert_needed(rule, *NEEDED[rule])
