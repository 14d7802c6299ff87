"""An append counts only where the reading had ended."""

from __future__ import annotations

from eo_kafka.state.ledger.append_point import AppendPoint


def test_the_first_append_after_a_fence_must_follow_what_was_read() -> None:
    point = AppendPoint()
    point.fenced()
    point.read_to(7)

    assert "read to offset 7, and goes on at 9" in point.landed([9, 10])
    assert point.at_least == 11

    point.fenced()
    point.read_to(12)
    assert point.landed([12]) == ""


def test_later_ones_follow_markers_and_one_after_another_fence_is_checked_again() -> None:
    point = AppendPoint()
    point.fenced()
    point.read_to(3)

    assert point.landed([3, 4]) == ""
    assert point.landed([6]) == ""
    point.fenced()
    point.read_to(6)
    assert point.landed([8])


def test_an_unknown_offset_is_never_the_right_one() -> None:
    point = AppendPoint()
    point.fenced()
    point.read_to(0)

    assert point.landed([-1])


def test_invented_offsets_do_not_say_where_a_log_ends() -> None:
    """A batch without an offset is reported as -1, 0, 1 and so on."""
    point = AppendPoint()
    point.fenced()
    point.read_to(0)

    assert point.landed([-1, 0, 1])
    assert point.at_least == 0
