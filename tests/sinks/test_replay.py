"""Which rows of a torn batch's replay are visible already."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.transaction import Decision, DecisionState, Identity, Participant
from eo_kafka.sinks.batches.committable import Torn
from eo_kafka.sinks.batches.replay import Content, compare

NOBODY = Identity("", -1, -1)


def torn(contents: dict[int, str], lost: set[int], *, decided: bool) -> Torn:
    """One that brought these digests, of a row each, of which the lost are not visible. Where it
    was not decided, those are not known either."""
    parts = tuple(Participant(at, 0, 1, NOBODY, 1, of) for at, of in contents.items() if of)
    missing = tuple(part for part in parts if part.partition in lost)
    if not decided:
        parts, missing = tuple(part for part in parts if part not in missing), ()
    decision = Decision("main", 7, 0, DecisionState.DECIDED, 1, 5, 1, 0, parts)
    return Torn(decision, missing, decided=decided)


def brought(contents: dict[int, str]) -> list[Content]:
    return [Content(at, 1 if of else 0, of) for at, of in contents.items()]


@pytest.mark.parametrize("decided", [False, True])
@given(
    contents=st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=6),
    lost=st.sets(st.integers(0, 5)),
    data=st.data(),
)
def test_rows_come_back_in_whichever_tasks(
    decided: bool, contents: list[str], lost: set[int], data: st.DataObject
) -> None:
    before = dict(enumerate(contents))
    now = dict(enumerate(data.draw(st.permutations(contents))))
    left = torn(before, lost, decided=decided)
    found = compare(left, brought(now))
    assert not found.unequal
    written = Counter(of for at, of in now.items() if of and at not in found.visible)
    shown = Counter(part.digest for part in left.committed)
    assert written + shown == Counter(of for of in contents if of)
    # A task that wrote nothing, as its own rows are visible, is among those that need not.
    alone = {at for at, of in now.items() if of and left.shows(at, 1, of)}
    assert alone <= found.visible


def test_of_thousands_of_tasks_it_is_told_at_once() -> None:
    """All their transactions wait for it: a look at each by each would take minutes."""
    left = torn({at: f"{at}" for at in range(8000)}, set(range(4000)), decided=True)
    found = compare(left, brought({at: f"{(at + 1) % 8000}" for at in range(8000)}))
    assert not found.unequal
    assert len(found.visible) == 4000


@pytest.mark.parametrize("decided", [False, True])
def test_other_rows_are_told(decided: bool) -> None:
    left = torn({0: "a", 1: "b", 2: "c"}, {1}, decided=decided)
    assert compare(left, brought({0: "a", 1: "x", 2: "c"})).unequal == ((1,) if decided else ())
    assert compare(left, brought({0: "x", 1: "b", 2: "c"})).unequal == (0,)
    assert compare(left, brought({0: "a", 1: "b"})).unequal == (2,)
    assert compare(left, brought({0: "a", 1: "b", 2: "c", 3: "c"})).unequal == (
        (3,) if decided else ()
    )
    assert compare(left, [Content(0, 2, "a"), *brought({1: "b", 2: "c"})]).unequal == (0,)
