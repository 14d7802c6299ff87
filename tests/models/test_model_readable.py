"""What is committed can be read; attempts, stopped queries and topics that are made again lose
nothing. Each rule for it is needed."""

from __future__ import annotations

import pytest
from commit_explorer import assert_kept, assert_needed, explore
from commit_model import Setting
from model_sweep import READABLE, STOPPED

UNREADABLE = "a batch is committed and not readable"
LOST = "a decided transaction was lost though nothing timed out"
ONE_DRIVER = READABLE._replace(task_deaths=1)
COPY = READABLE._replace(attempts=2, deaths=False)
SLOTS = COPY._replace(attempt_slots=2)
TOPIC = READABLE._replace(recreations=1)
# Two drivers, one task: one that lists may be overtaken by another that begins the batch anew.
OVERTAKEN = READABLE._replace(drivers=2, timeouts=1, deaths=False, splits=("all-in-0",))
HIDDEN = READABLE._replace(drivers=2, task_deaths=1, hidden=True, splits=("all-in-0",))
TWO_STOPPED = STOPPED._replace(drivers=2, task_deaths=0, deaths=False, splits=("all-in-0",))
# rule -> (the setting in which it is missed, what is then seen)
NEEDED = {
    "sweep_before_done": (ONE_DRIVER, UNREADABLE),
    "sweep_of_skipped": (HIDDEN, UNREADABLE),
    "sweep_looks_after_listing": (OVERTAKEN, LOST),
    "sweep_lists_again": (HIDDEN, UNREADABLE),
    "second_look": (COPY, UNREADABLE),
    "next_slot_if_open": (SLOTS._replace(attempt_slots=1), "an attempt aborted another one"),
    "topic_id_at_first_row": (TOPIC, "is in the commit log and of its rows visible"),
    "abort_ends_unreported": (STOPPED, "a query was stopped, its tasks are dead"),
    "abort_spares_newer": (TWO_STOPPED, LOST),
}


@pytest.mark.parametrize(
    ("setting", "seen"),
    [
        (ONE_DRIVER, "is killed"),
        (COPY, "S3 sees another coordinator"),
        (SLOTS, "sweep ends 1"),
        (SLOTS._replace(attempt_slots=1), "S2 finds no free slot"),
        (TOPIC, "S5 sees another topic"),
        (TOPIC._replace(timeouts=1, drivers=2, splits=("all-in-0",), deaths=False), "S6 undecided"),
        (OVERTAKEN, "sweep lists 1"),
        (STOPPED, "abort ends 1"),
        (TWO_STOPPED, "abort sees a newer generation"),
    ],
)
def test_every_promise_is_kept(setting: Setting, seen: str) -> None:
    outcome = assert_kept(setting)
    assert outcome.labels[seen]  # what the exploration is for did happen in it


@pytest.mark.full
@pytest.mark.parametrize(
    "setting",
    [
        HIDDEN,
        READABLE._replace(drivers=2, task_deaths=1, splits=("all-in-0",), timeouts=1),
        SLOTS._replace(task_deaths=1, timeouts=1),
        STOPPED._replace(drivers=2, deaths=False, splits=("all-in-0",)),
    ],
    ids=["listing fails", "killed and timed out", "slots", "stopped and killed"],
)
def test_larger_worlds_keep_every_promise(setting: Setting) -> None:
    assert_kept(setting)


@pytest.mark.parametrize("rule", NEEDED)
def test_without_this_rule_a_promise_is_broken(rule: str) -> None:
    assert_needed(rule, *NEEDED[rule])


def test_what_remains_is_a_task_killed_between_its_late_first_row_and_its_second_look() -> None:
    outcome = explore(COPY._replace(task_deaths=1, orphans=True))

    assert UNREADABLE in outcome.fault
    late = [label for label in outcome.trace if "sweep ends" in label or "partition 0.1" in label]
    assert [label.split(": ")[-1] for label in late][-3:] == [
        "sweep ends 0",
        "S3 first row",
        "is killed",
    ]
