"""The job's coordinator: the only writer of the ledger's decision partition.

Whoever holds the coordinator's transactional id may write; taking it (a fence) shuts out all
others, finally. That alone does not say who *should* write, because an old driver can fence a new
one. The generation says it: after a fence the ledger is read to its end, and a newer generation
stops us.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from eo_kafka.errors import (
    EnvironmentRefused,
    Fenced,
    ForeignLedger,
    LedgerError,
    OutcomeUnknown,
)
from eo_kafka.kept import Kept
from eo_kafka.sinks import transactional_producer
from eo_kafka.sinks.control_plane import ControlPlane
from eo_kafka.sinks.control_requests import End
from eo_kafka.sinks.ledger_topic import TOKEN_PARTITION
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.state.ledger import DECISION_PARTITION, Ledger
from eo_kafka.state.log_reader import read_records
from eo_kafka.transaction import Identity, TransactionState

log = logging.getLogger(__name__)

TIMEOUT_S = 60.0
TRANSACTION_TIMEOUT_MS = 60_000
ATTEMPTS = 5
STATE_PARTITION = 0
COMPLETED_TIMEOUT_S = 0.5
Record = tuple[bytes, bytes | None]
_SETTINGS = {
    # Most of a snapshot is packed already; what is not gets smaller on the wire and on the disk.
    "compression.type": "lz4",
    # A decision names every task, in some 250 bytes each: what is too large the topic says.
    "message.max.bytes": str(64 << 20),
}


@dataclass(frozen=True)
class Write:
    """What goes into one transaction: of the ledger, and of the state topic."""

    records: Sequence[Record]
    state: Sequence[Record] = ()


Attempt = Callable[[Ledger], "Write | None"]


@dataclass
class _Memory:
    """What was read of a ledger, which is all that stands before `position`."""

    topic_id: str = ""
    ledger: Ledger = field(default_factory=Ledger)
    position: int = 0
    read_at: float = 0.0  # time.monotonic()


# A tombstone that nobody read in time is compacted away: long before that, all is read again.
MEMORY_S = 600.0
_memories: Kept[_Memory] = Kept(limit=2)


class AppendFailed(Exception):
    """A coordinator transaction did not end as asked; it may have landed all the same."""


class Coordinator:
    """Fences, reads and appends. Lives on the driver, for one call of Spark's."""

    def __init__(self, options: SinkOptions, control: ControlPlane) -> None:
        self._options = options
        self._control = control
        _, self.topic = options.job_and_ledger
        self.ids = options.ids
        self._memory = _Memory()
        self._producer: Any = None
        self.identity: Identity | None = None
        self._end_at_fence: int | None = None

    @property
    def ledger(self) -> Ledger:
        """As far as it was read."""
        return self._memory.ledger

    def look_first(self, *, may_be_new: bool) -> tuple[int, int]:
        """Before a batch's first fence: a position before all tokens of that batch, and the version
        of EndTxn.

        Unless it `may_be_new`, raise LedgerError if the ledger is empty though Kafka remembers that
        the job wrote into one (for transactional.id.expiration.ms, seven days). A fence makes Kafka
        forget that.
        """
        tokens = (self.topic, TOKEN_PARTITION, False)
        found = self._control.look([self.ids.coordinator], [self._end, tokens], version=True)
        state = found.described[self.ids.coordinator].state
        self._wait_completed(state)
        wrote = state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)
        decisions_end, token_from = found.ends
        if wrote and not decisions_end and not may_be_new:
            self._check_still_empty()
        return token_from, found.end_txn_version

    def _check_still_empty(self) -> None:
        # Once more, after it and not with it: another driver's first record may have come between.
        if not self._control.end_offset(self.topic, DECISION_PARTITION, committed=False):
            job = self._options.job
            raise LedgerError(
                f"Ledger '{self.topic}' is empty, and Kafka remembers that job '{job}' wrote into "
                "one: the topic was deleted, or option 'ledgerTopic' was changed. What became of "
                "the last batch is not known any more, and nothing was written now. Restore the "
                "topic; or, if the output holds all rows of the last batch that commits/ in the "
                f"checkpoint names and none of a later one: 'eo-kafka job reset {job} "
                "--bootstrap-servers ...', and start the query again."
            )

    def _wait_completed(self, state: TransactionState) -> None:
        """Wait a moment for the id's last transaction, if Kafka still writes its markers: it does
        so after it has answered, and puts off who takes the id meanwhile, whom librdkafka lets ask
        again after half a second."""
        deadline = time.monotonic() + COMPLETED_TIMEOUT_S
        while state.is_completing and time.monotonic() < deadline:
            time.sleep(0.005)
            state = self._control.describe_one(self.ids.coordinator).state

    def fence(self) -> None:
        """Take the coordinator's id. Every earlier holder's next write fails from here on."""
        from confluent_kafka import KafkaException

        try:
            self._producer = transactional_producer.take(*self._taken, topic=self.topic)
        except KafkaException as error:
            if is_no_answer(error.args[0]):
                raise OutcomeUnknown(
                    f"The coordinator's transactional id '{self.ids.coordinator}' could not be "
                    f"taken: {error.args[0].str()}. Is Kafka up, with enough brokers for its "
                    "transaction log? Start the query again then: it goes on from what the ledger "
                    "says."
                ) from None
            raise EnvironmentRefused(
                f"The coordinator's transactional id '{self.ids.coordinator}' cannot be used: "
                f"{error.args[0].str()}. Is the principal allowed to Write and Describe it, and "
                "has Kafka enough brokers for its transaction log?"
            ) from None
        found = self._control.look([self.ids.coordinator], [self._end], [self.topic])
        self.identity = found.described[self.ids.coordinator].identity
        self._end_at_fence = found.ends[0]  # asked after the fence, for the read that follows it
        self._recall(found.topic_ids.get(self.topic, ""), found.ends[0])

    def _recall(self, topic_id: str, end: int) -> None:
        """Go on from what this process has read of this very topic: in a ledger of hundreds of
        decisions, the last few records are new."""
        if topic_id and topic_id == self._memory.topic_id and self._memory.position <= end:
            return
        kept = _memories.take(self._remembered(topic_id))
        usable = kept and kept.position <= end and time.monotonic() - kept.read_at < MEMORY_S
        self._memory = kept if kept and usable else _Memory(topic_id)

    @property
    def _end(self) -> End:
        return self.topic, DECISION_PARTITION, False

    @property
    def _taken(self) -> tuple[dict[str, str], str, int]:
        settings = {**self._options.kafka, "linger.ms": "0", **_SETTINGS}
        return settings, self.ids.coordinator, TRANSACTION_TIMEOUT_MS

    def keep(self) -> None:
        """At the end, for this process's next call: what was read, and a producer that connects
        now. It fences nobody yet."""
        transactional_producer.open_ahead(*self._taken, self.topic)
        if self._memory.topic_id:
            _memories.put(self._remembered(self._memory.topic_id), self._memory)

    def _remembered(self, topic_id: str) -> dict[str, str]:
        return {**self._options.kafka, "ledger": self.topic, "topic id": topic_id}

    def read(self, *, fenced: bool = True) -> Ledger:
        """Bring `ledger` up to the partition's end. After a fence no transaction is open on it, so
        the last stable offset reaches the high watermark; not `fenced`, it may be behind."""
        end, self._end_at_fence = self._end_at_fence, None
        if end is None:
            end = self._control.end_offset(self.topic, DECISION_PARTITION, committed=not fenced)
        for offset, key, value in read_records(
            self._options.kafka, self.topic, DECISION_PARTITION, self._memory.position, end
        ):
            self.ledger.apply(key, value)
            self._memory.position = offset + 1
        self._memory.position = max(self._memory.position, end)
        self._memory.read_at = time.monotonic()
        return self.ledger

    def append(self, records: Sequence[Record], state: Sequence[Record] = ()) -> None:
        """Write `records` into the ledger and `state` into the state topic, in one small
        transaction. Raises AppendFailed when it is not certain that they landed."""
        from confluent_kafka import KafkaError, KafkaException

        self._end_at_fence = None
        refused: set[int] = set()

        def note(error: KafkaError | None, _: object) -> None:
            if error is not None:
                refused.add(error.code())

        try:
            self._producer.begin_transaction()
            for key, value in state:
                self._producer.produce(
                    self._options.state_topic, value, key, STATE_PARTITION, on_delivery=note
                )
            for key, value in records:
                self._producer.produce(self.topic, value, key, DECISION_PARTITION, on_delivery=note)
            # It flushes first, and fails if a record was not delivered.
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            refused.add(error.args[0].code())
            if KafkaError.TOPIC_AUTHORIZATION_FAILED in refused:
                raise EnvironmentRefused(
                    f"Not authorized to write to {self._own_topics}: the principal needs Write on "
                    "it. Nothing was written. Grant it and start the query again."
                ) from None
            if KafkaError.MSG_SIZE_TOO_LARGE in refused:
                raise EnvironmentRefused(self._too_large([*state, *records])) from None
            raise AppendFailed(error.args[0].str()) from error

    def _too_large(self, written: Sequence[Record]) -> str:
        largest = max(len(value or b"") for _, value in written)
        return (
            f"A record of {largest:,} bytes is too large for {self._own_topics}: a decision names "
            "every task of its batch, and a snapshot every file. Nothing was written. Raise "
            "'max.message.bytes' of the topic (kafka-configs --alter --entity-type topics "
            f"--entity-name {self.topic} --add-config max.message.bytes=...), or write with fewer "
            "tasks; then start the query again."
        )

    @property
    def _own_topics(self) -> str:
        state = self._options.state_topic if self._options.snapshots else None
        return f"ledger '{self.topic}'" + (f" or state topic '{state}'" if state else "")

    def check_owner(self, query_id: str | None) -> None:
        """Raise ForeignLedger if the ledger is another query's."""
        check_owner(self._options, self.ledger.owner, query_id)

    def write(self, generation: int, attempt: Attempt) -> None:
        """Write under `generation` until it is certain: fence, read to the end, stop if a newer
        generation is there, append what `attempt` answers; None: it has landed already.

        `attempt` may append by itself what is to come before. Raises Fenced, or OutcomeUnknown
        after ATTEMPTS rounds, or what `attempt` raises.
        """
        for count in range(ATTEMPTS):
            self.fence()
            ledger = self.read()
            self.check_generation(generation)
            try:
                write = attempt(ledger)
                if write is None:
                    return
                self.append(write.records, write.state)
                return
            except AppendFailed as error:
                self._warn(error)
            time.sleep(0.05 * 2**count)
        raise OutcomeUnknown(
            f"Writing to ledger '{self.topic}' had no certain outcome in {ATTEMPTS} attempts. "
            "Nothing is lost: the next start reads the ledger and goes on from what it says."
        )

    def check_generation(self, generation: int) -> None:
        """Raise Fenced unless the ledger's newest generation is `generation`."""
        newest = self.ledger.generation
        if newest != generation:
            raise Fenced(
                f"Generation {newest} of job '{self._options.job}' has taken over from "
                f"{generation}: another driver runs the same job. This one stops and has "
                "written nothing that counts. Run one of them."
            )

    def try_append(self, records: Sequence[Record]) -> bool:
        """Append; False when it is not certain that the records landed."""
        try:
            self.append(records)
        except AppendFailed as error:
            self._warn(error)
            return False
        return True

    def _warn(self, error: AppendFailed) -> None:
        log.warning("Ledger '%s': %s; asking again from the fence.", self.topic, error)


def is_no_answer(error: Any) -> bool:
    """Whether Kafka may only be away: what it refuses, it has answered."""
    from confluent_kafka import KafkaError

    silence = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    return error.retriable() or error.code() in silence


def check_owner(options: SinkOptions, owner: str | None, query_id: str | None) -> None:
    """Raise ForeignLedger, with the three ways out, if the ledger is another query's."""
    if owner is None or query_id is None or owner == query_id:
        return
    job, topic = options.job_and_ledger
    raise ForeignLedger(
        f"Ledger '{topic}' belongs to query {owner}, and this is query {query_id}: the "
        "checkpoint was deleted, or the job's name is used twice. Nothing was written or "
        "skipped. Either restore the old checkpoint; or choose a new 'jobName'; or, if the old "
        f"query will never run again, 'eo-kafka job reset {job} --bootstrap-servers ...'."
    )
