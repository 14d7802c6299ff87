"""What is committed of the ends that Spark reports."""

from __future__ import annotations

import pytest

from eo_kafka.connectors.monitoring.consumer_group import ConsumerGroup, slowest
from eo_kafka.core.offsets import TopicPartition
from eo_kafka.errors import OptionsError

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_the_slowest_of_several_sources_counts() -> None:
    assert slowest(['{"a":{"0":7},"b":{"0":2}}', '{"a":{"0":5}}']) == {A: 5, B: 2}


@pytest.mark.parametrize("text", [None, "", "17", '{"logOffset":3}', "not JSON", '{"a":{"0":-1}}'])
def test_other_sources_say_nothing(text: str | None) -> None:
    assert slowest([text]) == {}


def test_what_is_missing_is_said_at_once() -> None:
    with pytest.raises(OptionsError) as refused:
        ConsumerGroup(" ", {}, query="")
    assert len(refused.value.problems) == 3
