"""Which topic partitions a reader wants: `subscribe`, `subscribePattern` or `assign`. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ...core.errors import cut
from ...core.offsets import PARTITION_MAX, TopicPartition
from ...core.options import json_object
from ...state.ledger.job_topics import is_internal

_ASSIGN_EXAMPLE = '{"topicA":[0,1],"topicB":[2,4]}'


@dataclass(frozen=True)
class Subscription:
    """One of three: `topics` with all their partitions, those that `pattern` finds, or `assigned`
    partitions, of whose topics those that do not exist are passed over."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: frozenset[TopicPartition] = frozenset()

    def wanted(self, there: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Of all partitions that there are, those that are read."""
        if self.pattern is None:
            known = set(self.topics)
            return {at for at in there if at.topic in known or at in self.assigned}
        # As the JVM connector: found anywhere in the name.
        found = re.compile(self.pattern).search
        return {at for at in there if not is_internal(at.topic) and found(at.topic)}


def topic_list(value: str) -> tuple[str, ...]:
    """Topics separated by commas, each named once. Raises ValueError."""
    topics = dict.fromkeys(topic for topic in map(str.strip, value.split(",")) if topic)
    if not topics:
        raise ValueError("names no topics to subscribe to")
    return tuple(topics)


def pattern(value: str) -> str:
    """A regular expression, without spaces around it, as the JVM connector takes it. Raises
    ValueError."""
    value = value.strip()
    if not value:
        raise ValueError("is an empty pattern to subscribe to")
    try:
        re.compile(value)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"must be a regular expression as Python reads it ({error})") from None
    return value


def assignment(value: str) -> frozenset[TopicPartition]:
    """Partitions by topic, as JSON. Raises ValueError."""
    example = f"must be JSON like {_ASSIGN_EXAMPLE}"
    if not value.strip().startswith("{"):
        raise ValueError(f"names no topic partitions to assign; it {example}")
    found = set()
    for topic, numbers in json_object(value).items():
        if not isinstance(numbers, list):
            raise ValueError(f"{example}; for topic '{cut(topic)}' it gives {cut(numbers)}")
        for number in numbers:
            if type(number) is not int or not 0 <= number <= PARTITION_MAX:
                raise ValueError(
                    f"{example}; for topic '{cut(topic)}' it gives partition {cut(number)}"
                )
            found.add(TopicPartition(topic, number))
    if not found:
        raise ValueError(f"names no topic partitions to assign; it {example}")
    return frozenset(found)
