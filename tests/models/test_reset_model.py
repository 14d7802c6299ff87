"""`onReset`, explored: whoever dies or lives on, and whenever, each query's batch is visible once
at most, what was decided is visible, no query takes the ledger twice; and whatever readers and sink
are told, a job that begins anew has the first record, and one that goes on has the next one."""

from __future__ import annotations

import itertools

import pytest
from reset_model import Modes, Rules, explore

MODES = ("stop", "new-job", "continue")
MISSING = "what was before is missing"
TWICE = "what was before is there twice"


@pytest.mark.parametrize(
    ("queries", "deaths"),
    [
        ("ab", 2),  # a refresh while the old driver lives
        ("aab", 2),  # two drivers of the old query
        ("abb", 2),  # and of the new one
        pytest.param("abc", 2, marks=pytest.mark.full),
        pytest.param("aabb", 1, marks=pytest.mark.full),
    ],
)
def test_no_world_is_at_fault(queries: str, deaths: int) -> None:
    worlds, fault = explore(queries, deaths)
    assert not fault
    assert worlds > 100


@pytest.mark.parametrize(
    ("broken", "fault"),
    [
        ({"settles_first": False}, "a decided batch is forgotten"),
        ({"remembers_replaced": False}, "an old query has taken the ledger back"),
        ({"names_owner": False}, "a query resets twice"),
        ({"forgets_batches": False}, "a query skips what another has written"),
        ({"checks_generation": False}, "an old query has taken the ledger back"),
    ],
)
def test_each_rule_is_needed(broken: dict[str, bool], fault: str) -> None:
    assert explore("ab", 2, Rules(**broken))[1] == fault


@pytest.mark.parametrize("same_job", [True, False])
@pytest.mark.parametrize("sink", MODES)
@pytest.mark.parametrize("readers", MODES)
def test_readers_and_sink_may_be_told_different_things(readers, sink, same_job) -> None:
    """A user may empty the ledger between the readers' look and the sink's."""
    told = Modes(readers, sink, same_job)
    for queries, deaths in (("ab", 1), ("abb", 0)):
        assert not explore(queries, deaths, job_resets=1, b=told)[1]


@pytest.mark.parametrize(
    ("told", "job_resets"),
    [
        (Modes("continue", "new-job"), 0),
        (Modes("continue", "new-job", same_job=False), 0),
        (Modes("continue", "stop", same_job=False), 0),  # its sink is the ledger's first
        (Modes("continue", "stop"), 1),
        (Modes("continue", "continue"), 1),
        (Modes("continue", "continue", same_job=False), 0),
    ],
)
def test_without_the_check_of_readers_records_are_lost(told: Modes, job_resets: int) -> None:
    assert explore("ab", 1, Rules(checks_readers=False), job_resets, b=told)[1] == MISSING
    assert not explore("ab", 1, job_resets=job_resets, b=told)[1]


@pytest.mark.parametrize("readers", MODES)  # those that go on may have looked too early
def test_a_sink_that_goes_on_needs_readers_that_do(readers: str) -> None:
    told = Modes(readers, "continue")
    assert explore("ab", 1, Rules(checks_continues=False), b=told)[1] == TWICE
    assert not explore("ab", 1, b=told)[1]


@pytest.mark.full
def test_of_three_queries_each_may_be_told_something_else() -> None:
    for told in (Modes(*both) for both in itertools.product(MODES, MODES)):
        goes_on = Modes("continue", "continue")
        assert not explore("abc", 1, job_resets=1, b=told, c=goes_on)[1]
        assert not explore("abc", 1, job_resets=1, b=goes_on, c=told)[1]
