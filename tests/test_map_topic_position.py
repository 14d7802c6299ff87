"""Where a stream of a map that is a topic is, and when removals may be missing."""

from __future__ import annotations

import json

import pytest

from eo_kafka.core.offsets import Position, TopicPartition
from eo_kafka.errors import SourceError
from eo_kafka.sources.maps.topic_position import TopicPosition, after, too_late

A, B = TopicPartition("map", 0), TopicPartition("map", 1)
START = TopicPosition("map", Position({A: 5, B: 7}, epochs={A: 3}), 1000)


def test_a_position_is_written_and_read_as_itself() -> None:
    written = json.loads(json.dumps(START.encode()))
    assert TopicPosition.decode(written) == START
    offsets = {"map": {"0": 5, "1": 7}, "@epochs map 3,-1": {}}
    assert written == {"map": "map", "offsets": offsets, "caughtUp": 1000}


@pytest.mark.parametrize(
    "written",
    [
        {},
        None,
        "map",
        {"map": "map", "offsets": {"map": {"0": 5}}},
        {"map": "map", "offsets": {"other": {"0": 5}}, "caughtUp": 1},
        {"map": "map", "offsets": {"map": {"0": -5}}, "caughtUp": 1},
        {"map": "map", "offsets": {}, "caughtUp": True},
        {"map": "map", "offsets": {}, "caughtUp": -1},
        {"map": 5, "offsets": {}, "caughtUp": 1},
    ],
)
def test_what_is_no_position_is_refused(written) -> None:
    with pytest.raises(SourceError, match="not one of a map that is a topic"):
        TopicPosition.decode(written)


def test_without_anything_new_there_is_no_batch() -> None:
    assert after(START, START.position, dict(START.position.offsets), 1099, 100) is START


def test_an_idle_stream_renews_now_and_then_that_it_has_read_everything() -> None:
    found = after(START, START.position, dict(START.position.offsets), 1100, 100)
    assert found == TopicPosition("map", START.position, 1100)
    # and, looked at again at the same time, has no batch, so that a run by itself ends
    assert after(found, found.position, dict(START.position.offsets), 1100, 0) is found


def test_a_batch_to_the_end_is_caught_up_and_one_that_is_cut_short_is_not() -> None:
    newest = {A: 9, B: 7}
    to_the_end, cut_short = Position(newest), Position({A: 6, B: 7})
    for end, caught_up in ((to_the_end, 2000), (cut_short, 1000)):
        assert after(START, end, newest, 2000, 100) == TopicPosition("map", end, caught_up)


@pytest.mark.parametrize(
    ("rows", "now", "late"), [(3, 11, True), (4, 11, False), (3, 10, False), (4, 10, False)]
)
def test_what_is_read_late_and_has_gaps_may_lack_removals(rows, now, late) -> None:
    assert too_late(10, rows, 4, lambda: now) is late


def test_a_topic_that_was_made_again_is_marked_in_the_end_of_its_first_batch_only() -> None:
    newest, ids, anew = {A: 2, B: 1}, {"map": "id-2"}, frozenset({"map"})
    end = Position(newest, ids=ids, anew=anew)
    first = after(START, end, newest, 2000, 100)
    assert first == TopicPosition("map", end, 2000)
    assert TopicPosition.decode(json.loads(json.dumps(first.encode()))) == first
    assert after(first, first.position, newest, 2099, 100) is first
    renewed = after(first, first.position, newest, 2100, 100)
    assert renewed == TopicPosition("map", Position(newest, ids=ids), 2100)
    later = {A: 3, B: 1}
    assert after(first, Position(later, ids=ids), later, 3000, 100).position.anew == frozenset()
