"""The inbox's only writer: fences, reads back which messages are there, and appends.

Its transactional id is the inbox's. Taking it shuts out a receiver that is still at it somewhere
else, and ends what that had open. Then the newest records are read: whoever writes from here on
knows all ids that were kept before. That nothing was missed shows where the first record lands
(state/ledger/append_point.py). Lives in the process that plans the query.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

from ...clients.kafka import control_plane, transactional_producer
from ...clients.kafka.cluster import connect
from ...clients.kafka.config import connection_settings
from ...clients.kafka.topics import TIMEOUT_S
from ...clients.kafka.transactional_id import TransactionalIds
from ...clients.kafka.transactional_producer import flush, landed_at
from ...core.crash_points import crash_point
from ...core.errors import EnvironmentRefused, Fenced, OutcomeUnknown
from ...state.ledger.append_point import AppendPoint
from ...state.ledger.coordinator import is_no_answer
from ...state.ledger.log_reader import read_records
from . import topic
from .message import Record
from .options import QueueOptions

PARTITION = 0
TRANSACTION_TIMEOUT_MS = 60_000
_CLOCKS_MS = 10_000
_SETTINGS = {"linger.ms": "5", "compression.type": "lz4", "message.max.bytes": str(64 << 20)}


class Window:
    """The newest ids of a topic's records."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._ids: OrderedDict[bytes, None] = OrderedDict()

    def __contains__(self, key: bytes) -> bool:
        return key in self._ids

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def is_full(self) -> bool:
        """Whether ids may have been forgotten."""
        return len(self._ids) >= self._size

    def add(self, keys: Iterable[bytes | None]) -> None:
        """The oldest first."""
        for key in keys:
            if key:
                self._ids[key] = None
        while len(self._ids) > self._size:
            self._ids.popitem(last=False)


