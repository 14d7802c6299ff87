"""A transaction that ends without its marker loses, repeats and hides nothing, once somebody has
looked. Each rule for it is needed."""

from __future__ import annotations

import pytest
from commit_explorer import assert_kept, assert_needed
from commit_model import Setting
from model_markers import MARKERS
from model_sweep import READABLE
from one_phase_model import ONE_PHASE

NOT_VISIBLE = "is in the commit log and of its rows visible"
UNREADABLE = "a batch is committed and not readable: a marker of"
REPEATED = "visible twice"
LOST = "committed rows are lost"
NO_WAY = "no way leads to the end"

IN_TURN = MARKERS._replace(one_by_one=True)
THREE = IN_TURN._replace(drivers=3)
TOKENS = THREE._replace(on_tokens=True)
SWEPT = IN_TURN._replace(
    first_step=READABLE.first_step,
    repair_step=READABLE.repair_step,
    before_end=READABLE.before_end,
    task_deaths=1,
    attempt_slots=2,
)
SKIPPED = SWEPT._replace(hidden=True)
# One driver: an attempt is killed, its transaction times out, and the next one has the same id.
AGAIN = SWEPT._replace(drivers=1, timeouts=1, attempt_slots=1, deaths=False)
COPY = SWEPT._replace(
    drivers=1, attempts=2, attempt_slots=1, task_deaths=0, deaths=False, splits=("ab",)
)
IDEMPOTENT = IN_TURN._replace(
    first_step=ONE_PHASE.first_step, find_torn=ONE_PHASE.find_torn, attempt_slots=1
)
IDEMPOTENT_TOKENS = IDEMPOTENT._replace(on_tokens=True)
# rule -> (a setting in which it is missed, what is then seen), more than one
NEEDED = {
    "markers_before_done": (
        (SWEPT, NOT_VISIBLE),
        (IDEMPOTENT, NOT_VISIBLE),
        (IDEMPOTENT_TOKENS, "is DONE and a participant is not committed"),
        (TOKENS, NO_WAY),
    ),
    "markers_of_skipped": ((SKIPPED, UNREADABLE),),
    "markers_before_ids": ((THREE, NO_WAY),),
    "marker_look_lists_again": (
        (SKIPPED, NOT_VISIBLE),
        (IDEMPOTENT._replace(hidden=True), NOT_VISIBLE),
    ),
    "hung_id_is_given_up": (
        (AGAIN, REPEATED),
        (COPY, REPEATED),
        (IDEMPOTENT, REPEATED),
        (TOKENS, LOST),
        (IDEMPOTENT_TOKENS, LOST),
    ),
    "ledger_tells": ((THREE, NO_WAY),),
}
MISSED = [(rule, setting, seen) for rule, cases in NEEDED.items() for setting, seen in cases]


def test_every_promise_is_kept_and_a_way_leads_to_the_end() -> None:
    seen = assert_kept(THREE, liveness=True).labels

    assert seen["S7 commits p0.g0.a0, no marker of p0.g0.a0"]
    assert seen["S1 aborts stragglers, no marker of p0.g0.a0"]
    assert seen["abort ends its transactions, no marker of p0.g0.a0"]
    assert seen["S2 init, no marker of p0.g0.a0, and gives it up"]
    assert seen["markers are written"]


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        (SWEPT, "sweep ends 1, no marker of p0.g0.a0"),
        (SKIPPED, "S1's list misses all"),
        (AGAIN, "p0.g0.a0 times out, no marker of p0.g0.a0"),
        (COPY, "S2 init, and gives it up"),
        (TOKENS, "S7 commits p0.g0.a0, no marker of p0.g0.a0"),
        (IDEMPOTENT, "S5 commits, no marker of p0.g0.a0"),
        (IDEMPOTENT, "S1 aborts stragglers, no marker of p0.g0.a0"),
        (IDEMPOTENT_TOKENS, "S5 commits, no marker of p0.g0.a0"),
    ],
)
def test_every_promise_is_kept(setting: Setting, seen: str) -> None:
    labels = assert_kept(setting).labels

    assert labels[seen]  # what the exploration is for did happen in it
    assert labels["markers are written"]


@pytest.mark.full
@pytest.mark.parametrize(
    "setting",
    [
        MARKERS._replace(splits=("ab",)),
        IN_TURN._replace(timeouts=1, splits=("ab",)),
        THREE._replace(lost_markers=2),
        SWEPT._replace(lost_markers=2, one_by_one=False),
        IDEMPOTENT._replace(drivers=3, lost_markers=2),
    ],
    ids=["two partitions", "a timeout", "two", "two, swept", "two, idempotent"],
)
def test_larger_worlds_keep_every_promise(setting: Setting) -> None:
    assert_kept(setting)


@pytest.mark.parametrize(("rule", "setting", "seen"), MISSED)
def test_without_this_rule_a_promise_is_broken(rule: str, setting: Setting, seen: str) -> None:
    assert_needed(rule, setting, seen, liveness=seen == NO_WAY)
