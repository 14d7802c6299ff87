"""One queue of RabbitMQ, as the receiver uses it: messages taken by count, and acknowledged.

Nothing is ever fetched beyond what was asked for. Messages that a client fetches and gives back
count as deliveries, and a quorum queue drops a message after too many of them (`delivery-limit`,
20 by default since RabbitMQ 4): so the window of unacknowledged messages is as wide as the count
that is asked for, and everything in it is taken. pika gives back what arrives while a consumer is
cancelled, so that is done when nothing is on its way: a large message may take minutes.
"""

from __future__ import annotations

import logging
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.errors import EnvironmentRefused
from .client import AmqpSettings, connect, told

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

log = logging.getLogger(__name__)

PREFETCH_MAX = 65_535  # AMQP's
# Nobody sends heartbeats between two calls: one that was not used for longer is not used again.
_IDLE_S = 20.0
# So often it is looked what kind of queue it is, as it may be deleted and made again. Not each
# time: RabbitMQ logs each of these looks as an error.
_LOOK_S = 60.0
_TRIED_SETTING = "x-expires"
_LIMIT, _TIME_TO_LIVE = "x-delivery-limit", "x-message-ttl"
_MOST_SETTINGS = 20  # that a queue is declared with
_STREAM_OFFSET = "x-stream-offset"
_TYPE = "x-queue-type"
_DIFFERS = re.compile(r"inequivalent arg '([^']*)'")
_CURRENT = re.compile(r"current is (?:the value )?'(.*?)'(?: of type '(\w+)')?$")
_IS_STREAM = re.compile(r"current is (the value )?'stream'")
_STREAM = "stream"
_WRONG = {
    "durable": "is not durable: it, or its messages, are gone when the server restarts",
    "auto_delete": "is deleted with what is in it when its last consumer leaves (auto-delete), "
    "and the receiver leaves it after each batch",
    _STREAM: "is a stream, which keeps its messages: an acknowledgement takes none away. Read "
    "it with RabbitMQ's stream client",
}


@dataclass(frozen=True)
class Delivery:
    """A message as it was delivered. `tag` is the channel's number of it."""

    tag: int
    body: bytes
    exchange: str
    routing_key: str
    redelivered: bool
    properties: Any  # pika.BasicProperties


