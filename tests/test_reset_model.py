"""`onReset=new-job`, explored: whoever dies or lives on, and whenever, each query's batch is
visible once at most, what was decided is visible, and no query takes the ledger twice."""

from __future__ import annotations

import pytest
from reset_model import Rules, explore


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
