"""Sends Arrow batches through librdkafka in compiled loops.

Rows without headers go in one call a partition (rd_kafka_produce_batch), rows with headers one
call a row, from a compiled loop. Delivery reports are looked at by compiled code, which notes
failures in a slot.
"""

from __future__ import annotations

import collections
import functools
import itertools
import logging
from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...core import librdkafka
from ...core.digest import Digest
from ...core.errors import SinkError
from . import plain
from . import write_loops as loops
from .columns import Rows, by_topic
from .partitions import Partitioner

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

log = logging.getLogger(__name__)
_POLL_S = 0.05
_CHUNK = 20_000
# Where late delivery reports of past producers may still write: only a thread that polls such a
# producer could, long after its task, but memory is cheap and a stray write is not.
_slots: collections.deque[np.ndarray[Any, Any]] = collections.deque(maxlen=1024)


def arrow_producer(
    producer: Any, default_topic: str | None, kept: Collection[str] = ()
) -> plain.ArrowProducer:
    """The fast producer where it can be used, else the plain one, with a warning once."""
    reason = librdkafka.available()
    if reason is None:
        try:
            return ArrowProducer(producer, default_topic, kept)
        except librdkafka.Unavailable as refused:
            reason = str(refused)
    _warn(reason)
    return plain.ArrowProducer(producer, default_topic, kept)


def row_digest(batches: Iterable[pa.RecordBatch], default_topic: str | None) -> tuple[int, str]:
    """Exhaust `batches` without sending: the number of rows and the digest they would have had."""
    digest = Digest()
    fast = librdkafka.available() is None
    for batch in batches:
        if fast:
            for topic, rows in by_topic(batch, default_topic):
                _digest(digest, topic, rows)
        else:
            for topic, partition, key, value, headers in plain.batch_rows(batch, default_topic):
                digest.add(topic.encode(), partition, key, value, headers)
    return digest.rows, digest.text()


@functools.cache
def _warn(reason: str) -> None:
    log.warning("Rows are sent one by one, several times slower than possible: %s.", reason)


_state: dict[str, int] = {}


def _watch(handle: int) -> None:
    """Let the compiled callback see the producer's delivery reports first."""
    before = librdkafka.delivery_callback(handle)
    if before == _state.get("mine"):
        return
    if before != _state.setdefault("before", before):
        raise librdkafka.Unavailable("the producer has a delivery report callback of its own")
    _state["mine"] = loops.delivery_callback(before)
    librdkafka.exchange_delivery_callback(handle, _state["mine"])