class Queue:
    """Lives in the process that plans the query. Raises EnvironmentRefused, ReadTimeout and
    SourceError (client.py). Connects when it is first asked something."""

    def __init__(self, settings: AmqpSettings, queue: str, name: str, most_deliveries: int) -> None:
        """`most_deliveries`: a limit that the queue was declared with must be above."""
        self._settings, self._queue, self._name = settings, queue, name
        self._most_deliveries = most_deliveries
        self._connection: BlockingConnection | None = None
        self._channel: BlockingChannel | None = None
        self._used = 0.0
        self._looked: float | None = None
        self._warned = False

    def ready(self) -> tuple[int, int]:
        """How many messages wait, and how many consumers there are: none of either, too, where a
        quorum queue has no leader, which `take` is told of. Declares the queue passively: it is
        never created and never altered."""
        with told(self._settings, self._queue):
            found = self._open().queue_declare(self._queue, passive=True).method
            return int(found.message_count or 0), int(found.consumer_count or 0)

    def take(self, count: int, quiet_s: float, patience_s: float) -> list[Delivery]:
        """Up to `count` messages, unacknowledged; fewer if none came for `quiet_s` and none is on
        its way. The first one of those that wait is waited for, for `patience_s`."""
        with told(self._settings, self._queue):
            return self._taken(self._open(), count, quiet_s, patience_s)

    def acknowledge(self, tag: int, *, multiple: bool) -> None:
        """This one, or all that were taken up to it."""
        with told(self._settings, self._queue):
            assert self._channel is not None
            self._channel.basic_ack(tag, multiple=multiple)

    def close(self) -> None:
        """Returns when the server has taken all acknowledgements; what is not acknowledged goes
        back into the queue."""
        connection, self._connection, self._channel = self._connection, None, None
        with told(self._settings, self._queue):
            if connection is not None:
                connection.close()

    def drop(self) -> None:
        """`close`, whatever becomes of it."""
        self._looked = None  # who comes back may find another one
        with suppress(Exception):
            self.close()

    def _taken(
        self, channel: BlockingChannel, count: int, quiet_s: float, patience_s: float
    ) -> list[Delivery]:
        assert self._connection is not None
        found: list[Delivery] = []

        def note(_: Any, method: Any, properties: Any, body: bytes) -> None:
            found.append(
                Delivery(
                    *(method.delivery_tag, body, method.exchange, method.routing_key),
                    *(bool(method.redelivered), properties),
                )
            )

        channel.basic_qos(prefetch_count=count)
        consumer = channel.basic_consume(self._queue, note)
        began = heard = time.monotonic()
        while (before := len(found)) < count:
            self._connection.process_data_events(max(0.0, heard + quiet_s - time.monotonic()))
            if len(found) == before:
                if time.monotonic() < heard + quiet_s:
                    continue
                left = self._left(channel, found)
                waited_s = time.monotonic() - began
                if left is not None and (found or not left):
                    break
                if left is not None and waited_s >= patience_s:
                    self._tell_of_none(left, waited_s)
                    break
            heard = time.monotonic()
        channel.basic_cancel(consumer)
        self._used = time.monotonic()
        if any(_STREAM_OFFSET in (one.properties.headers or {}) for one in found):
            raise EnvironmentRefused(self._refusal(_STREAM))
        return found

    def _left(self, channel: BlockingChannel, found: list[Delivery]) -> int | None:
        """How many messages still wait; None if some arrived meanwhile. An answer comes behind what
        was sent before it, however long that takes; but the first one may pass what the queue has
        just handed to the channel. A connection that says nothing is ended by its heartbeats."""
        assert self._connection is not None
        before, left = len(found), 0
        for _ in range(2):
            answer = channel.queue_declare(self._queue, passive=True)
            left = int(answer.method.message_count or 0)
        self._connection.process_data_events()
        return left if len(found) == before else None

    def _tell_of_none(self, left: int, waited_s: float) -> None:
        log.warning(
            "Queue '%s' at %s has %d messages and handed out none of them in %.0f s. Another "
            "consumer has the queue for itself (single active consumer, or of a higher priority), "
            "or RabbitMQ is overloaded: look at its consumers, rabbitmqctl list_consumers. They "
            "come when it hands them out: with availableNow in a later run.",
            *(self._queue, self._settings.place, left, waited_s),
        )

    def _open(self) -> BlockingChannel:
        if self._connection is not None and time.monotonic() - self._used > _IDLE_S:
            with suppress(Exception):
                self.close()
        if self._connection is None:
            self._connection = connect(self._settings, self._name)
        if self._channel is None or not self._channel.is_open:
            self._channel = self._connection.channel()
        self._used = time.monotonic()
        if self._looked is None or self._used - self._looked > _LOOK_S:
            self._check(self._connection, self._channel)
            self._looked = self._used
        return self._channel

    def _check(self, connection: BlockingConnection, channel: BlockingChannel) -> None:
        """Find out what kind of queue it is. AMQP tells of no queue's properties, but a declaration
        that differs is refused, with what differs. This one has a setting that no queue can have:
        it never succeeds, so it creates and alters nothing, also where the queue is gone."""
        channel.queue_declare(self._queue, passive=True)
        said = self._tried(connection, {_TRIED_SETTING: -1})
        differs = _DIFFERS.search(said)
        name = differs[1] if differs else ""
        wrong = _STREAM if name == _TYPE and _IS_STREAM.search(said) else name
        if wrong in _WRONG:
            raise EnvironmentRefused(self._refusal(wrong))
        if not name and not self._warned:
            self._warned = True
            log.warning(
                "Whether queue '%s' is durable could not be found out (%s): that needs the "
                "permission 'configure' on it. A queue that is not loses messages when "
                "RabbitMQ restarts.",
                self._queue,
                said,
            )
        if name and self._looked is None:
            limit = self._declared_limit(connection)
            if limit is not None and 0 <= limit <= self._most_deliveries:
                raise EnvironmentRefused(
                    f"Queue '{self._queue}' at {self._settings.place} has {_LIMIT}={limit}, and "
                    f"option 'maxDeliveries' is {self._most_deliveries}: RabbitMQ drops a message, "
                    "or sends it to the queue's dead letter exchange, before it is sure to be in "
                    "the poison topic. Nothing was taken. Set 'maxDeliveries' below the limit, or "
                    "use a queue with a higher one."
                )

    def _declared_limit(self, connection: BlockingConnection) -> int | None:
        """After how many deliveries a quorum queue drops a message, where it was declared with
        that: nobody tells of a policy. RabbitMQ names one setting that differs, and compares this
        one late: what it names before is said as it is then. It would make a queue with any limit,
        so there is a time that no queue can have, which it compares later still."""
        arguments: dict[str, Any] = {_TYPE: "quorum", _LIMIT: -2, _TIME_TO_LIVE: -1}
        for _ in range(_MOST_SETTINGS):
            said = self._tried(connection, arguments)
            differs, current = _DIFFERS.search(said), _CURRENT.search(said)
            if differs is None or current is None:
                return None
            name, value, kind = differs[1], current[1], current[2]
            if name in arguments or not name.startswith("x-"):
                return int(value) if name == _LIMIT else None
            if kind in ("longstr", "bool"):
                arguments[name] = value if kind == "longstr" else value == "true"
            elif value.lstrip("-").isdecimal():
                arguments[name] = int(value)
            else:
                return None  # a table, or a time
        return None

    def _tried(self, connection: BlockingConnection, arguments: dict[str, Any]) -> str:
        """Why the declaration is refused. They must be such that it is, whatever there is."""
        from pika.exceptions import ChannelClosedByBroker

        try:
            tried = connection.channel()  # is closed by the refusal
            tried.queue_declare(self._queue, durable=True, arguments=arguments)
        except ChannelClosedByBroker as error:
            return str(error.reply_text)
        return ""

    def _refusal(self, wrong: str) -> str:
        return (
            f"Queue '{self._queue}' at {self._settings.place} {_WRONG[wrong]}. Nothing was taken "
            "from it. Use a queue that is durable, not exclusive and not auto-delete."
        )
