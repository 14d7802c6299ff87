"""Writes records into topics, and reads topics to their ends with `read_committed`."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from ..clients.kafka import config
from ..clients.kafka.control_plane import ControlPlane
from .errors import Anomaly, CheckRefused
from .processes import wait_until

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

Value: TypeAlias = bytes | str | dict[str, Any] | list[Any] | None
Written: TypeAlias = Value | tuple[Value, Value]  # a value, or key and value
ANSWER_S = 30.0
SETTLED_S = 20.0
NEW_TOPIC_S = 5.0
_DIGITS = 17  # of a DOUBLE, at most


class Record(NamedTuple):
    """A record as a `read_committed` consumer gets it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def json(self) -> Any:
        """The value, which is JSON. A number that a float would round is a Decimal. Raises
        ValueError, also for what is not UTF-8, and for an object in which a name stands twice."""
        return parsed(self.value or b"null", _unrounded)


def parsed(value: bytes, number: Callable[[str], Any]) -> Any:
    """What is in JSON, of which nothing is rounded or passed over. `number` is given fractions,
    Infinity and NaN. Raises ValueError."""
    return json.loads(
        value.decode(), parse_float=number, parse_constant=number, object_pairs_hook=_object
    )


def _unrounded(text: str) -> float | Decimal:
    near, exact = float(text), Decimal(text)
    is_near = Decimal(repr(near)) == exact or exact.is_nan() or is_double(text, exact)
    return near if is_near else exact


def is_double(text: str, number: Decimal) -> bool:
    """Whether this is how Java writes a DOUBLE of 1e7 and more: with an E. Before Java 19 its last
    digits need not be the shortest that mean the number; Decimals of Spark come without an E."""
    is_large = "e" in text.lower() and "e-" not in text.lower()
    return is_large and len(number.as_tuple().digits) <= _DIGITS and isfinite(float(text))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError(f"a name stands twice in {[name for name, _ in pairs]}")
    return found


def encoded(value: Value) -> bytes | None:
    """Text as UTF-8, objects and lists as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    return (value if isinstance(value, str) else json.dumps(value)).encode()


def write(servers: str, topic: str, records: Iterable[Written]) -> int:
    """Write records in their order, and wait for all acknowledgements; how many. What has no key
    goes to each partition in turn, the rest where its key says. Raises AssertionError."""
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            failed.append(error)

    producer = config.producer({"bootstrap.servers": servers, "enable.idempotence": True})
    turn = itertools.cycle(partitions_of(servers, topic))
    number = 0
    for record in records:
        number += 1
        key, value = record if isinstance(record, tuple) else (None, record)
        place = {"partition": next(turn)} if key is None else {}
        while True:
            try:
                producer.produce(topic, encoded(value), encoded(key), on_delivery=told, **place)
            except BufferError:
                producer.poll(0.1)
            else:
                break
        producer.poll(0)
    left = producer.flush(60)
    assert not left, f"{left} records were not acknowledged within 60 s"
    assert not failed, failed[0]
    return number


def partitions_of(servers: str, topic: str) -> list[int]:
    """The numbers of its partitions. Each broker hears of a new topic in its own time: waits for
    some seconds, and raises CheckRefused if there is no such topic then."""
    admin = config.admin_client({"bootstrap.servers": servers})
    deadline = time.monotonic() + NEW_TOPIC_S
    while True:
        found = admin.list_topics(topic, ANSWER_S).topics[topic]
        if found.error is None:
            return sorted(found.partitions)
        if time.monotonic() > deadline:
            raise CheckRefused(f"Kafka at {servers} has no topic '{topic}': {found.error.str()}.")
        time.sleep(0.1)


def committed_messages(
    servers: str, topic: str, isolation: str = "read_committed"
) -> list[Message]:
    """What a consumer of this isolation sees, from the begin to the end of each partition: under
    `read_committed` the last stable offset."""
    from confluent_kafka import KafkaError, TopicPartition

    partitions = partitions_of(servers, topic)
    consumer = config.consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "checker",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "fetch.wait.max.ms": 10,  # or the answer that nothing is left takes half a second
            **config.quick_connect({}),
        }
    )
    try:
        # Before it is connected: later, it may take a second to ask for the topic's leader.
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        found: list[Message] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(ANSWER_S)
            assert message is not None, "the broker sent nothing"
            if message.error() is None:
                found.append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise AssertionError(message.error())
        return found
    finally:
        consumer.close()


def read_to_end(servers: str, topic: str) -> list[Record]:
    """All records of a topic, in the order of partitions and offsets, when none of its
    transactions is open. Raises Anomaly if one stays open, and CheckRefused if the topic's
    beginning is deleted: neither could be compared."""
    await_settled(servers, topic)
    ends, begun = _watermarks(servers, topic)
    deleted = [f"{topic}-{number} begins at offset {at}" for number, at in begun.items() if at]
    if deleted:
        raise CheckRefused(
            f"Records of '{topic}' are deleted already ({', '.join(deleted)}): what was in them "
            "cannot be compared. Give the topic a longer retention."
        )
    messages: list[Any] = committed_messages(servers, topic)
    records = [
        Record(one.partition(), one.offset(), one.key(), one.value(), tuple(one.headers() or ()))
        for one in messages
    ]
    beyond = {one.partition: one.offset for one in records if one.offset >= ends[one.partition]}
    assert not beyond, f"'{topic}' was written to while it was read, at {beyond}"
    return sorted(records, key=lambda one: one[:2])


def await_settled(servers: str, topic: str) -> None:
    """Return when each partition can be read to its end. Raises Anomaly after 20 seconds."""
    with control_plane(servers) as control:
        numbers = partitions_of(servers, topic)
        unstable: dict[int, tuple[int, int]] = {}

        def settled() -> bool:
            kinds = [(topic, number, kind) for number in numbers for kind in (True, False)]
            ends = iter(control.look(ends=kinds).ends)
            pairs = dict(zip(numbers, zip(ends, ends, strict=True), strict=True))
            unstable.clear()
            unstable.update({n: pair for n, pair in pairs.items() if pair[0] != pair[1]})
            return not unstable

        try:
            wait_until(settled, "no transaction is open", SETTLED_S)
        except AssertionError:
            names = open_transactions(control, topic) or ["unknown"]
            at = ", ".join(f"{topic}-{n} at {lso} of {end}" for n, (lso, end) in unstable.items())
            raise Anomaly(
                f"open transaction: '{topic}' has one, and readers with read_committed wait "
                f"behind it ({at}). Its transactional id: {', '.join(names)}."
            ) from None


def open_transactions(control: ControlPlane, topic: str) -> list[str]:
    """The transactional ids that have something open in a topic, whoever's they are."""
    found = control.open_transactions(".*", lambda _: True)
    return sorted(
        one.transactional_id for one in found if topic in {name for name, _ in one.partitions}
    )


