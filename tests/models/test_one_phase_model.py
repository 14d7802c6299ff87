"""Every interleaving of `commit=idempotent` keeps its promises, and each of its rules is needed."""

from __future__ import annotations

import model_tasks
import pytest
from commit_explorer import assert_kept, assert_needed, explore
from commit_model import Setting
from one_phase_model import ONE_PHASE

ONE_SPLIT = ONE_PHASE._replace(splits=("ab",), hidden=True)
OTHER_TASKS = ONE_PHASE._replace(one_by_one=True, splits=("ab", "all-in-0"))
ATTEMPTS = ONE_SPLIT._replace(attempts=2, drivers=1, deaths=False)
# A task dies after its commit, and the output topic is deleted and made again.
TOPIC = ONE_SPLIT._replace(
    recreations=1, hidden=False, repair_step=model_tasks.s2_look, one_by_one=True
)
# What is in front of the sink fails between the first row of a task and the second.
EARLY_END = ONE_PHASE._replace(splits=("all-in-0",), early_ends=1, deaths=False)
TOPIC_ATTEMPTS = ATTEMPTS._replace(recreations=1)
# rule -> (the setting in which it is missed, what is then seen)
NEEDED = {
    "waits_for_open_tokens": (ONE_SPLIT, "visible twice"),
    "looks_for_earlier_attempt": (ATTEMPTS, "visible twice"),
    "nobody_came_between": (ATTEMPTS, "visible twice"),
    "torn_must_be_equal": (OTHER_TASKS, "visible twice"),
    # an attempt has committed a part of its rows: no replay gives the same ones
    "end_of_rows_is_true": (EARLY_END, "no way leads to the end"),
    "topic_id_in_token": (TOPIC, "is in the commit log and of its rows visible"),
}


def test_two_drivers_that_die_anywhere_keep_every_promise() -> None:
    outcome = explore(ONE_SPLIT, liveness=True)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.finished > 1000
    # What the exploration is for did happen in it.
    for label in (
        "S5 commits, report lost",
        "S5 sees another coordinator",
        "S1 finds 1 committed",
        "S6 DECIDED round 1",
    ):
        assert outcome.labels[label], label


def test_two_attempts_of_a_task_at_the_same_time_keep_every_promise() -> None:
    outcome = explore(ATTEMPTS)

    assert outcome.fault == "", "\n".join(outcome.trace)
    assert outcome.labels["S2 finds its token"]


def test_rows_that_went_with_their_topic_in_mid_batch_are_written_again() -> None:
    assert assert_kept(TOPIC).labels["S5 sees another topic"]
    seen = assert_kept(TOPIC_ATTEMPTS).labels
    assert seen["S2 finds that its rows are gone"]
    assert seen["S6 undecided"]


def test_rows_that_end_with_the_jvms_half_of_a_task_are_not_committed() -> None:
    assert assert_kept(EARLY_END, liveness=True).labels["S3 sees that the JVM is gone"]


@pytest.mark.full
@pytest.mark.parametrize(
    "setting",
    [
        ONE_PHASE,  # a torn batch comes back in another partitioning
        ONE_SPLIT._replace(timeouts=1),
        EARLY_END._replace(early_ends=2, deaths=True),
        TOPIC._replace(one_by_one=False),
        ONE_SPLIT._replace(batches=2, slots=2, deaths=False),
    ],
    ids=["two splits", "a timeout", "two early ends", "a topic made again", "two batches"],
)
def test_larger_worlds_keep_every_promise(setting: Setting) -> None:
    assert_kept(setting)


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_promise_is_broken(rule: str) -> None:
    assert_needed(rule, *NEEDED[rule], liveness=rule == "end_of_rows_is_true")
