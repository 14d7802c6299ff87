"""The set of offsets that were kept, against a plain set."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.sources.queues.kept_offsets import SPAN, KeptOffsets

SMALL = 20
PORTIONS = st.lists(st.lists(st.integers(0, 90), max_size=30), max_size=8)


@given(PORTIONS)
def test_it_is_the_set_of_what_was_added_as_far_as_it_reaches(portions) -> None:
    found, plain, highest = KeptOffsets(), set(), 0
    for portion in portions:
        plain |= {one for one in portion if one >= found.floor}
        found = found.with_more(portion, SMALL)
        highest = max([highest, *(one + 1 for one in plain)])
        assert found.floor == max(0, highest - SMALL)
        assert found.end == max(highest, found.floor)
        assert {one for one in range(100) if one in found} == {
            one for one in plain if one >= found.floor
        }
        assert [one for one in range(100) if found.is_forgotten(one)] == list(range(found.floor))
        assert KeptOffsets.unpacked(json.loads(json.dumps(found.packed()))) == found
        assert list(found.edges) == sorted(set(found.edges)), "runs that touch are one"


def test_what_comes_in_order_is_one_run() -> None:
    found = KeptOffsets().with_more(range(5000)).with_more(range(5000, 9000))
    assert found.edges == (0, 9000)
    later = found.with_more([SPAN + 8999])
    assert (later.floor, later.edges) == (9000, (SPAN + 8999, SPAN + 9000))


def test_one_that_is_late_by_as_much_as_kafka_allows_is_remembered() -> None:
    """One that is away while 10,000 others come, of which each second one is not ours."""
    found = KeptOffsets().with_more([0, *range(1, 10_000, 2)])
    assert 0 in found
    assert 2 not in found
    assert not found.is_forgotten(2)
    assert len(json.dumps(found.packed())) < 50_000


@pytest.mark.parametrize("steps", [[], [0, 1], [0, 1, 0], [-1], [5, -1, 2], [0, 3, -2]])
def test_what_is_no_set_is_refused(steps) -> None:
    with pytest.raises(ValueError, match=r".+"):
        KeptOffsets.unpacked(steps)
