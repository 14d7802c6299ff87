"""Chooses the partitions of rows that name none, as librdkafka's partitioner would.

librdkafka asks its partitioner row by row, while it queues them, and takes several locks for each.
Rows whose partitions are known go in one call a partition, which takes a quarter off what a row of
100 bytes costs. The choice is the same: librdkafka's own function is called for each key.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...core import librdkafka
from . import write_loops as loops

if TYPE_CHECKING:
    import numpy as np

    from .columns import Rows

# Rows without a key go to one partition so many at a time. librdkafka changes partitions every 10
# ms ("sticky.partitioning.linger.ms"), Java's client after 16 kB.
STICKY_ROWS = 4096
# Fewer rows, or fewer in each partition, are not worth their own calls.
_ENOUGH, _ENOUGH_EACH = 1000, 20
_ASK_S = 10.0


class Partitioner:
    """Of one producer. Asks a broker once a topic for the number of its partitions: what a topic
    gains later gets rows from the next producer on."""

    def __init__(self, producer: Any, handle: int) -> None:
        self._producer = producer
        partitioner = librdkafka.setting(handle, "partitioner")
        sticky_ms = librdkafka.setting(handle, "sticky.partitioning.linger.ms")
        self._ours = partitioner == "murmur2_random" and sticky_ms not in ("", "0")
        self._topics: dict[str, tuple[int, np.ndarray[Any, Any]]] = {}
        self._turn = int.from_bytes(os.urandom(4), "little")

    def knows(self, topic: str) -> bool:
        """Whether rows of this topic were given their partitions here."""
        return topic in self._topics

    def choose(self, topic: str, rows: Rows) -> np.ndarray[Any, Any]:
        """A partition for each of some rows that name none, -1 where librdkafka shall choose."""
        import numpy as np

        size, known = len(rows.partitions), self._topics.get(topic)
        # librdkafka sees when a topic has grown: few rows with the keys of many before them, which
        # went by the number that is known here, must not go by another.
        bound = known is not None and bool(rows.key[0].any())
        if not self._ours or (size < _ENOUGH and not bound):
            return rows.partitions
        count, led = known or self._ask(topic)
        if led.size:  # or it is so new that the broker has not heard of its leaders
            self._topics[topic] = count, led
        if not led.size or (size < _ENOUGH_EACH * count and not bound):
            return rows.partitions
        found = np.empty(size, np.int32)
        loops.choose_partitions(count, led, self._turn, STICKY_ROWS, rows.key, found)
        self._turn += -(-size // STICKY_ROWS)
        return found

    def _ask(self, topic: str) -> tuple[int, np.ndarray[Any, Any]]:
        """How many partitions a topic has, and which have a leader; none where it is not told."""
        import numpy as np
        from confluent_kafka import KafkaException

        try:
            found = self._producer.list_topics(topic, timeout=_ASK_S).topics[topic]
        except (KafkaException, KeyError):
            return 0, np.zeros(0, np.int32)
        led = sorted(number for number, one in found.partitions.items() if one.leader >= 0)
        return len(found.partitions), np.array(led, np.int32)
