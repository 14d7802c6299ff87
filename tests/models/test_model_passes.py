"""A function that does not write each batch passes over none that was decided and lost. The rule
for it is needed."""

from __future__ import annotations

import pytest
from commit_explorer import assert_kept, assert_needed
from commit_model import Setting
from model_passes import PASSES

# rule -> (the setting in which it is missed, what is then seen)
NEEDED = {"lost_is_written_first": (PASSES, "batch 0 is decided and lost, and batch 1 is written")}


@pytest.mark.parametrize(
    ("setting", "lost"),
    [
        (PASSES, "S1 finds 1 lost"),
        (PASSES._replace(splits=("all-in-0",)), "S1 writes VOID"),
        (PASSES._replace(passes=2, batches=3), "S1 finds 1 lost"),  # two in a row
    ],
)
def test_no_lost_batch_is_passed_over_and_a_person_goes_on(setting: Setting, lost: str) -> None:
    outcome = assert_kept(setting, liveness=True)
    for label in (
        lost,
        "the function does not write batch 0",
        "a batch before it is lost",
        "a person has Spark run the lost batch again",
        "S6 DECIDED round 1",
    ):
        assert outcome.labels[label], label


@pytest.mark.full
def test_larger_worlds_keep_every_promise() -> None:
    assert_kept(PASSES._replace(deaths=True, splits=("ab", "ba"), drivers=2))


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_promise_is_broken(rule: str) -> None:
    setting, seen = NEEDED[rule]
    assert_needed(rule, setting, seen)
