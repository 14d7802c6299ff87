"""The only writer of an exported snapshot's topic, and of a view's.

Its transactional id is the topic's: taking it shuts out an exporter that is still at it somewhere
else, and ends what that had open. So nobody writes behind a head.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...clients.kafka import transactional_producer
from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.outages import is_no_answer
from ...clients.kafka.topics import TIMEOUT_S
from ...clients.kafka.transactional_id import TransactionalIds
from ...clients.kafka.transactional_producer import flush, for_own_records, landed_at, send
from ...core.errors import EnvironmentRefused, Fenced, OutcomeUnknown
from ..ledger.append_point import AppendPoint
from ..ledger.appender import STATE_PARTITION, Record
from ..ledger.job import Job
from . import blobs

PORTION = 32 << 20  # bytes of one transaction, which must end in time
PORTION_RECORDS = 10_000
TRANSACTION_TIMEOUT_MS = 60_000


class ExportWriter:
    """Writes into `topic`. Raises OutcomeUnknown or EnvironmentRefused if it may not."""

    def __init__(self, options: Job, control: ControlPlane, topic: str) -> None:
        from confluent_kafka import KafkaException

        self._options = options
        self._control = control
        self._topic = topic
        self._point = AppendPoint()
        self.keys: set[bytes] = set()  # of the chunks that are there, as far as we have looked
        name = TransactionalIds(options.prefix, topic).coordinator
        kafka = for_own_records(options.kafka, TRANSACTION_TIMEOUT_MS)
        settings = {**kafka, "compression.type": "lz4"}
        try:
            self._producer: Any = transactional_producer.take(
                settings, name, TRANSACTION_TIMEOUT_MS, topic=topic
            )
        except KafkaException as error:
            kind = OutcomeUnknown if is_no_answer(error.args[0]) else EnvironmentRefused
            raise kind(
                f"The transactional id '{name}' could not be taken: {error.args[0].str()}. Nothing "
                f"was written to topic '{topic}'. Is the principal allowed to Write and Describe "
                "the id, and has Kafka enough brokers for its transaction log? Try again then."
            ) from None

    @property
    def end(self) -> int:
        """Where the topic ends. Raises OutcomeUnknown where that is before records of ours."""
        asked, at_least = (self._topic, STATE_PARTITION, True), self._point.at_least
        end = self._control.reach(asked, at_least, TIMEOUT_S)
        if end < at_least:
            raise OutcomeUnknown(
                f"Topic '{self._topic}' ends at offset {end}, as the broker says that answers, and "
                f"records up to {at_least} were acknowledged. Its leader is cut off from the other "
                "brokers, or records of it are lost. The export is not finished: export again "
                "under the same name when all brokers see each other."
            )
        self._point.read_to(end)
        return end

    def look(self) -> None:
        """Find out what an earlier exporter left. Raises CorruptSnapshot, ReadTimeout."""
        self.keys = blobs.keys_between(self._options.kafka, self._topic, 0, self.end)

    def write(self, records: Iterable[Record]) -> None:
        """Append in portions, each in a transaction of its own."""
        portion: list[Record] = []
        size = 0
        for key, value in records:
            portion.append((key, value))
            size += len(value or b"")
            if size >= PORTION or len(portion) >= PORTION_RECORDS:
                self.append(portion)
                portion, size = [], 0
        self.append(portion)

    def append(self, records: list[Record]) -> None:
        """Append all of them or none. Raises Fenced, EnvironmentRefused, OutcomeUnknown; that also
        where the topic holds more than was read of it."""
        from confluent_kafka import KafkaError, KafkaException

        if not records:
            return
        landed: list[int] = []

        def note(error: KafkaError | None, message: Any) -> None:
            if error is None:
                landed.append(landed_at(message))

        try:
            self._producer.begin_transaction()
            for record in records:
                send(self._producer, self._topic, record, STATE_PARTITION, note)
            if flush(self._producer, TIMEOUT_S):
                raise OutcomeUnknown(
                    f"No broker said within {TIMEOUT_S:.0f} s whether topic '{self._topic}' took "
                    "all records. The export is not finished: export again under the same name, "
                    "and it goes on from there."
                )
            if landed and (problem := self._point.landed(landed)):
                raise OutcomeUnknown(
                    f"Topic '{self._topic}' holds more than was read of it ({problem}): its leader "
                    "was cut off from the other brokers. Nothing was written; try again."
                )
            self._producer.commit_transaction(TIMEOUT_S)  # fails if a record was refused
        except KafkaException as error:
            code = error.args[0].code()
            if code in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH):
                raise Fenced(
                    f"Somebody else exports into topic '{self._topic}' now. This export stops; "
                    "the other one goes on."
                ) from None
            if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise EnvironmentRefused(
                    f"Not authorized to write to topic '{self._topic}': the principal needs "
                    "Write on it. Grant it and try again; records that are already there are "
                    "not written twice."
                ) from None
            raise OutcomeUnknown(
                f"Writing to topic '{self._topic}' failed: {error.args[0].str()}. The export is "
                "not finished: export again under the same name, and it goes on from there."
            ) from None
        for key, value in records:
            if value is None:
                self.keys.discard(key)
            else:
                self.keys.add(key)
