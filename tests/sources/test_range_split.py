"""Ranges cut into tasks as the JVM connector's KafkaOffsetRangeCalculatorSuite expects it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.offsets import OffsetRange, TopicPartition
from eo_kafka.sources.range_split import gather, split

A, B, C, D = (TopicPartition("t", number) for number in range(4))


def ranges(*given: tuple[TopicPartition, int, int]) -> list[OffsetRange]:
    return [OffsetRange(*one) for one in given]


def test_without_options_nothing_is_cut() -> None:
    given = ranges((A, 1, 2), (B, 5, 100))
    assert split(given, None, None) == given


def test_empty_ranges_are_dropped() -> None:
    assert split(ranges((A, 1, 2), (B, 5, 5), (C, 7, 3)), 1, None) == ranges((A, 1, 2))


@pytest.mark.parametrize("least", [1, 2, 3])
def test_enough_ranges_are_left_as_they_are(least: int) -> None:
    given = ranges((A, 1, 2), (B, 1, 2), (C, 1, 2))
    assert split(given, least, None) == given


def test_one_range_for_several_tasks() -> None:
    assert split(ranges((A, 1, 5)), 4, None) == ranges((A, 1, 2), (A, 2, 3), (A, 3, 4), (A, 4, 5))


def test_fewer_offsets_than_tasks() -> None:
    assert split(ranges((A, 1, 2)), 4, None) == ranges((A, 1, 2))


def test_a_skewed_one_is_cut() -> None:
    assert split(ranges((A, 1, 10_001), (B, 1, 2)), 3, None) == ranges(
        (A, 1, 5001), (A, 5001, 10_001), (B, 1, 2)
    )


def test_small_ones_take_no_part_in_the_sharing() -> None:
    """SPARK-30656: several large ones beside several small ones."""
    large = 1_000_000
    found = split(ranges((A, 0, 1), (B, 0, 1), (C, 0, large), (D, 0, large)), 6, None)
    assert found == ranges(
        (A, 0, 1), (B, 0, 1), (C, 0, large // 2), (C, large // 2, large), (D, 0, large // 2),
        (D, large // 2, large),
    )  # fmt: skip


def test_at_most_so_many_records_a_task() -> None:
    assert split(ranges((A, 1, 5), (B, 0, 2)), None, 2) == ranges((A, 1, 3), (A, 3, 5), (B, 0, 2))
    assert split(ranges((A, 0, 5)), None, 2) == ranges((A, 0, 1), (A, 1, 3), (A, 3, 5))


def test_both_options() -> None:
    assert split(ranges((A, 0, 4)), 4, 2) == ranges((A, 0, 1), (A, 1, 2), (A, 2, 3), (A, 3, 4))
    assert split(ranges((A, 0, 4)), 1, 2) == ranges((A, 0, 2), (A, 2, 4))


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=6),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(100, 10**6),
)
def test_every_offset_is_in_one_piece(
    given: list[tuple[int, int]], least: int | None, most: int | None
) -> None:
    whole = [
        OffsetRange(TopicPartition("t", number), start, start + size)
        for number, (start, size) in enumerate(given)
    ]
    found = split(whole, least, most)
    for one in whole:
        at = one.start
        for piece in (piece for piece in found if piece.partition == one.partition):
            assert piece.start == at < piece.end
            assert most is None or piece.end - piece.start <= most
            at = piece.end
        assert at == one.end


def test_a_task_each_where_there_are_not_too_many() -> None:
    given = ranges((A, 1, 2), (B, 5, 100))
    assert gather(given, None) == gather(given, 2) == gather(given, 3) == [(one,) for one in given]
    assert gather([], 2) == []


def test_ranges_share_tasks_and_the_largest_has_one_of_its_own() -> None:
    given = ranges((A, 0, 10), (B, 0, 1000), (C, 7, 17), (D, 0, 30))
    assert gather(given, 2) == [tuple(ranges((A, 0, 10), (C, 7, 17), (D, 0, 30))), (given[1],)]


def test_offsets_of_which_nobody_knows_how_many_there_are_keep_their_tasks() -> None:
    given = ranges((A, -2, -1), (B, -2, -1))
    assert gather(given, None) == [(one,) for one in given]


@given(st.lists(st.integers(1, 10**6), max_size=40), st.integers(1, 50))
def test_every_range_is_in_one_task_and_none_has_much_more_than_another(
    sizes: list[int], most: int
) -> None:
    given = [OffsetRange(TopicPartition("t", n), n, n + size) for n, size in enumerate(sizes)]
    tasks = gather(given, most)
    assert sorted(one for held in tasks for one in held) == given
    assert len(tasks) == min(most, len(given))
    loads = [sum(one.end - one.start for one in held) for held in tasks]
    # Whoever has the most had the fewest before its last and smallest range came.
    for load, held in zip(loads, tasks, strict=True):
        assert load - min(one.end - one.start for one in held) <= min(loads)
