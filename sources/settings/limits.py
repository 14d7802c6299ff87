"""Parses where a read starts and ends. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ...core.errors import cut
from ...core.offsets import EARLIEST, LATEST, Offsets, TopicPartition, decode, names
from ...core.options import json_object, whole_number
from .subscription import Subscription

Word: TypeAlias = Literal["earliest", "latest"]
_GROUP = "group:"
_WORDS: dict[str, Word] = {"earliest": "earliest", "latest": "latest"}


@dataclass(frozen=True)
class ByTime:
    """The first offset whose record is not older than a time: one for all partitions, or each its
    own, in milliseconds since 1970. `or_latest`: without such a record it is the newest offset."""

    of_all: int | None
    of_each: Mapping[TopicPartition, int]
    or_latest: bool

    def times(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The time for each."""
        if self.of_all is not None:
            return dict.fromkeys(partitions, self.of_all)
        return dict(self.of_each)


@dataclass(frozen=True)
class ByTopic:
    """Some topics by word, the others by the offsets of their partitions."""

    words: Mapping[str, Word]
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class ByGroup:
    """Where a consumer group has committed that it is."""

    group: str


Limit: TypeAlias = Word | dict[TopicPartition, int] | ByTopic | ByTime | ByGroup


def milliseconds(value: str) -> int:
    """A time in milliseconds since 1970."""
    if not value.strip().isdecimal():
        raise ValueError("must be a single whole number, milliseconds since 1970")
    return whole_number(0)(value)


def times(value: str) -> Mapping[TopicPartition, int]:
    """Times by partition, as JSON."""
    return decode(value)


def start_limit(value: str) -> Limit:
    """As `offset_limit`, or `group:` and the id of a consumer group."""
    if not value.strip().lower().startswith(_GROUP):
        return offset_limit(value)
    group = value.strip()[len(_GROUP) :].strip()
    if not group:
        raise ValueError("must name a consumer group behind 'group:'")
    return ByGroup(group)


def offset_limit(value: str) -> Limit:
    """`earliest`, `latest`, or offsets as JSON."""
    if word := _WORDS.get(value.strip().lower()):
        return word
    if not value.strip().startswith("{"):
        raise ValueError('must be earliest, latest or JSON like {"topicA":{"0":23,"1":-1}}')
    return _of_topics(json_object(value))


def _of_topics(given: dict[str, object]) -> Limit:
    """A topic may have a word in the place of its partitions' offsets (SPARK-58774)."""
    words: dict[str, Word] = {}
    for topic, said in given.items():
        if not isinstance(said, str):
            continue
        word = _WORDS.get(said.strip().lower())
        if word is None:
            raise ValueError(f"must give earliest, latest or offsets for topic '{cut(topic)}'")
        words[topic] = word
    offsets = decode({topic: said for topic, said in given.items() if topic not in words}, EARLIEST)
    return ByTopic(words, offsets) if words else offsets


def problems_of(name: str, limit: object, subscription: Subscription) -> Iterator[str]:
    """What can be said without a broker of option `name`: of offsets or times by partition, which
    must be those of all that is read."""
    words = set(limit.words) if isinstance(limit, ByTopic) else set()
    offsets = limit.offsets if isinstance(limit, ByTopic) else limit
    if not isinstance(offsets, Mapping):
        return
    if subscription.assigned:
        expected = {at for at in subscription.assigned if at.topic not in words}
        if offsets.keys() != expected:
            differing = names(offsets.keys() ^ expected)
            yield (
                f"Options '{name}' and 'assign' must name the same partitions; only one of them "
                f"names {differing}."
            )
    elif subscription.topics:
        named = words | {partition.topic for partition in offsets}
        topics = set(subscription.topics)
        if extra := sorted(named - topics):
            yield (
                f"Option '{name}' gives offsets for {', '.join(extra)}, "
                "which 'subscribe' does not name."
            )
        if missing := sorted(topics - named):
            yield f"Option '{name}' gives no offsets for {', '.join(missing)}."


def _wrong_words(name: str, limit: Limit, wrong: str) -> list[str]:
    if not isinstance(limit, ByTopic):
        return []
    return [
        f"Option '{name}' for topic {topic} can't be {wrong} for batch queries on Kafka."
        for topic, word in sorted(limit.words.items())
        if word == wrong
    ] + _wrong_in_batch(name, limit.offsets, LATEST if wrong == "latest" else EARLIEST)


def _wrong_in_batch(name: str, offsets: Offsets, wrong: int) -> list[str]:
    word = "latest" if wrong == LATEST else "earliest"
    return [
        f"Option '{name}' for {partition} can't be {word} for batch queries on Kafka."
        for partition, offset in sorted(offsets.items())
        if offset == wrong
    ]


def batch_problems(starting: Limit, ending: Limit) -> list[str]:
    """What a stream may be told, but a batch may not."""
    problems = []
    if starting == "latest":
        problems.append(
            "Option 'startingOffsets': starting offset can't be latest for batch queries on Kafka."
        )
    if ending == "earliest":
        problems.append(
            "Option 'endingOffsets': ending offset can't be earliest for batch queries on Kafka."
        )
    problems += _wrong_words("startingOffsets", starting, "latest")
    problems += _wrong_words("endingOffsets", ending, "earliest")
    starts = starting if isinstance(starting, dict) else {}
    ends = ending if isinstance(ending, dict) else {}
    problems += _wrong_in_batch("startingOffsets", starts, LATEST)
    problems += _wrong_in_batch("endingOffsets", ends, EARLIEST)
    if starts and ends and starts.keys() != ends.keys():
        problems.append(
            "Options 'startingOffsets' and 'endingOffsets' must name the same partitions; "
            f"only one of them names {names(starts.keys() ^ ends.keys())}."
        )
    problems += [
        f"Option 'startingOffsets' for {partition} is {start}, greater than the {end} of "
        "'endingOffsets'."
        for partition, start in sorted(starts.items())
        if 0 <= (end := ends.get(partition, -1)) < start
    ]
    return problems
