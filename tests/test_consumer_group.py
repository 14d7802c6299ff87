"""What is committed of the ends that Spark reports, and what is told of the lag."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from eo_kafka.connectors.consumer_group import ConsumerGroup, offsets_behind_latest, slowest
from eo_kafka.core.offsets import TopicPartition
from eo_kafka.errors import OptionsError

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def test_the_slowest_of_several_sources_counts() -> None:
    assert slowest(['{"a":{"0":7},"b":{"0":2}}', '{"a":{"0":5}}']) == {A: 5, B: 2}


@pytest.mark.parametrize("text", [None, "", "17", '{"logOffset":3}', "not JSON", '{"a":{"0":-1}}'])
def test_other_sources_say_nothing(text: str | None) -> None:
    assert slowest([text]) == {}


def test_how_far_each_source_is_behind() -> None:
    sources = [
        SimpleNamespace(endOffset='{"a":{"0":7,"1":9}}', latestOffset='{"a":{"0":10,"1":9}}'),
        SimpleNamespace(endOffset='{"b":{"0":1}}', latestOffset=None),
    ]
    assert offsets_behind_latest(SimpleNamespace(sources=sources)) == [
        {"min": 0, "max": 3, "avg": 1.5},
        {},
    ]


def test_what_is_missing_is_said_at_once() -> None:
    with pytest.raises(OptionsError) as refused:
        ConsumerGroup(" ", {}, query="")
    assert len(refused.value.problems) == 3
