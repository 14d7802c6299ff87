"""Lost tokens make no driver repeat rows that are committed; each rule for that is needed."""

from __future__ import annotations

import pytest
from commit_explorer import assert_kept, assert_needed
from commit_model import DELETED, Setting
from model_tokens import OWN_IDS, SHARED_IDS
from one_phase_model import ONE_PHASE

LOST = "a decided transaction was lost though nothing timed out"
BY_TASKS = ONE_PHASE._replace(splits=("ab",), one_by_one=True, loses_tokens=DELETED)
# rule -> (the setting in which it is missed, what is then seen)
NEEDED = {
    "tokens_begin_where_asked": (SHARED_IDS, LOST),
    "ended_has_its_token": (OWN_IDS, LOST),
}


@pytest.mark.parametrize("setting", [SHARED_IDS, OWN_IDS], ids=["deleted", "cut off"])
def test_drivers_that_die_keep_every_promise(setting: Setting) -> None:
    assert assert_kept(setting).labels[f"2 tokens are {setting.loses_tokens}"]


def test_tasks_that_commit_by_themselves_keep_every_promise() -> None:
    assert assert_kept(BY_TASKS).labels[f"1 tokens are {DELETED}"]


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_promise_is_broken(rule: str) -> None:
    assert_needed(rule, *NEEDED[rule])


def test_where_tasks_commit_by_themselves_it_is_needed_too() -> None:
    assert_needed("tokens_begin_where_asked", BY_TASKS, "visible twice")