class Inbox:
    """Raises EnvironmentRefused, OutcomeUnknown, ReadTimeout. After an error of `append` nothing is
    known of it any more: make another, which reads what there is."""

    def __init__(self, options: QueueOptions) -> None:
        self._options = options
        self._both = (options.inbox, options.poison_topic)
        topic.ensure_both(options, *connect(options.kafka, TIMEOUT_S))
        self._control = control_plane.shared(options.kafka)
        self._producer = self._taken()
        self._points = {name: AppendPoint() for name in self._both}
        self._windows = {name: Window(options.window) for name in self._both}
        for name in self._both:
            self._windows[name].add(self._newest_keys(name))

    def has(self, key: bytes) -> bool:
        """Whether a message of this id was kept, as far as the window reaches."""
        return any(key in window for window in self._windows.values())

    @property
    def remembers_all(self) -> bool:
        """Whether no id was forgotten yet."""
        return not any(window.is_full for window in self._windows.values())

    def await_readable(self) -> None:
        """Until readers are given what was appended: its transaction's end is written last."""
        self._end(self._options.inbox)

    def append(self, kept: Sequence[Record], poison: Sequence[Record]) -> None:
        """All of them in one transaction, or none. Raises Fenced, EnvironmentRefused,
        OutcomeUnknown."""
        from confluent_kafka import KafkaError, KafkaException

        wanted = dict(zip(self._both, (kept, poison), strict=True))
        may_abort, began = True, time.monotonic()
        try:
            self._producer.begin_transaction()
            self._send(wanted)
            crash_point("queue.before_commit")
            may_abort = False  # from here on the outcome is Kafka's to tell
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                raise self._too_large([*kept, *poison]) from None
            raise self._explained(error.args[0], time.monotonic() - began) from None
        finally:
            if may_abort:  # what is open would hide what others append
                with suppress(KafkaException):
                    self._producer.abort_transaction(TIMEOUT_S)
        for name, records in wanted.items():
            self._windows[name].add(one.key for one in records)

    def _send(self, wanted: dict[str, Sequence[Record]]) -> None:
        from confluent_kafka import KafkaError, KafkaException

        landed: dict[str, list[int]] = {name: [] for name in wanted}
        refused: list[KafkaError] = []

        def note(error: KafkaError | None, message: Any) -> None:
            if error is None:
                landed[message.topic()].append(landed_at(message))
            else:
                refused.append(error)

        for name, records in wanted.items():
            for one in records:
                self._producer.produce(
                    name, one.value, one.key, PARTITION, on_delivery=note, headers=one.headers
                )
        flush(self._producer, TIMEOUT_S)
        if refused:
            raise KafkaException(refused[0])
        for name, records in wanted.items():
            if len(landed[name]) < len(records):
                raise OutcomeUnknown(self._failed(f"no answer in {TIMEOUT_S:.0f} s"))
            problem = self._points[name].landed(landed[name]) if records else ""
            if problem:
                raise OutcomeUnknown(
                    f"Topic '{name}' is not as it was read ({problem}): somebody else writes into "
                    "it, or its leader was cut off from the other brokers. Nothing was kept and "
                    "nothing acknowledged. An inbox and its poison topic belong to one queue and "
                    "one job; start the query again when that is so."
                )

    def _taken(self) -> Any:
        from confluent_kafka import KafkaException

        # No job's: a name of a job has no slash, and one may be called as the inbox is.
        name = TransactionalIds(self._options.prefix, f"inbox/{self._options.inbox}").coordinator
        settings = {**connection_settings(self._options.kafka), **_SETTINGS}
        try:
            return transactional_producer.take(
                settings, name, TRANSACTION_TIMEOUT_MS, topic=self._options.inbox
            )
        except KafkaException as error:
            kind = OutcomeUnknown if is_no_answer(error.args[0]) else EnvironmentRefused
            raise kind(
                f"The transactional id '{name}' could not be taken: {error.args[0].str()}. Nothing "
                "was taken from the queue. Is the principal allowed to Write and Describe the id, "
                "and has Kafka enough brokers for its transaction log? Start again then."
            ) from None

    def _end(self, name: str) -> int:
        """Where a topic ends for readers, once all that was acknowledged stands before it."""
        at_least = self._points[name].at_least
        end = self._control.reach((name, PARTITION, True), at_least, TIMEOUT_S)
        if end < at_least:
            raise OutcomeUnknown(
                f"Topic '{name}' ends at offset {end}, as the broker says that answers, and records"
                f" up to {at_least} were acknowledged. Its leader is cut off from the other "
                "brokers, or records of it are lost. Start the query again when all brokers see "
                "each other."
            )
        return end

    def _newest_keys(self, name: str) -> list[bytes]:
        """The ids in the newest records, the oldest first. Offsets are also of transactions' marks,
        and of what was aborted: so it goes back until there are enough."""
        end = until = self._end(name)
        self._points[name].read_to(end)
        found: list[bytes] = []
        step = 1000
        while until and (missing := self._options.window - len(found)) > 0:
            begin = max(0, until - max(missing, step))
            records = read_records(self._options.kafka, name, PARTITION, begin, until)
            found = [key for _, key, _ in records if key] + found
            until, step = begin, step * 2
        return found

    def _explained(self, error: Any, took_s: float) -> Exception:
        from confluent_kafka import KafkaError

        inbox = self._options.inbox
        fenced = error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
        # Kafka says the same of a transaction that it aborted for its age.
        if fenced and took_s * 1000 < TRANSACTION_TIMEOUT_MS - _CLOCKS_MS:
            return Fenced(
                f"Another driver of this job fills inbox '{inbox}' now. This one stops; what it "
                "had taken from the queue goes back into it. Run one of them."
            )
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return EnvironmentRefused(
                f"Not authorized to write to '{inbox}' or '{self._options.poison_topic}': the "
                "principal needs Write on both. Nothing was acknowledged to the queue. Grant it "
                "and start again."
            )
        return OutcomeUnknown(self._failed(error.str()))

    def _failed(self, problem: str) -> str:
        return (
            f"Writing to inbox '{self._options.inbox}' failed: {problem}. Nothing of it was "
            "acknowledged to the queue. Start again: what was kept is found in the inbox then, and "
            "is not kept twice."
        )

    def _too_large(self, records: Sequence[Record]) -> EnvironmentRefused:
        largest = max(records, key=lambda one: len(one.value))
        key = (largest.key or b"").decode(errors="backslashreplace")
        return EnvironmentRefused(
            f"Message '{key}' of queue '{self._options.queue}' has {len(largest.value):,} bytes, "
            f"more than topic '{self._options.inbox}' or '{self._options.poison_topic}' takes. "
            "Nothing was kept and nothing acknowledged. Raise 'max.message.bytes' of both topics, "
            "or take the message out of the queue. Do it soon: on a quorum queue each start counts"
            " as a delivery, and after its delivery-limit RabbitMQ drops a message."
        )
