"""The only writer of an exported snapshot's topic, and of a view's.

Its transactional id is the topic's: taking it shuts out an exporter that is still at it somewhere
else, and ends what that had open. So nobody writes behind a head.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from ...clients.kafka import fenced, transactional_producer
from ...clients.kafka.control_plane import ControlPlane
from ...clients.kafka.lost_markers import Asker, settle
from ...clients.kafka.outages import is_no_answer, refused_login
from ...clients.kafka.topics import TIMEOUT_S
from ...clients.kafka.transactional_id import TransactionalIds
from ...clients.kafka.transactional_producer import flush, landed_at, send
from ...core.errors import EnvironmentRefused, EoKafkaError, Fenced, OutcomeUnknown
from ...core.process import moment
from ...core.transaction import Identity
from ..ledger.append_point import AppendPoint
from ..ledger.appender import STATE_PARTITION, Record
from ..ledger.job import Job
from ..ledger.topic_settings import raise_limit
from . import blobs

PORTION = 4 << 20  # bytes of one transaction, which must end in time, over any line
PORTION_RECORDS = 10_000
TRANSACTION_TIMEOUT_MS = 60_000
_ABORT_S = 5.0


class ExportWriter:
    """Writes into `topic`. Raises OutcomeUnknown or EnvironmentRefused if it may not. After an
    error of `append` it writes no more until `take`: only the topic says what landed."""

    def __init__(self, options: Job, control: ControlPlane, topic: str) -> None:
        self._options = options
        self._control = control
        self._topic = topic
        self._ids = TransactionalIds(options.prefix, topic)
        self._point = AppendPoint()
        self.keys: set[bytes] = set()  # of the chunks that are there, as far as we have looked
        self.take()

    def take(self) -> None:
        """Shut out who had the topic. What is read of it from here on counts."""
        from confluent_kafka import KafkaException

        self._settle()  # what the id ended last; once it is taken, Kafka tells no more how
        name = self._ids.coordinator
        settings = {**self._options.kafka, "compression.type": "lz4"}
        try:
            self._producer: Any = transactional_producer.take_own(
                settings, name, TRANSACTION_TIMEOUT_MS, self._topic
            )
        except KafkaException as error:
            kind = OutcomeUnknown if is_no_answer(error.args[0]) else EnvironmentRefused
            raise kind(
                f"The transactional id '{name}' could not be taken: {error.args[0].str()}."
                f"{refused_login()} Nothing was written to topic '{self._topic}'. Is the principal "
                "allowed to Write and Describe the id, and has Kafka enough brokers for its "
                "transaction log? Try again then."
            ) from None
        self._point.fenced()
        found = self._control.describe_one(name)
        self._mine: Identity = found.identity
        self._timeout_ms = found.timeout_ms

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

    def _settle(self) -> None:
        """Have ends written that Kafka left out."""
        epochs = self._control.look(topics=[self._topic]).leader_epochs
        settle(Asker(self._control, self._ids), epochs)

    def look(self) -> None:
        """Find out what an earlier exporter left. Raises CorruptSnapshot, ReadTimeout."""
        self.keys = blobs.keys_between(self._options.kafka, self._topic, 0, self.end)

    def write(self, records: Iterable[Record], portion_bytes: int = PORTION) -> None:
        """Append in portions, each in a transaction of its own."""
        portion: list[Record] = []
        size = 0
        for key, value in records:
            portion.append((key, value))
            size += len(value or b"")
            if size >= portion_bytes or len(portion) >= PORTION_RECORDS:
                self.append(portion)
                portion, size = [], 0
        self.append(portion)

    def append(self, records: list[Record]) -> None:
        """Append all of them or none; readers are given them when it returns. Raises Fenced,
        EnvironmentRefused, OutcomeUnknown; that also where the topic holds more than was read of
        it."""
        if not records:
            return
        try:
            self._append(records)
        except Fenced:
            raise
        except BaseException:
            from confluent_kafka import KafkaException

            with suppress(KafkaException):  # what is open would hide what others append
                self._producer.abort_transaction(_ABORT_S)
            raise
        self._settle()
        _ = self.end
        for key, value in records:
            if value is None:
                self.keys.discard(key)
            else:
                self.keys.add(key)

    def _append(self, records: list[Record]) -> None:
        from confluent_kafka import KafkaError, KafkaException

        landed: list[int] = []
        began = moment.seconds()

        refused: set[int] = set()  # Kafka's codes

        def note(error: KafkaError | None, message: Any) -> None:
            if error is None:
                landed.append(landed_at(message))
            else:
                refused.add(error.code())

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
            if KafkaError.MSG_SIZE_TOO_LARGE in refused:
                largest = max(len(value or b"") for _, value in records)
                raise EnvironmentRefused(
                    f"Topic '{self._topic}' refuses records as too large; the largest has "
                    f"{largest:,} bytes. {raise_limit(self._topic)}; then try again: records that "
                    "are already there are not written twice."
                )
            if landed and (problem := self._point.landed(landed)):
                raise OutcomeUnknown(
                    f"Topic '{self._topic}' holds more than was read of it ({problem}): its leader "
                    "was cut off from the other brokers. Nothing was written; try again."
                )
            self._producer.commit_transaction(TIMEOUT_S)  # fails if a record was refused
        except KafkaException as error:
            took_s = moment.seconds() - began
            was_open = bool(landed) or fenced.took_its_time(took_s, self._timeout_ms)
            raise self._explained(error.args[0], was_open=was_open) from None

    def _explained(self, error: Any, *, was_open: bool) -> EoKafkaError:
        from confluent_kafka import KafkaError

        problem = error.str()
        if fenced.is_fencing(error):
            if not fenced.was_aborted_for_age(self._control, self._mine, was_open=was_open):
                return Fenced(
                    f"Somebody else exports into topic '{self._topic}' now. This export stops; "
                    "the other one goes on."
                )
            problem = f"it was not done after {self._timeout_ms // 1000} s"
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return EnvironmentRefused(
                f"Not authorized to write to topic '{self._topic}': the principal needs "
                "Write on it. Grant it and try again; records that are already there are "
                "not written twice."
            )
        return OutcomeUnknown(
            f"Writing to topic '{self._topic}' failed: {problem}. The export is "
            "not finished: export again under the same name, and it goes on from there."
        )
