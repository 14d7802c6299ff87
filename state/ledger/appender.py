"""Appends to a job's ledger, as the holder of the coordinator's transactional id.

An append is one small transaction. It is committed only if its records landed right after what was
read of the ledger (append_point.py): a decision that was not seen must not be passed over; and only
if each record of a snapshot is in the log: one that is decided must be there to be restored.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...clients.kafka import transactional_producer
from ...clients.kafka.transactional_producer import flush, landed_at, send
from ...core.errors import EnvironmentRefused
from ...core.transaction import Described
from .append_point import AppendPoint
from .job import Job
from .ledger import DECISION_PARTITION
from .record_fields import RECORD_MAX
from .records import barrier_key
from .topic_settings import raise_limit
from .topics import TOKEN_PARTITION

TIMEOUT_S = 60.0
TRANSACTION_TIMEOUT_MS = 60_000
# Of an id taken for a ledger that holds nothing yet. It is odd, also where brokers allow less.
NEW_TIMEOUT_MS = TRANSACTION_TIMEOUT_MS - 1
STATE_PARTITION = 0
Record = tuple[bytes, bytes | None]
_SETTINGS = {
    # Most of a snapshot is packed already; what is not gets smaller on the wire and on the disk.
    "compression.type": "lz4",
    # A decision names every task, in some 250 bytes each: what is too large the topic says.
    "message.max.bytes": str(RECORD_MAX),
}


class AppendFailed(Exception):
    """A coordinator transaction did not end as asked; it may have landed all the same."""


class Appender:
    """Lives on the driver, for one call of Spark's. `proven`: something was appended since the last
    `take`, so the id is ours. `barrier`: the offset after the last record of ours among the tokens.
    `as_new`: the ledger holds nothing, and the next `take` leaves word of that (lost_ledger.py).
    """

    def __init__(self, options: Job) -> None:
        self._options = options
        _, self._topic = options.job_and_ledger
        settings = {**options.kafka, "linger.ms": "0", **_SETTINGS}
        self._taken = settings, options.ids.coordinator
        self._producer: Any = None
        self.point = AppendPoint()
        self.state_point = AppendPoint()
        self.proven = False
        self.as_new = False
        self.barrier = 0

    def take(self) -> None:
        """Fence all earlier holders. Raises KafkaException."""
        self.proven = False
        timeout_ms = NEW_TIMEOUT_MS if self.as_new else TRANSACTION_TIMEOUT_MS
        self._producer = transactional_producer.take_own(*self._taken, timeout_ms, self._topic)
        self.point.fenced()
        self.state_point.fenced()

    def keep_to(self, found: Described) -> None:
        """Take the id for no longer than it is `found` to be taken: S1, which has asked what
        brokers allow, may be another process."""
        if ms := found.timeout_ms:
            transactional_producer.allow(self._options.kafka, ms + ms % 2)

    def open_ahead(self) -> None:
        """Let a producer connect for this process's next `take`. It fences nobody yet."""
        transactional_producer.open_ahead(*self._taken, TRANSACTION_TIMEOUT_MS, self._topic)

    def append(
        self, records: Sequence[Record], state: Sequence[Record], *, barrier: int | None = None
    ) -> None:
        """See Coordinator.append; `barrier`: and a record among the tokens, of this generation, of
        which all that stand there by now stand before it. Raises AppendFailed, EnvironmentRefused.
        """
        from confluent_kafka import KafkaError, KafkaException

        refused: dict[int, str] = {}  # Kafka's codes, and the topic
        decisions, tokens = (self._topic, DECISION_PARTITION), (self._topic, TOKEN_PARTITION)
        chunks = (self._options.state_topic or "", STATE_PARTITION)
        landed: dict[tuple[str, int], list[int]] = {decisions: [], tokens: [], chunks: []}

        def note(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                refused[error.code()] = message.topic()
            else:
                landed[message.topic(), message.partition()].append(landed_at(message))

        wanted = [(chunks, record) for record in state]
        wanted += [(decisions, record) for record in records]
        if barrier is not None:
            wanted.append((tokens, (barrier_key(barrier), None)))
        try:
            self._producer.begin_transaction()
            for (topic, partition), record in wanted:
                send(self._producer, topic, record, partition, note)
            flush(self._producer, TIMEOUT_S)
            if not refused:
                answers = sum(map(len, landed.values()))
                problem = "" if answers == len(wanted) else f"no answer in {TIMEOUT_S:.0f} s"
                self._check(problem, *(landed[at] for at in (decisions, tokens, chunks)))
            self._producer.commit_transaction(TIMEOUT_S)  # fails if a record was refused
            self.proven, self.as_new = True, False
        except KafkaException as error:
            refused.setdefault(error.args[0].code(), "")
            if KafkaError.TOPIC_AUTHORIZATION_FAILED in refused:
                raise EnvironmentRefused(
                    f"Not authorized to write to {self.own_topics}: the principal needs Write on "
                    "it. Nothing was written. Grant it and start the query again."
                ) from None
            if KafkaError.MSG_SIZE_TOO_LARGE in refused:
                topic = refused[KafkaError.MSG_SIZE_TOO_LARGE] or self._topic
                raise EnvironmentRefused(self._too_large(topic, wanted)) from None
            raise AppendFailed(error.args[0].str()) from error

    def _check(
        self, problem: str, mine: Sequence[int], tokens: Sequence[int], chunks: Sequence[int]
    ) -> None:
        """Before the commit; if this raises AppendFailed, nothing of it becomes visible."""
        from confluent_kafka import KafkaException

        if not problem and min(chunks, default=0) < 0:
            problem = "it is not known whether the snapshot landed"
        if not problem and min(tokens, default=0) < 0:
            problem = "it is not known where the barrier landed"
        if not problem and chunks:
            problem = self.state_point.landed(chunks)
        if not problem and mine:
            problem = self.point.landed(mine)
        if problem:
            with suppress(KafkaException):
                self._producer.abort_transaction(TIMEOUT_S)
            raise AppendFailed(problem)
        if tokens:
            self.barrier = tokens[0] + 1

    def _too_large(self, topic: str, wanted: Sequence[tuple[tuple[str, int], Record]]) -> str:
        sizes = (len(value or b"") for (where, _), (_, value) in wanted if where == topic)
        return (
            f"Topic '{topic}' refuses records of job '{self._options.job}' as too large; the "
            f"largest has {max(sizes, default=0):,} bytes. A decision names every task of its "
            f"batch, and a snapshot every file. Nothing was written. {raise_limit(topic)}, or "
            "write with fewer tasks; then start the query again."
        )

    @property
    def own_topics(self) -> str:
        """The topics that an append writes to, as words."""
        state = self._options.state_topic if self._options.snapshots else None
        return f"ledger '{self._topic}'" + (f" or state topic '{state}'" if state else "")