@contextmanager
def control_plane(servers: str) -> Iterator[ControlPlane]:
    """A control plane of the caller's own."""
    control = ControlPlane({"bootstrap.servers": servers})
    try:
        yield control
    finally:
        control.close()


class Watch:
    """Asks again and again how far a topic is written."""

    def __init__(self, servers: str, topic: str) -> None:
        self._numbers = partitions_of(servers, topic)
        self._topic = topic
        self._control = ControlPlane({"bootstrap.servers": servers})

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self._control.close()

    def ends(self) -> dict[int, int]:
        """The high watermarks: where the partitions end, committed or not."""
        asked = [(self._topic, number, False) for number in self._numbers]
        return dict(zip(self._numbers, self._control.look(ends=asked).ends, strict=True))


class Arrivals:
    """Follows a topic's records from its present ends on, also those of transactions that are open
    or were aborted. Markers of commits and aborts take offsets, too, and are no records."""

    def __init__(self, servers: str, topic: str, ends: Mapping[int, int]) -> None:
        from confluent_kafka import TopicPartition

        self._consumer = config.consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "checker",
                "isolation.level": "read_uncommitted",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 10,
                **config.quick_connect({}),
            }
        )
        self._consumer.assign([TopicPartition(topic, number, at) for number, at in ends.items()])
        self._newest: dict[int, int] = {}

    def __enter__(self) -> Arrivals:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def newest(self) -> Mapping[int, int]:
        """The offset of the newest record so far, by partition."""
        for one in self._consumer.consume(10_000, 0.01):
            if one.error() is None:
                self._newest[one.partition()] = one.offset()
        return self._newest


def _watermarks(servers: str, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    """Where partitions end and begin."""
    from confluent_kafka import TopicPartition

    asked = config.consumer({"bootstrap.servers": servers, "group.id": "checker"})
    try:
        pairs = {
            number: asked.get_watermark_offsets(TopicPartition(topic, number), ANSWER_S)
            for number in partitions_of(servers, topic)
        }
    finally:
        asked.close()
    return {n: high for n, (_, high) in pairs.items()}, {n: low for n, (low, _) in pairs.items()}