class ArrowProducer(plain.ArrowProducer):
    """See plain.ArrowProducer. Raises librdkafka.Unavailable for a producer it cannot drive."""

    def __init__(
        self, producer: Any, default_topic: str | None, kept: Collection[str] = ()
    ) -> None:
        super().__init__(producer, default_topic, kept)
        import numpy as np

        self._handle = librdkafka.raw_handle(producer)
        _watch(self._handle)
        self._partitioner = Partitioner(producer, self._handle)
        self._slot = np.zeros(loops.SLOT_BYTES // 8, np.int64)
        _slots.append(self._slot)
        self._opaque = self._slot.ctypes.data + 1
        self._before = 0  # rows of the batches before this one

    @property
    def failures(self) -> str:
        """A sentence about the rows that were not delivered; empty if there are none so far."""
        if count := int(self._slot[0]):
            code, partition = self.first_code, int(self._slot[1:2].view("i4")[1])
            topic = self._slot[3:].tobytes().rstrip(b"\0").decode("utf-8", "replace")
            where = plain.place(topic, partition)
            first = plain.failure(where, code, librdkafka.error_text(code))
            return f"{count} rows were not delivered; the first: {first}"
        return ""

    @property
    def first_code(self) -> int:
        """See plain.ArrowProducer.first_code."""
        return int(self._slot[1:2].view("i4")[0])

    @property
    def acknowledged(self) -> int:
        """See plain.ArrowProducer.acknowledged."""
        return int(self._slot[2])

    def send(self, batch: pa.RecordBatch) -> None:
        """See plain.ArrowProducer.send."""
        self._before = self.rows
        for topic, rows in by_topic(batch, self._default_topic, self._kept):
            if librdkafka.raw_handle(self._producer) != self._handle:
                raise SinkError("The producer was exchanged while rows were being sent.")
            rk = librdkafka.library()
            # librdkafka ends a name at its first zero byte, and would send to another topic
            name = "" if "\0" in topic else topic
            handle = rk.rd_kafka_topic_new(self._handle, name.encode(), None)
            if not handle:
                raise SinkError(f"'{topic}' is not a name a topic can have.")
            # Before any row goes out: the first call of a process may have to compile it, and the
            # transaction's timeout runs from its first row.
            _digest(self.digest, topic, rows)
            self.size += rows.size
            try:
                self._send_topic(topic, handle, rows)
            finally:
                rk.rd_kafka_topic_destroy(handle)
        self._poll(0)

    def _send_topic(self, topic: str, handle: int, rows: Rows) -> None:
        import numpy as np

        given = rows.partitions >= 0
        # Where the partitioner meets partitions given by hand, only sending row by row keeps the
        # order of rows that end up in the same one.
        if rows.number.any() or (given.any() and not given.all()):
            if self._partitioner.knows(topic) and not given.all():
                chosen = self._partitioner.choose(topic, rows)
                rows = replace(rows, partitions=np.where(given, rows.partitions, chosen))
            self._send_one_by_one(topic, handle, rows)
            self.rows += len(rows.partitions)
            return
        for at in range(0, len(given), _CHUNK):
            part = rows.take(slice(at, at + _CHUNK))
            chosen = part.partitions if given[0] else self._partitioner.choose(topic, part)
            self._send_by_partition(topic, handle, part, chosen)

    def _send_by_partition(
        self, topic: str, handle: int, rows: Rows, chosen: np.ndarray[Any, Any]
    ) -> None:
        """One partition a call: a batch over several loses track of a row whose partition does not
        exist (librdkafka 2.16). Order is kept where Kafka keeps it, in a partition."""
        import numpy as np

        narrow = chosen.astype(np.int16) if chosen.max() < 1 << 15 else chosen  # by radix
        order = np.argsort(narrow, kind="stable")
        messages = np.empty((len(order), loops.MESSAGE_BYTES // 8), np.int64)
        loops.lay_out(order, rows.key, rows.value, self._opaque, messages)
        placed = narrow[order]
        ends = (np.flatnonzero(placed[1:] != placed[:-1]) + 1).tolist()
        for start, end in itertools.pairwise([0, *ends, len(order)]):
            places = order[start:end]
            to = int(chosen[places[0]])
            code, at = self._send_batch(handle, to, messages[start:end], places)
            if code:
                raise self._refusal(code, topic, rows, at)
        self._poll(0)

    def _refusal(self, code: int, topic: str, rows: Rows, at: int) -> Exception:
        row = self._before + int(rows.place[at])
        return plain.refusal(code, topic, int(rows.partitions[at]), row, rows.headers(at))

    def _send_batch(
        self,
        handle: int,
        partition: int,
        messages: np.ndarray[Any, Any],
        places: np.ndarray[Any, Any],
    ) -> tuple[int, int]:
        """Returns librdkafka's error for a row that it refuses, or 0; and the row's place."""
        import numpy as np

        produce = librdkafka.library().rd_kafka_produce_batch
        while True:
            flags, data = librdkafka.MSG_F_COPY, messages.ctypes.data
            done = produce(handle, partition, flags, data, len(messages))
            self.rows += done
            if done == len(messages):
                return 0, -1
            codes = messages.view(np.int32)[:, 0]
            left = codes != 0
            messages, places, codes = messages[left], places[left], codes[left]
            refused = np.flatnonzero(codes != librdkafka.QUEUE_FULL)
            if refused.size:
                return int(codes[refused[0]]), int(places[refused[0]])
            if not len(self._producer):  # nothing will make room
                return librdkafka.QUEUE_FULL, int(places[0])
            messages[:, 0] = 0
            self._poll(_POLL_S)

    def _send_one_by_one(self, topic: str, handle: int, rows: Rows) -> None:
        import numpy as np

        arguments, at = np.zeros(7 * loops.VU_BYTES // 8, np.int64), 0
        while True:
            at, code = loops.produce_rows(
                self._handle, handle, self._opaque, at, rows.partitions, rows.key, rows.value,
                rows.first, rows.number, rows.name, rows.content, arguments,
            )  # fmt: skip
            if code == 0:
                return
            if code != librdkafka.QUEUE_FULL or not len(self._producer):
                raise self._refusal(int(code), topic, rows, int(at))
            self._poll(_POLL_S)


def _digest(digest: Digest, topic: str, rows: Rows) -> None:
    import numpy as np

    lanes = np.zeros(2, np.uint64)
    loops.digest_rows(
        np.frombuffer(topic.encode(), np.uint8), rows.partitions, rows.key, rows.value,
        rows.first, rows.number, rows.name, rows.content, lanes,
    )  # fmt: skip
    digest.add_lanes(len(rows.partitions), *lanes.tolist())
