"""Readers that watch all the while: one of a job's output, one of its ledger."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.core.transaction import (
    Decision,
    DecisionState,
    Described,
    Identity,
    TransactionState,
)
from eo_kafka.errors import EoKafkaError
from eo_kafka.state.ledger.ledger import DECISION_PARTITION
from eo_kafka.state.ledger.records import decode_decision
from eo_kafka.state.snapshots.batch_ends import ends_of
from eo_kafka.testing.history import History, Row
from soak.history import Done, RowLog
from soak.supervisor import Job
from soak.workload import PARTITIONS

END_S = 60.0


class Follower(threading.Thread):
    """A `read_committed` consumer of partitions of a topic, from their beginning until `stop()`.

    The topic need not exist yet: a ledger is made by its job.
    """

    def __init__(
        self, servers: str, topic: str, partitions: Iterable[int], seen: Callable[[Message], None]
    ) -> None:
        super().__init__(name=f"watcher of {topic}", daemon=True)
        self._topic, self._partitions, self._seen = topic, list(partitions), seen
        self._stopped = threading.Event()
        self._failure = ""
        self._ends: dict[int, int] = {}  # where partitions ended when it was there
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "soak-watcher",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )

    def stop(self) -> None:
        """End it when it has come to the end; nobody writes any more. Raises RuntimeError if it
        cannot: it saw only a part then, and in a part nothing is missed."""
        self._stopped.set()
        self.join()
        if self._failure:
            raise RuntimeError(f"{self.name} failed:\n{self._failure}")

    def run(self) -> None:
        try:
            self._follow()
        except Exception:
            self._failure = traceback.format_exc()

    def _follow(self) -> None:
        while not self._exists() and not self._stopped.wait(0.5):
            pass
        self._consumer.assign([TopicPartition(self._topic, one, 0) for one in self._partitions])
        while not self._stopped.is_set():
            self._poll()
        deadline = time.monotonic() + END_S
        while left := self._left():
            if time.monotonic() > deadline:
                raise RuntimeError(f"where it is, and the end, by partition: {left}")
            self._poll()
        self._consumer.close()

    def _poll(self) -> None:
        message = self._consumer.poll(0.2)
        if message is None:
            return
        if (error := message.error()) is None:
            self._seen(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._ends[message.partition()] = message.offset()

    def _left(self) -> dict[int, tuple[int, int]]:
        found = {}
        for number in self._partitions:
            _, end = self._consumer.get_watermark_offsets(TopicPartition(self._topic, number), 10)
            if self._ends.get(number) != end:
                found[number] = (self._ends.get(number, 0), end)
        return found

    def _exists(self) -> bool:
        try:
            return self._consumer.list_topics(self._topic, 5).topics[self._topic].error is None
        except KafkaException:
            return False


def row_of(message: Message) -> Row:
    """A message as a row of the history."""
    return Row(message.partition(), message.offset(), _text(message.value()), _text(message.key()))


def _text(found: Any) -> str | None:
    return None if found is None else found.decode(errors="backslashreplace")


def watch_output(job: Job, log: RowLog) -> Follower:
    """Follow the job's output into `log`."""
    servers, topic = job.kafka.servers, job.kafka.sink_topic
    return Follower(servers, topic, range(PARTITIONS), lambda one: log.add(row_of(one)))


class LedgerWatcher:
    """Follows the job's ledger into the history: events "decided", "done" and "void"."""

    def __init__(self, job: Job, history: History) -> None:
        self._job, self._history = job, history
        self._admin = self._new_admin()
        self._follower = Follower(
            job.kafka.servers, job.kafka.ledger, [DECISION_PARTITION], self._seen
        )
        self.start, self.stop = self._follower.start, self._follower.stop
        self._control = ControlPlane({"bootstrap.servers": job.kafka.servers})
        self._known: dict[int, Decision] = {}  # by batch, the newest
        self.done: list[Done] = []

    def _seen(self, message: Message) -> None:
        key, value = message.key() or b"", message.value()
        if not key.startswith(b"decision/") or value is None:
            return
        try:
            decision = decode_decision(key, value)
        except EoKafkaError as error:
            self._history.add(self._job.name, "unreadable", why=str(error))
            return
        if self._known.get(decision.batch) == decision:
            return  # written again because the answer was lost
        self._known[decision.batch] = decision
        details: dict[str, Any] = {
            "batch": decision.batch,
            "round": decision.round,
            "generation": decision.generation,
            "tasks": len(decision.participants),
            "rows": sum(part.rows for part in decision.participants),
        }
        self._history.add(self._job.name, decision.state.value.lower(), **details)
        if decision.state is DecisionState.DONE:
            self._observe(decision)

    def _observe(self, decision: Decision) -> None:
        batch = decision.batch
        for last in (False, True):
            try:
                at, still_open = self._high_watermarks(), self._still_open(decision)
                self.done.append(Done(batch, input_ends(decision), at, still_open))
                return
            except KafkaException as error:
                self._admin = self._new_admin()  # the old one may stay with the old leaders
                why = repr(error)[:120]
            if last:  # a broker is down: the next batch will do
                self._history.add(self._job.name, "not observed", batch=batch, why=why)

    def _still_open(self, decision: Decision) -> tuple[str, ...]:
        """Not those whose commit is settled, and of which Kafka still writes the markers."""
        mine = [part.identity for part in decision.participants if part.has_transaction]
        try:
            found = self._control.describe(one.transactional_id for one in mine)
        except EoKafkaError as error:  # a broker is down
            self._history.add(self._job.name, "not described", why=str(error)[:120])
            return ()
        return still_open(mine, found)

    def _new_admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._job.kafka.servers, "log_level": 0})

    def _high_watermarks(self) -> dict[int, int]:
        topic = self._job.kafka.sink_topic
        latest = {
            TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)
        }
        asked = self._admin.list_offsets(latest, request_timeout=10)
        ends = {at.partition: answer.result().offset for at, answer in asked.items()}
        if min(ends.values()) < 0:  # so the client says that a leader did not answer in time
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return ends


def still_open(mine: Iterable[Identity], found: Mapping[str, Described]) -> tuple[str, ...]:
    """The ids of those of these transactions that are open, or are being aborted."""
    return tuple(
        one.transactional_id
        for one in mine
        if (now := found[one.transactional_id]).identity == one
        and now.state in (TransactionState.ONGOING, TransactionState.PREPARE_ABORT)
    )


def input_ends(decision: Decision) -> dict[int, int]:
    """Where a batch's input ends, by partition, as Spark's offset log said."""
    (line,) = decision.offsets
    return {at.partition: end for at, end in ends_of(line).offsets.items()}
