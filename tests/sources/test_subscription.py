"""Which partitions the three strategies choose of those that there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.offsets import TopicPartition
from eo_kafka.sources.settings.subscription import Subscription, assignment, pattern


def partitions(*topics: str) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for topic in topics for number in (0, 1)}


def test_subscribe_takes_all_partitions_of_its_topics() -> None:
    assert Subscription(("a", "b")).wanted(partitions("a", "b", "ab")) == partitions("a", "b")


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("orders", ("orders", "orders-2", "old-orders")),  # a search, as the JVM connector's
        ("^orders$", ("orders",)),
        ("orders.*", ("orders", "orders-2", "old-orders")),
        ("^(orders|bills)-\\d$", ("orders-2", "bills-1")),
        (".*", ("orders", "orders-2", "old-orders", "bills-1")),
        (" ^orders$\n", ("orders",)),  # as the JVM connector: edges are cut
        ("nothing", ()),
    ],
)
def test_a_pattern_is_searched_for(expression: str, found: tuple[str, ...]) -> None:
    there = partitions(
        "orders",
        "orders-2",
        "old-orders",
        "bills-1",
        "__consumer_offsets",
        "__transaction_state",
        "__eo_kafka.orders.ledger",
        "__eo_kafka.orders.state",
    )
    assert Subscription(pattern=pattern(expression)).wanted(there) == partitions(*found)


def test_assigned_partitions_that_do_not_exist_are_passed_over() -> None:
    """Of a topic that exists: of another one OffsetLookup tells."""
    wanted = Subscription(assigned=assignment('{"a":[0,7]}'))
    assert wanted.wanted(partitions("a", "b")) == {TopicPartition("a", 0)}


@pytest.mark.parametrize("value", ["", "  ", "(", "[a-", "*"])
def test_what_is_no_pattern_is_said(value: str) -> None:
    with pytest.raises(ValueError, match="pattern to subscribe|must be a regular expression"):
        pattern(value)


NO_ASSIGNMENTS = ["", "a", "[]", "{}", '{"a":[]}', '{"a":0}', '{"a":["0"]}', '{"a":[true]}']


@pytest.mark.parametrize("value", NO_ASSIGNMENTS)
def test_what_is_no_assignment_is_said(value: str) -> None:
    with pytest.raises(ValueError, match="topicA"):
        assignment(value)


@given(st.text())
def test_any_text_is_read_or_named(value: str) -> None:
    for read in (pattern, assignment):
        try:
            read(value)
        except ValueError as error:
            assert str(error)
