"""The inbox's only writer: fences, has what was kept read back, and appends.

Its transactional id is the inbox's. Taking it shuts out a receiver that is still at it somewhere
else, and ends what that had open. Then the memory is read: whoever writes from here on knows what
was kept before. That nothing was missed shows where the first record lands
(state/ledger/append_point.py). With another prefix of ids the transactional id is another one: that
nobody else appends shows where later records land. Lives in the process that plans the query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...clients.kafka import control_plane, fenced, transactional_producer
from ...clients.kafka.cluster import connect
from ...clients.kafka.config import connection_settings
from ...clients.kafka.lost_markers import Asker, settle
from ...clients.kafka.outages import is_no_answer, refused_login
from ...clients.kafka.topics import TIMEOUT_S
from ...clients.kafka.transactional_id import TransactionalIds
from ...clients.kafka.transactional_producer import (
    flush,
    landed_at,
    send,
    transaction_failure,
)
from ...core.crash_points import crash_point
from ...core.errors import EnvironmentRefused, Fenced, OutcomeUnknown, ReadTimeout
from ...core.process import moment
from ...state.ledger.append_point import AppendPoint
from ...state.ledger.log_reader import read_messages, read_records
from . import topic
from .backend import Memory
from .message import Headers, Record
from .options import QueueOptions

PARTITION = 0
TRANSACTION_TIMEOUT_MS = 60_000
ANSWER_S = 70.0  # librdkafka gives up what gets no answer after a minute, and says why
_TRIAL = (Record(b"trial", b"", []),)  # a compacted topic takes none without a key
_SETTINGS = {
    "linger.ms": "5",
    "compression.type": "lz4",
    "message.max.bytes": str(topic.MOST_BYTES),
}


class Inbox:
    """Raises EnvironmentRefused, OutcomeUnknown, ReadTimeout, RepairNeeded. After an error of
    `append` nothing is known of it any more: make another, which reads what there is. `is_lost`:
    after a ReadTimeout, too, for it was Kafka that gave no answer."""

    def __init__(self, options: QueueOptions, memory: Memory) -> None:
        self._options, self.memory, self.is_lost = options, memory, False
        self._both = (options.inbox, options.poison_topic)
        topic.ensure_all(options, memory.topics, *connect(options.kafka, TIMEOUT_S))
        self._control = control_plane.shared(options.kafka)
        self._points = {name: AppendPoint() for name in (*self._both, *memory.topics)}
        # No job's: a name of a job has no slash, and one may be called as the inbox is.
        self._ids = TransactionalIds(options.prefix, f"inbox/{options.inbox}")
        self._id = self._ids.coordinator
        self._settle()  # what the id ended last; once it is taken, Kafka tells no more how
        self._producer = self._taken()
        found = self._control.describe_one(self._id)
        self._mine, self._timeout_ms = found.identity, found.timeout_ms
        ends = {name: self._end(name) for name in self._points}
        for name, end in ends.items():
            self._points[name].read_to(end)
        memory.recall(ends, self._read)
        self._is_tried = False

    def try_out(self) -> None:
        """Find out whether records can be written now, by some that are taken back; once. Before a
        message is taken: what a start that fails has in its hands counts as delivered, and queues
        drop what they delivered too often. Raises what `append` does."""
        if not self._is_tried:
            self._write(dict.fromkeys(self._points, _TRIAL), is_trial=True)
            self._is_tried = True

    def append(self, kept: Sequence[Record], poison: Sequence[Record]) -> bool:
        """All of them in one transaction; or none, where one is too large: then it is not done, and
        goes on. Readers are given them when it returns. Raises Fenced,
        EnvironmentRefused, OutcomeUnknown, ReadTimeout, RepairNeeded."""
        wanted = dict(zip(self._both, (kept, poison), strict=True))
        before = {name: point.at_least for name, point in self._points.items()}
        if not self._write({**wanted, **self.memory.records(wanted)}):
            # librdkafka 2.16 goes on behind the sequence numbers of what was refused: the next
            # transaction fails of that, whatever is in it, and by its abort it gets new ones.
            with suppress(OutcomeUnknown, ReadTimeout):
                self._write(dict.fromkeys(self._points, _TRIAL), is_trial=True)
                self._mine = self._control.describe_one(self._id).identity  # it may have a new one
            self._pass_over_own(before)
            return False
        self.memory.note(wanted)
        return True

    def _write(self, records: Mapping[str, Sequence[Record]], *, is_trial: bool = False) -> bool:
        """In one transaction, which a trial takes back. Not, if one of them is too large."""
        from confluent_kafka import KafkaError, KafkaException

        may_abort, began, self._is_heard = True, moment.seconds(), False
        try:
            self._producer.begin_transaction()
            self._send(records)
            if not is_trial:
                crash_point("queue.before_commit")
                may_abort = False  # from here on the outcome is Kafka's to tell
                self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE:
                return False
            raise self._explained(error.args[0], moment.seconds() - began) from None
        finally:
            if may_abort:  # what is open would hide what others append
                with suppress(KafkaException):
                    self._producer.abort_transaction(TIMEOUT_S)
        # Where that stays open it would end as the next transaction does
        self._settle()
        for name, some in records.items():
            if some:
                self._end(name)
        return True

    def _settle(self) -> None:
        """Have ends written that Kafka left out."""
        epochs = self._control.look(topics=self._points).leader_epochs
        settle(Asker(self._control, self._ids), epochs)

    def _send(self, wanted: Mapping[str, Sequence[Record]]) -> None:
        from confluent_kafka import KafkaError, KafkaException

        landed: dict[str, list[int]] = {name: [] for name in wanted}
        refused: list[KafkaError] = []

        def note(error: KafkaError | None, message: Any) -> None:
            if error is None:
                self._is_heard = True
                landed[message.topic()].append(landed_at(message))
            else:
                refused.append(error)

        for name, records in wanted.items():
            for one in records:
                record = one.key, one.value
                send(self._producer, name, record, PARTITION, note, one.headers)
        flush(self._producer, ANSWER_S)
        if refused:
            # Behind a batch that is too large, others are refused for other reasons.
            refused.sort(key=lambda one: one.code() != KafkaError.MSG_SIZE_TOO_LARGE)
            is_too_large = refused[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
            failure = None if is_too_large else transaction_failure(self._producer)
            raise KafkaException(failure or refused[0])
        for name, records in wanted.items():
            if len(landed[name]) < len(records):
                raise self._silent(f"no answer in {ANSWER_S:.0f} s")
        self._check_alone(landed)

    def _check_alone(self, landed: Mapping[str, Sequence[int]]) -> None:
        """Raise OutcomeUnknown unless the records of an open transaction landed behind what was
        read, and behind what this writer has appended since."""
        for name, offsets in landed.items():
            before = self._points[name].at_least
            problem = self._points[name].landed(offsets) if offsets else ""
            if offsets and not problem and self._has_others(name, before, offsets):
                problem = f"others have appended since this one did, before offset {before}"
            if problem:
                raise self._not_alone(name, problem)

    def _not_alone(self, name: str, problem: str) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"Topic '{name}' is not as it was read ({problem}): somebody else writes into it, or "
            "its leader was cut off from the other brokers. Nothing was kept and nothing "
            "acknowledged. An inbox and its poison topic belong to one queue and one job, also "
            "where jobs have another 'transactionalIdPrefix'; start the query again when that is "
            "so."
        )

    def _pass_over_own(self, before: Mapping[str, int]) -> None:
        """Of a transaction that was refused in part some records stand in the logs, of which
        librdkafka says that they do not. They are aborted: what a reader sees is another's."""
        for name, begin in before.items():
            point = self._points[name]
            now = self._control.end_offset(name, PARTITION, committed=False)
            point.at_least = max(point.at_least, now)
            if self._holds_others(name, begin, self._end(name), committed=True):
                raise self._not_alone(name, f"others have appended behind offset {begin}")

    def _has_others(self, name: str, before: int, offsets: Sequence[int]) -> bool:
        """Whether records of others stand between one's own, the last of which stood before
        `before`, if one did. One's last transaction has a marker there, which is no record."""
        begin, end = before or min(offsets), max(offsets) + 1
        if end - begin - len(offsets) <= bool(before):
            return False
        return self._holds_others(name, begin, end, frozenset(offsets), committed=False)

    def _holds_others(
        self,
        name: str,
        begin: int,
        end: int,
        mine: Collection[int] = (),
        *,
        committed: bool,
    ) -> bool:
        kafka = self._options.kafka
        try:
            found = read_records(kafka, name, PARTITION, begin, end, committed=committed)
            return any(offset not in mine for offset, _, _ in found)
        except ReadTimeout:  # what was looked at in part only is read anew, by another inbox
            self.is_lost = True
            raise

    def _taken(self) -> Any:
        from confluent_kafka import KafkaException

        name = self._id
        settings = {**connection_settings(self._options.kafka), **_SETTINGS}
        try:
            return transactional_producer.take_own(
                settings, name, TRANSACTION_TIMEOUT_MS, self._options.inbox
            )
        except KafkaException as error:
            kind = OutcomeUnknown if is_no_answer(error.args[0]) else EnvironmentRefused
            raise kind(
                f"The transactional id '{name}' could not be taken: {error.args[0].str()}."
                f"{refused_login()} Nothing was taken from the queue. Is the principal allowed to "
                "Write and Describe the id, and has Kafka enough brokers for its transaction log? "
                "Start again then."
            ) from None

    def _end(self, name: str) -> int:
        """Where a topic ends for readers, once all that was acknowledged stands before it."""
        at_least = self._points[name].at_least
        end = self._control.reach((name, PARTITION, True), at_least, TIMEOUT_S)
        if end < at_least:
            raise OutcomeUnknown(
                f"Topic '{name}' ends at offset {end}, as the broker says that answers, and records"
                f" up to {at_least} were acknowledged. Its leader is cut off from the other "
                "brokers, or has just started and not ended the transaction yet, or records of it "
                "are lost. Start the query again when all brokers are up and see each other."
            )
        return end

    def _read(
        self, name: str, begin: int, end: int
    ) -> Iterator[tuple[int, bytes, bytes | None, Headers]]:
        for one in read_messages(self._options.kafka, name, PARTITION, begin, end):
            yield one.offset(), one.key() or b"", one.value(), one.headers() or []

    def _explained(self, error: Any, took_s: float) -> Exception:
        from confluent_kafka import KafkaError

        inbox = self._options.inbox
        too_old = False
        if fenced.is_fencing(error):
            is_open = self._is_heard or fenced.took_its_time(took_s, self._timeout_ms)
            too_old = fenced.was_aborted_for_age(self._control, self._mine, was_open=is_open)
        if fenced.is_fencing(error) and not too_old:
            return Fenced(
                f"Another driver of this job fills inbox '{inbox}' now. This one stops; what it "
                "had taken from the queue goes back into it. Run one of them."
            )
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return EnvironmentRefused(
                f"Not authorized to write to one of {', '.join(self._points)}: the principal "
                "needs Write on each. Nothing was acknowledged to the queue. Grant it "
                "and start again."
            )
        if too_old or is_no_answer(error) or error.code() == KafkaError._MSG_TIMED_OUT:
            return self._silent(error.str())
        return OutcomeUnknown(self._failed(error.str()))

    def _silent(self, problem: str) -> ReadTimeout:
        self.is_lost = True
        return ReadTimeout(self._failed(problem))

    def _failed(self, problem: str) -> str:
        return (
            f"Writing to inbox '{self._options.inbox}' failed: {problem}. Nothing of it was "
            "acknowledged to the queue. Start again: what was kept is found in the inbox then, and "
            "is not kept twice."
        )
