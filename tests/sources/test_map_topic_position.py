"""Where a stream of a map that is a topic is, and when removals may be missing."""

from __future__ import annotations

import json

import pytest

from eo_kafka.core.offsets import Position, TopicPartition
from eo_kafka.errors import SourceError
from eo_kafka.sources.maps.topic_position import (
    TopicPosition,
    after,
    read_until_ms,
    too_late,
)

A, B = TopicPartition("map", 0), TopicPartition("map", 1)
DAY = 86_400_000
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
        {"map": "map", "offsets": {}, "caughtUp": 1, "removalsKept": -1},
        {"map": "map", "offsets": {}, "caughtUp": 1, "removalsKept": True},
        {"map": "map", "offsets": {}, "caughtUp": 1, "removalsKept": None},
    ],
)
def test_what_is_no_position_is_refused(written) -> None:
    with pytest.raises(SourceError, match="not one of a map that is a topic"):
        TopicPosition.decode(written)


def test_without_anything_new_there_is_no_batch() -> None:
    assert after(START, START.position, dict(START.position.offsets), 1099, 400) is START


def test_an_idle_stream_renews_now_and_then_that_it_has_read_everything() -> None:
    found = after(START, START.position, dict(START.position.offsets), 1100, 400)
    assert found == TopicPosition("map", START.position, 1100, 400)
    # and, looked at again at the same time, has no batch, so that a run by itself ends
    assert after(found, found.position, dict(START.position.offsets), 1100, 400) is found


def test_a_batch_to_the_end_is_caught_up_and_one_that_is_cut_short_is_not() -> None:
    newest = {A: 9, B: 7}
    to_the_end, cut_short = Position(newest), Position({A: 6, B: 7})
    for end, caught_up in ((to_the_end, 2000), (cut_short, 1000)):
        assert after(START, end, newest, 2000, 400) == TopicPosition("map", end, caught_up, 400)


def test_a_time_that_is_yet_to_come_says_nothing_and_is_renewed() -> None:
    """As a driver wrote it whose clock was two days ahead."""
    now = 10 * DAY
    ahead = TopicPosition("map", START.position, now + 2 * DAY, DAY)
    newest = dict(START.position.offsets)
    renewed = after(ahead, ahead.position, newest, now, DAY)
    assert renewed == TopicPosition("map", START.position, now, DAY)
    later = now + DAY + DAY // 2
    end = after(ahead, Position({A: 9, B: 7}), {A: 9, B: 7}, later, DAY)
    assert too_late(read_until_ms(ahead, end, DAY, later), 3, 4, lambda: later)
    a_little = TopicPosition("map", START.position, now + 1000, DAY)  # as clocks differ
    assert after(a_little, a_little.position, newest, now, DAY) is a_little
    assert read_until_ms(a_little, end, DAY, now) == now + 1000 + DAY


def test_the_smallest_setting_since_all_was_read_counts_also_after_it_was_raised() -> None:
    start = TopicPosition("map", START.position, 1000, DAY)
    newest = {A: 9, B: 7}
    cut_short = after(start, Position({A: 6, B: 7}), newest, 2000, 100)
    assert (cut_short.caught_up_ms, cut_short.kept_ms) == (1000, 100)
    assert read_until_ms(start, cut_short, DAY, 2000) == 1100, "as a restart plans it again"
    to_the_end = after(cut_short, Position(newest), newest, 3000, DAY)
    assert (to_the_end.caught_up_ms, to_the_end.kept_ms) == (3000, DAY)
    assert read_until_ms(cut_short, to_the_end, DAY, 3000) == 1100
    written = json.loads(json.dumps(cut_short.encode()))
    assert TopicPosition.decode(written) == cut_short


def test_an_idle_stream_notes_that_the_setting_was_lowered_and_goes_by_it() -> None:
    start, newest = TopicPosition("map", START.position, 1000, DAY), dict(START.position.offsets)
    lowered = after(start, start.position, newest, 1010, 1000)
    assert lowered == TopicPosition("map", START.position, 1010, 1000)
    assert after(lowered, lowered.position, newest, 1020, 1000) is lowered
    raised = after(lowered, lowered.position, newest, 1260, DAY)
    assert raised == TopicPosition("map", START.position, 1260, DAY), "within 1000 of before"


@pytest.mark.parametrize(
    ("rows", "now", "late"), [(3, 11, True), (4, 11, False), (3, 10, False), (4, 10, False)]
)
def test_what_is_read_late_and_has_gaps_may_lack_removals(rows, now, late) -> None:
    assert too_late(10, rows, 4, lambda: now) is late


def test_a_topic_that_was_made_again_is_marked_in_the_end_of_its_first_batch_only() -> None:
    newest, ids, anew = {A: 2, B: 1}, {"map": "id-2"}, frozenset({"map"})
    end = Position(newest, ids=ids, anew=anew)
    first = after(START, end, newest, 2000, 400)
    assert first == TopicPosition("map", end, 2000, 400)
    assert TopicPosition.decode(json.loads(json.dumps(first.encode()))) == first
    assert after(first, first.position, newest, 2099, 400) is first
    renewed = after(first, first.position, newest, 2100, 400)
    assert renewed == TopicPosition("map", Position(newest, ids=ids), 2100, 400)
    later = {A: 3, B: 1}
    assert after(first, Position(later, ids=ids), later, 3000, 400).position.anew == frozenset()
