"""Lost tokens make no driver repeat rows that are committed; each rule for that is needed."""

from __future__ import annotations

import pytest
from commit_explorer import assert_kept, assert_needed
from commit_model import Setting
from model_tokens import OWN_IDS, SHARED_IDS

LOST = "a decided transaction was lost though nothing timed out"
# rule -> (the setting in which it is missed, what is then seen)
NEEDED = {
    "tokens_begin_where_asked": (SHARED_IDS, LOST),
    "ended_has_its_token": (OWN_IDS, LOST),
    "kafka_tells_of_each": (SHARED_IDS, LOST),
}


@pytest.mark.parametrize("setting", [SHARED_IDS, OWN_IDS], ids=["deleted", "cut off"])
def test_drivers_that_die_keep_every_promise(setting: Setting) -> None:
    assert assert_kept(setting).labels[f"2 tokens are {setting.loses_tokens}"]


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_promise_is_broken(rule: str) -> None:
    assert_needed(rule, *NEEDED[rule])
