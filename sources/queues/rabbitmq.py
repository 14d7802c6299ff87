"""The backend of `url`: a queue of RabbitMQ."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...clients.amqp.client import AmqpSettings
from ...clients.amqp.queue import Queue
from ...core.errors import ReadTimeout
from .message import Message, id_of, kind_of_id, message_of

log = logging.getLogger(__name__)

# Without a message for so long, a look at the queue ends. One that comes meanwhile ends it at once.
QUIET_S = 0.2
# So long the first one is waited for, where the queue says that there are some.
PATIENCE_S = 30.0


class RabbitMQQueue:
    """See Backend."""

    def __init__(
        self, settings: AmqpSettings, queue: str, name: str, id_source: str, most_deliveries: int
    ) -> None:
        self._queue = Queue(settings, queue, name, most_deliveries)
        self._id_of, self._kind = id_of(id_source), kind_of_id(queue, id_source)
        self._open: list[int] = []  # the receipts of what is not acknowledged, in their order
        self._backlog = 0  # how many are left of those that waited at the first look

    def ready(self, *, is_first: bool = False) -> tuple[int, int]:
        """Exact, both of them, but for a quorum queue without a leader: 0."""
        ready, consumers = self._queue.ready()
        self._backlog = ready if is_first else min(self._backlog, ready)  # others take some
        return ready, consumers

    def take(self, count: int) -> list[Message]:
        """Never more than `count`."""
        taken = self._queue.take(count, QUIET_S, PATIENCE_S)
        self._open = [one.tag for one in taken]
        self._backlog -= len(taken)
        return [message_of(one, self._id_of(one), self._kind) for one in taken]

    def waited(self, taken: Sequence[Message]) -> bool:
        """By count: the oldest come first."""
        return self._backlog + len(taken) > 0

    def acknowledge(self, taken: Sequence[Message]) -> None:
        """Exactly these: at once where none before them is left out."""
        tags = [one.receipt for one in taken]
        if tags == self._open[: len(tags)]:
            self._queue.acknowledge(tags[-1], multiple=True)
        else:
            for tag in tags:
                self._queue.acknowledge(tag, multiple=False)
        done = set(tags)
        self._open = [tag for tag in self._open if tag not in done]

    def rest(self) -> None:
        """Nobody sends heartbeats while Spark works: so it leaves."""
        try:
            self._queue.close()
        except ReadTimeout as error:
            log.warning("Whether the last acknowledgements arrived is not known: %s", error)

    def drop(self) -> None:
        """Close the connection."""
        self._queue.drop()
