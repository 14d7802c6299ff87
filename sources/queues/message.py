"""A message of whichever queue, and as a record of the inbox; how AMQP's deliveries become
messages. No I/O."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ...clients.amqp.queue import Delivery

MESSAGE_ID, BODY, HEADER = "message-id", "body", "header:"
# The first header of each record; the message's own headers follow it.
META = "eo-queue"
VERSION = 1
# What a record of the inbox says of its message, beside `v`, and may say: a share group's has an
# id, one of RabbitMQ's says what its id is of, and one out of the poison topic its reason, and of a
# body that was cut which part it has, of how many.
SAID = frozenset(("exchange", "routingKey", "redelivered", "deliveries", "sent", "properties"))
ID_OF = "idOf"
MAY_SAY = SAID | {"id", ID_OF, "reason", "part", "parts"}
PART_BYTES = 512 << 10  # with headers of AMQP, of 128 KiB, less than topics take by Kafka's default
_DELIVERIES = "x-delivery-count"  # a quorum queue's count of earlier deliveries
_PROPERTIES = (
    *("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id"),
    *("reply_to", "expiration", "timestamp", "type", "user_id", "app_id", "cluster_id"),
)
_OLDEST_S, _NEWEST_S = -62_135_596_800, 253_402_300_799  # of the years 1 and 9999
Headers = list[tuple[str, bytes | None]]


@dataclass(frozen=True)
class Place:
    """Where the record is that a share group hands out. A topic that is deleted and made again has
    another id, and counts from 0 again."""

    topic_id: str
    partition: int
    offset: int


@dataclass(frozen=True)
class Record:
    """What goes into the inbox, or into the poison topic."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    place: Place | None = None


@dataclass(frozen=True)
class Message:
    """A delivery of a message."""

    id: bytes | None  # two deliveries with the same one are the same message
    key: bytes | None  # its record's
    value: bytes | None
    said: Mapping[str, Any]  # what its broker says of it; columns are made of it
    headers: Headers
    receipt: int = 0  # its backend's own
    place: Place | None = None  # of those of a share group

    @property
    def deliveries(self) -> int | None:
        """How often it was delivered before, where the broker counts that."""
        found: int | None = self.said["deliveries"]
        return found

    def record(self, reason: str | None = None) -> Record:
        """As it goes into the inbox. `reason`: why into the poison topic."""
        return self._record(self.value, {} if reason is None else {"reason": reason})

    def parts(self, reason: str) -> list[Record]:
        """As it goes into a poison topic that is too small for it: pieces of the body, in order."""
        body = self.value or b""
        pieces = [body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)]
        if len(pieces) < 2:
            return [self.record(reason)]
        said = {"reason": reason, "parts": len(pieces)}
        return [self._record(one, {**said, "part": at}) for at, one in enumerate(pieces, 1)]

    def _record(self, value: bytes | None, more: Mapping[str, Any]) -> Record:
        headers = [(META, json.dumps({"v": VERSION, **self.said, **more}).encode()), *self.headers]
        return Record(self.key, value, headers, self.place)


def id_source(value: str) -> str:
    """Parse option `messageId`."""
    name = value.strip()
    if name.lower() in (MESSAGE_ID, BODY):
        return name.lower()
    if name.lower().startswith(HEADER) and name[len(HEADER) :].strip():
        return HEADER + name[len(HEADER) :].strip()
    raise ValueError(f"must be '{MESSAGE_ID}', '{BODY}' or '{HEADER}NAME'")


def id_of(source: str) -> Callable[[Delivery], bytes | None]:
    """What finds a message's id; None where it has none, or what is there is no id: only text,
    bytes and whole numbers are."""
    if source == BODY:
        return lambda one: hashlib.sha256(one.body).hexdigest().encode()
    if source == MESSAGE_ID:
        return lambda one: _plain_id(one.properties.message_id)
    name = source.removeprefix(HEADER)
    return lambda one: _plain_id((one.properties.headers or {}).get(name))


def _plain_id(value: object) -> bytes | None:
    if isinstance(value, bytes):
        return value or None
    if isinstance(value, int) and not isinstance(value, bool):
        return str(int(value)).encode()
    return (value.encode() or None) if isinstance(value, str) else None


def deliveries_of(one: Delivery) -> int | None:
    """How often the broker has delivered it before, where it counts that: quorum queues do. On a
    first delivery the header is another queue's, and came with a message that was moved here."""
    if not one.redelivered:
        return None
    count = (one.properties.headers or {}).get(_DELIVERIES)
    return int(count) if isinstance(count, int) else None  # pika's own integers show an L


def kind_of_id(queue: str, source: str) -> str:
    """What an id is of. Equal ids of two kinds are not the same message."""
    return f"{source} of {queue}"


def told_kind(headers: Headers | None) -> str | None:
    """What the id of a record of the inbox is of; None of a record that does not say it."""
    first, value = (headers or [("", None)])[0]
    if first != META or value is None:
        return None
    try:
        found = json.loads(value)
    except ValueError:
        return None
    kind = found.get(ID_OF) if isinstance(found, dict) else None
    return kind if isinstance(kind, str) else None


def message_of(one: Delivery, key: bytes | None, kind: str = "") -> Message:
    """Of a delivery of AMQP, whose id is `key`, of that `kind`."""
    said = one.properties
    given = {name: getattr(said, name) for name in _PROPERTIES}
    meta: dict[str, Any] = {
        "exchange": _text(one.exchange),
        "routingKey": _text(one.routing_key),
        "redelivered": one.redelivered,
        "deliveries": deliveries_of(one),
        "sent": _sent_ms(said.timestamp),
        "properties": {name: _text(value) for name, value in given.items() if value is not None},
    }
    if kind:
        meta[ID_OF] = kind
    headers = [(_text(name), _bytes(value)) for name, value in (said.headers or {}).items()]
    return Message(key, key, one.body, meta, headers, receipt=one.tag)


def _sent_ms(timestamp: object) -> int | None:
    """AMQP has whole seconds; what some publishers write there instead is left in the property."""
    if isinstance(timestamp, int) and 0 <= timestamp <= _NEWEST_S:
        return timestamp * 1000
    return None


def time_ms(given: int) -> int | None:
    """A time of a record of Kafka, which takes any number; None where no date has it, as where a
    producer counts nanoseconds."""
    return given if _OLDEST_S * 1000 <= given < (_NEWEST_S + 1) * 1000 else None


def _text(value: object) -> str:
    """pika gives text that is not UTF-8 as bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)


def _bytes(value: object) -> bytes | None:
    """A header's value: text and bytes as they are, anything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    return json.dumps(_plain(value)).encode()


def _plain(value: Any) -> Any:
    """As JSON takes it: names in a table may be bytes, too."""
    if isinstance(value, dict):
        return {_text(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    is_plain = value is None or isinstance(value, str | int | float)
    return value if is_plain else _text(value)
