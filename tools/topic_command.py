"""`eo-kafka topic create | list | describe | offsets`, where Kafka's own scripts are not at hand.

Exit codes: 0 done; 1 failed, or a topic is not as it was asked for; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import datetime
from typing import Any

import tenacity

from ..clients.kafka import topics
from ..clients.kafka.cluster import connect
from ..core.errors import EoKafkaError, cut
from ..sinks.options import SinkOptions
from .shared.command_line import add_connection, add_json, connection, print_json, table

_TIMEOUT_S = 10.0
_NO_RECORD = -1  # Kafka's answer where none is as new as asked for
_PARTITIONS_MAX = 100_000
_REPLICAS_MAX = 10_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    create = actions.add_parser("create", help="create topics")
    create.add_argument(
        "topics",
        nargs="+",
        type=wanted,
        metavar="NAME:PARTITIONS",
        help="without a number of partitions the brokers' num.partitions",
    )
    create.add_argument(
        "--replicas",
        type=_replication,
        default=-1,
        metavar="N",
        help="default: the brokers' default.replication.factor",
    )
    create.add_argument(
        "--set",
        action="append",
        default=[],
        type=_setting,
        metavar="NAME=VALUE",
        help="a setting of the topic, such as retention.ms=86400000; may be repeated",
    )
    listing = actions.add_parser("list", help="all topics")
    listing.add_argument("--all", action="store_true", help="also those that begin with '__'")
    describe = actions.add_parser("describe", help="partitions, offsets and settings of a topic")
    describe.add_argument("topic", metavar="NAME")
    offsets = actions.add_parser(
        "offsets",
        help="the offsets that a time is at, as JSON for startingOffsets and endingOffsets",
    )
    offsets.add_argument("topic", metavar="NAME")
    offsets.add_argument(
        "--at",
        type=_time,
        required=True,
        metavar="TIME",
        help="such as 2026-11-24T09:30:00Z: the first record that is not older, else the end",
    )
    for action in actions.choices.values():
        add_connection(action)
    for action in (listing, describe):
        add_json(action)


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit code. Raises EoKafkaError."""
    from confluent_kafka import KafkaException

    settings = SinkOptions.parse(connection(arguments), streaming=False).kafka
    admin, _ = connect(settings, _TIMEOUT_S)
    try:
        if arguments.action == "create":
            asked = arguments.topics, arguments.replicas, dict(arguments.set)
            for said in created(admin, *asked):
                print(said)
        elif arguments.action == "list":
            _list(admin, arguments)
        elif arguments.action == "offsets":
            print(json.dumps(offsets_at(admin, arguments.topic, arguments.at)))
        else:
            _describe(admin, arguments.topic, as_json=arguments.json)
    except FutureTimeout:
        raise EoKafkaError(f"Kafka did not answer within {_TIMEOUT_S:.0f} s.") from None
    except KafkaException as error:
        raise EoKafkaError(f"Kafka does not answer that: {cut(error.args[0].str())}.") from None
    return 0


def wanted(text: str) -> tuple[str, int]:
    """`orders:4`: a name and a number of partitions; -1, the brokers' default, without a number."""
    name, colon, number = text.partition(":")
    if not name or (colon and not (number.isdigit() and 0 < int(number) <= _PARTITIONS_MAX)):
        raise argparse.ArgumentTypeError(
            f"'{text}' is not NAME or NAME:PARTITIONS, such as orders:4"
        )
    return name, int(number) if colon else -1


