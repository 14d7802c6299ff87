"""The JVM connector's proration of `maxOffsetsPerTrigger`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.offsets import OFFSET_MAX, TopicPartition
from eo_kafka.sources.rate_limit import rate_limited

A, B, C = (TopicPartition("t", number) for number in range(3))

backlogs = st.lists(
    st.tuples(st.integers(0, 10**12), st.integers(0, 10**12)), min_size=1, max_size=6
)


def test_in_proportion_to_the_backlog() -> None:
    assert rate_limited(10, {A: 0, B: 100}, {A: 75, B: 125}) == {A: 7, B: 102}


def test_a_share_below_one_is_rounded_up() -> None:
    assert rate_limited(3, {A: 0, B: 5, C: 9}, {A: 1000, B: 6, C: 9}) == {A: 2, B: 6, C: 9}


def test_all_of_a_backlog_within_the_limit() -> None:
    assert rate_limited(1000, {A: 1, B: 2}, {A: 10, B: 20}) == {A: 10, B: 20}


def test_no_backlog_ends_at_the_newest() -> None:
    assert rate_limited(5, {A: 10, B: 7}, {A: 10, B: 7}) == {A: 10, B: 7}


def test_a_partition_whose_log_shrank_is_left_to_the_data_loss_rules() -> None:
    assert rate_limited(5, {A: 10, B: 0}, {A: 4, B: 50}) == {A: 4, B: 5}


def test_a_partition_without_a_begin_ends_at_the_newest() -> None:
    assert rate_limited(5, {A: 0}, {A: 50, B: 8}) == {A: 5, B: 8}


def test_the_largest_limit_does_not_overflow() -> None:
    """SPARK-26718."""
    assert rate_limited(OFFSET_MAX, {A: 5, B: 3}, {A: 100, B: OFFSET_MAX}) == {
        A: 100,
        B: OFFSET_MAX,
    }


@given(st.integers(1, OFFSET_MAX), backlogs)
def test_moves_on_never_passes_the_end_and_keeps_to_the_limit(
    limit: int, sizes: list[tuple[int, int]]
) -> None:
    begin = {TopicPartition("t", number): start for number, (start, _) in enumerate(sizes)}
    newest = {at: start + sizes[at.partition][1] for at, start in begin.items()}

    ends = rate_limited(limit, begin, newest)

    assert ends.keys() == newest.keys()
    for at, end in ends.items():
        assert begin[at] <= end <= newest[at]
        assert end > begin[at] or newest[at] == begin[at], "a backlog that never shrinks"
    taken = sum(ends[at] - begin[at] for at in ends)
    assert taken <= limit * (1 + 1e-9) + len(ends)