def created(
    admin: Any,
    asked: Sequence[tuple[str, int]],
    replicas: int = -1,
    settings: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Create topics of so many partitions, and a sentence about each. One that is there, and is as
    it is `asked` for, will do.

    Raises EnvironmentRefused; and EoKafkaError, before any is created, for those that are others.
    """
    from confluent_kafka.admin import NewTopic

    config = dict(settings or {})
    there = [(name, count) for name, count in asked if topics.exists(admin, name)]
    _check_same(admin, there, replicas, config)
    for number, (name, partitions) in enumerate(asked, 1):
        topic = NewTopic(name, partitions, replicas, config=config)
        advice = "Give other numbers or settings, or let somebody create it who may."
        try:
            is_new = topics.create(admin, topic, advice)
            if not is_new:
                _check_same(admin, [(name, partitions)], replicas, config)
        except EoKafkaError as error:
            left = ", ".join(f"'{one}'" for one, _ in asked[number:])
            raise type(error)(
                f"{error} Not created either: {left}." if left else f"{error}"
            ) from None
        count = len(_partitions(admin, name))
        said = f"{count} partition{'s' if count > 1 else ''}"
        if is_new:
            yield f"Topic '{name}' has been created with {said}."
        else:
            yield f"Topic '{name}' is there already, with {said}. Nothing was changed."


def _check_same(
    admin: Any, asked: Iterable[tuple[str, int]], replicas: int, settings: Mapping[str, str]
) -> None:
    """Raises EoKafkaError for those of the topics, which are there, that are others."""
    others = []
    for name, partitions in asked:
        found = _partitions(admin, name)
        there = {"partitions": str(len(found)), "replicas": str(_replicas(found))}
        if settings:
            there |= topics.settings_of(admin, name)
        wrong = [
            f"{what}={there.get(what, '(not visible)')} and not {value}"
            for what, value in {"partitions": partitions, "replicas": replicas, **settings}.items()
            if value != -1 and there.get(what) != str(value)
        ]
        if wrong:
            others.append(f"Topic '{name}' is there already, with {', '.join(wrong)}.")
    if others:
        raise EoKafkaError(f"{' '.join(others)} Nothing was changed.")


def _replication(text: str) -> int:
    if not text.isdigit() or not 0 < int(text) <= _REPLICAS_MAX:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of replicas, such as 3")
    return int(text)


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not NAME=VALUE, such as retention.ms=3600000"
        )
    return name.strip(), value.strip()


def _partitions(admin: Any, topic: str) -> Sequence[Any]:
    found = topics.partitions_of(admin, topic)
    return [found[number] for number in sorted(found)]


def _list(admin: Any, arguments: argparse.Namespace) -> None:
    found = admin.list_topics(timeout=_TIMEOUT_S).topics
    rows = [
        (name, len(topic.partitions), _replicas(topic.partitions.values()))
        for name, topic in sorted(found.items())
        if arguments.all or not name.startswith("__")
    ]
    if arguments.json:
        keys = ("topic", "partitions", "replicas")
        print_json({"topics": [dict(zip(keys, row, strict=True)) for row in rows]})
    elif rows:
        print(table(("topic", "partitions", "replicas"), rows, right="partitions replicas"))
    else:
        print("There are no topics." if arguments.all else "There are no topics of users.")


def _replicas(partitions: Iterable[Any]) -> int:
    """The fewest that a partition has."""
    return min((len(partition.replicas) for partition in partitions), default=0)


def _describe(admin: Any, topic: str, *, as_json: bool) -> None:
    _check_exists(admin, topic)
    found, settings = _partitions(admin, topic), _own_settings(admin, topic)
    ends = [_offsets(admin, topic, len(found), one) for one in ("earliest", "latest")]
    titles = ("partition", "leader", "replicas", "in_sync", "first_offset", "next_offset")
    rows = [
        (one.id, one.leader, _numbers(one.replicas), _numbers(one.isrs), first, end)
        for one, first, end in zip(found, *ends, strict=True)
    ]
    if as_json:
        listed = [dict(zip(titles, row, strict=True)) for row in rows]
        print_json({"topic": topic, "partitions": listed, "settings": settings})
        return
    print(table(titles, rows, right=" ".join(titles)))
    for name, value in sorted(settings.items()):
        print(f"{name}={value}")


def offsets_at(admin: Any, topic: str, at: datetime) -> dict[str, int]:
    """The first offset of each partition whose record is not older; where there is none, the end of
    what `read_committed` may read now. Says on stderr where that is. Raises EoKafkaError."""
    _check_exists(admin, topic)
    count = len(_partitions(admin, topic))
    # The ends first: what comes meanwhile must not get before a place that stands for a later time.
    ends = _offsets(admin, topic, count, "latest", committed=True)
    found = _offsets(admin, topic, count, at, committed=True)
    open_ended = [number for number in range(count) if found[number] == _NO_RECORD]
    if open_ended:
        print(
            f"No record of partition {_numbers(open_ended)} is as new as that: its end is given. "
            "What comes there later, however old, is behind it.",
            file=sys.stderr,
        )
    return {str(n): ends[n] if n in open_ended else found[n] for n in range(count)}


def _check_exists(admin: Any, topic: str) -> None:
    if not topics.exists(admin, topic):
        raise EoKafkaError(f"There is no topic '{topic}'. 'eo-kafka topic list' names those there.")


def _time(text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        found = datetime.min
    if found.tzinfo is None or found.year < 1970:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not a time with its zone, such as 2026-11-24T09:30:00Z"
        )
    return found


def _numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, sorted(numbers)))


def _own_settings(admin: Any, topic: str) -> dict[str, str]:
    """Those that the topic does not have from the brokers."""
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    entries = admin.describe_configs([resource])[resource].result(_TIMEOUT_S)
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: str(entry.value) for name, entry in entries.items() if entry.source == own}


def _offsets(
    admin: Any, topic: str, partitions: int, which: str | datetime, *, committed: bool = False
) -> list[int]:
    """By a word, or by a time (-1: no record is as new). Of a topic that was just created, some
    brokers do not know yet what they lead."""
    from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
    from confluent_kafka.admin import OffsetSpec

    if isinstance(which, datetime):
        spec = OffsetSpec.for_timestamp(round(which.timestamp() * 1000))
    else:
        spec = getattr(OffsetSpec, which)()
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    soon = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    again = tenacity.Retrying(
        retry=tenacity.retry_if_exception(
            lambda error: isinstance(error, KafkaException) and error.args[0].code() in soon
        ),
        stop=tenacity.stop_after_delay(_TIMEOUT_S),
        wait=tenacity.wait_fixed(0.2),
        reraise=True,
    )

    def ask() -> list[int]:
        asked = {TopicPartition(topic, n): spec for n in range(partitions)}
        found = admin.list_offsets(asked, isolation_level=level, request_timeout=_TIMEOUT_S)
        return [found[one].result(_TIMEOUT_S).offset for one in asked]

    offsets: list[int] = again(ask)
    if min(offsets, default=0) < _NO_RECORD:  # so the client says that a leader did not answer
        raise EoKafkaError(f"Kafka did not answer within {_TIMEOUT_S:.0f} s.")
    return offsets
