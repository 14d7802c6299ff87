"""One task's Kafka transaction: opened at the first row, prepared, and left open.

Left open on purpose: it survives the task, its worker and its machine. The driver ends it by
(producer id, epoch), once the job's outcome is decided.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from ...clients.kafka import config, control_plane, transactional_producer
from ...clients.kafka.fenced import is_fencing, was_aborted_for_age
from ...core.crash_points import crash_point
from ...core.digest import Digest
from ...core.errors import EnvironmentRefused, Fenced, SinkError, WriteFailed
from ...core.patience import served
from ...core.transaction import LAST_EPOCH, Described, Identity
from ..options import SinkOptions
from ..rows.fast import arrow_producer
from ..rows.producer_settings import producer_settings
from .earlier_ends import EarlierEnds
from .not_prepared import not_opened, not_prepared, too_slow
from .second_look import SecondLook

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


class SlotTaken(Exception):
    """What `before_open` raises if a transaction is open under the id, that must not be ended."""


class TaskTransaction:
    """A transaction under the first of `ids` that may be taken, by `who`, as errors name the task.

    `before_open` is asked right before an id is taken and raises if it may not be; it returns what
    Kafka has under it, for `earlier`. `still_wanted` is asked while rows are written, and raises
    Fenced if nobody will ask for this transaction.
    """

    # Whether this process's last task had rows. Where most have none, an id is taken ahead in vain;
    # nothing but time hangs on a wrong guess.
    _had_rows = True

    def __init__(
        self,
        options: SinkOptions,
        ids: Sequence[str],
        who: str,
        before_open: Callable[[str], Described | None] = lambda _: None,
        still_wanted: Callable[[], None] | None = None,
        earlier: EarlierEnds | None = None,
    ) -> None:
        self._options = options
        self._ids = ids
        self._id = ids[0]
        self._who = who
        self._before_open = before_open
        self._earlier = earlier
        self._still_wanted = still_wanted
        self._second_look: SecondLook | None = None
        self._control = control_plane.shared(options.kafka)
        self._opener: ThreadPoolExecutor | None = None
        self._opening: Future[None] | None = None
        self._producer: Any = None
        self._writer: Any = None
        self._opened_at = 0.0
        self.beside = Digest()  # of what else belongs to the rows sent so far
        self._ours = 0  # records that are no rows
        self._ours_landed: list[int] = []
        self._ours_refused: Any = None  # Kafka's error for one of them
        self.identity: Identity | None = None
        self.seen: dict[str, Described] = {}
        self._topic_ids: dict[str, str] = {}  # as they were before the first row to each
        self.topics: tuple[tuple[str, str], ...] = ()  # what it wrote to; known once prepared

    @property
    def rows(self) -> int:
        """Rows sent so far."""
        return self._writer.rows if self._writer else 0

    @property
    def size(self) -> int:
        """Bytes of the keys and values sent so far."""
        return self._writer.size if self._writer else 0

    @property
    def digest(self) -> str:
        """Of the rows sent so far, and of what `beside` has of them."""
        return self._writer.digest.beside(self.beside).text() if self._writer else ""

    @property
    def ours_until(self) -> int:
        """The offset after the last record of `produce`, once that is acknowledged."""
        return max(self._ours_landed, default=-1) + 1

    @property
    def asked(self) -> tuple[tuple[str, str], ...]:
        """The topics of the rows sent so far, with the ids that they had before the first row."""
        return tuple(sorted(self._topic_ids.items()))

    @property
    def open_s(self) -> float:
        """How long it has been open: Kafka counts from the first row, which comes right after."""
        return time.monotonic() - self._opened_at

    def open_ahead(self) -> None:
        """Let `open` happen while the first rows are being read. If there are none, an id was taken
        and nothing was sent under it; `abort` waits for that."""
        if TaskTransaction._had_rows:
            self._opener = ThreadPoolExecutor(1, "eo-kafka-open")
            self._opening = self._opener.submit(self._open)
            self._opener.shutdown(wait=False)
        TaskTransaction._had_rows = False  # until `open` knows better

    def send(self, batch: pa.RecordBatch) -> None:
        """S3. The first call opens the transaction, if `open` has not."""
        self.open()
        self._ask_topics(batch)
        if self._second_look is None and self._still_wanted is not None:
            self._second_look = SecondLook(self._is_open, self._still_wanted, self._end)
        try:
            self._writer.send(batch)
        except EnvironmentRefused as error:
            raise EnvironmentRefused(f"{self._who}: {error} Grant it, and start again.") from None
        except SinkError as error:
            if self._second_look is not None:
                self._second_look.check()
            if not isinstance(error, WriteFailed) and not self._writer.failures:
                raise
            raise self._failed(str(error).rstrip(".")) from None

    def _may_take(self, name: str) -> None:
        found, topic = self._before_open(name), self._options.topic
        if found and self._earlier:
            self._earlier.taking(found, {topic} if topic else ())

    def _ask_topics(self, batch: pa.RecordBatch) -> None:
        """Before the first row to a topic: if it is made again later, that row is gone."""
        if self._options.topic is None and "topic" in batch.schema.names:
            named = {name for name in batch.column("topic").unique().to_pylist() if name}
            if new := named - self._topic_ids.keys():
                found = self._control.look(topics=new)
                if self._earlier:
                    self._earlier.settle(found)
                self._topic_ids.update(found.topic_ids)

    def _is_open(self) -> bool:
        found = self._control.describe_one(self._id)
        return self.identity is not None and found.is_open(self.identity)

    def open(self) -> None:
        """S2: take the id, once. Raises EnvironmentRefused, or what `before_open` raises."""
        if self._writer is not None:
            return
        TaskTransaction._had_rows = True
        if self._opening is None:
            self._open()
        else:
            self._opening.result()
        self._writer = arrow_producer(self._producer, self._options.topic, self._options.own_topics)
        self._opened_at = time.monotonic()

    def _open(self) -> None:
        from confluent_kafka import KafkaException

        options = self._options
        try:
            usual = {options.topic} if options.topic else set()
            ledger = {options.ledger_topic} if options.ledger_topic else set()
            while self.identity is None or self.identity.epoch >= LAST_EPOCH:
                self._take_id()
                # Now, before the first write: what is prepared later must be this very transaction,
                # and the topic that its rows went to.
                found = self._control.look([self._id], topics=usual, others=ledger)
                self.identity = found.described[self._id].identity
            self._topic_ids = {at: found.topic_ids[at] for at in usual & found.topic_ids.keys()}
            if self._earlier:
                self._earlier.settle(found)
            crash_point("S2.after_init")
            self._producer.begin_transaction()
        except KafkaException as error:
            raise not_opened(self._who, self._id, options, error.args[0]) from None

    def _take_id(self) -> None:
        options = self._options
        for name in self._ids:
            self._id = name
            try:
                self._producer = transactional_producer.take(
                    producer_settings(options),
                    self._id,
                    options.transaction_timeout_ms,
                    partial(self._may_take, name),
                    options.topic or options.ledger_topic,
                )
                return
            except SlotTaken:
                continue
        raise WriteFailed(
            f"{self._who}: {len(self._ids)} attempts of this task have open transactions, and "
            "no transactional id is left for this one. It wrote nothing. The end of the batch, "
            "or its next run, ends them."
        )

    def produce(self, topic: str, key: bytes, value: bytes | None, partition: int) -> None:
        """S4: one more record, of ours. Raises Fenced if it was ended, else what `prepare` does."""
        from confluent_kafka import KafkaException

        if self._second_look is not None:
            self._second_look.stop()
        self._ours += 1
        place = topic, (key, value), partition
        try:
            transactional_producer.send(self._producer, *place, self._our_delivery)
        except KafkaException as error:
            self._ours_refused = error.args[0]
            raise self._failed() from None

    def _our_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self._ours_refused = error
        elif (offset := transactional_producer.landed_at(message)) >= 0:
            self._ours_landed.append(offset)

    def prepare(
        self, must_include: tuple[str, int] | None = None, watched: Sequence[str] = ()
    ) -> Identity:
        """S5: everything acknowledged, and the broker holds exactly the transaction of S2, with
        the partition `must_include` in it. What it says of the ids in `watched` after the flush is
        in `seen`. Raises WriteFailed, and EnvironmentRefused if a right is missing."""
        self._flush()
        crash_point("S5.after_flush")
        usual = {self._options.topic} if self._options.topic else set()
        answers = self._control.look([self._id, *watched], topics=usual)
        self.seen = answers.described
        found = self.seen[self._id]
        included = must_include is None or must_include in found.partitions
        if self.identity is None or not found.is_open(self.identity) or not included:
            raise self._too_slow() or WriteFailed(
                f"{self._who}: the transaction was ended while it was written "
                f"({found.state.value}, epoch {found.epoch}). Nothing of it is visible."
            )
        written = {topic for topic, _ in found.partitions} - {
            must_include[0] if must_include else ""
        }
        now = {**answers.topic_ids, **self._control.topic_ids(written - usual)}
        replaced = sorted(name for name in written if now.get(name) != self._topic_ids.get(name))
        if replaced:
            raise WriteFailed(
                f"{self._who}: {replaced} were deleted, or made, while rows were written to them: "
                "some of these rows may be gone. Nothing of the attempt is visible."
            )
        if self._earlier and (back := self._earlier.not_seen(found.partitions)):
            raise WriteFailed(
                f"{self._who}: {back} had no leader at first (an election, a new topic): what is "
                "older may be open there. Nothing of the attempt is visible: start it again."
            )
        self.topics = tuple(sorted((name, now[name]) for name in written if name in now))
        return self.identity

    def _flush(self) -> None:
        """Every row, and every record of ours, must have been acknowledged with its offset. Raises
        what `prepare` does."""
        from confluent_kafka import KafkaException

        timeout_s = self._options.answer_timeout_s
        deadline = time.monotonic() + timeout_s
        try:
            while transactional_producer.flush(self._producer, 1.0) and not self._writer.failures:
                if time.monotonic() > deadline:
                    break
        except KafkaException as error:
            raise self._failed(error.args[0].str()) from None
        missing = self._writer.rows - self._writer.acknowledged
        lost = self._ours - len(self._ours_landed)
        if missing or lost:
            what = f"{missing} rows" if missing else "the ledger's record of the rows"
            raise self._failed(f"{what} got no answer in {timeout_s:.0f} s")
        served(config.contact(self._options.kafka))

    def _failed(self, said: str = "") -> SinkError | EnvironmentRefused:
        """`said`: the reason, where no report of a record gives one."""
        ended = transactional_producer.reported_failure(self._producer)
        if ended and is_fencing(ended) and (slow := self._too_slow()):
            return slow
        topics = self._options.topic, *self._topic_ids
        ledger = self._options.ledger_topic if self._ours > len(self._ours_landed) else None
        ours, control = self._ours_refused, self._control
        return not_prepared(self._who, said, ended, self._writer, topics, ours, ledger, control)

    def _too_slow(self) -> WriteFailed | None:
        """The error, if Kafka has ended the transaction for its age. Raises Fenced if nobody needs
        it: who ends it then leaves the same traces."""
        if self.identity is None or self.open_s * 1000 < self._options.transaction_timeout_ms:
            return None
        if self._still_wanted is not None:
            self._still_wanted()
        aged = was_aborted_for_age(self._control, self.identity, was_open=self.rows > 0)
        return too_slow(self._who, self.open_s, self._options) if aged else None

    def commit(self) -> None:
        """End it by oneself (one-phase). Raises WriteFailed when it is not certain that this one
        committed; the token in it says what became of it."""
        from confluent_kafka import KafkaException

        try:
            transactional_producer.commit(self._producer, self._options.answer_timeout_s)
        except KafkaException as error:
            slow = self._too_slow() if is_fencing(error.args[0]) else None
            raise slow or WriteFailed(
                f"{self._who}: the commit has no certain outcome ({error.args[0].str()}). The next "
                "attempt looks whether the rows are visible and repeats none."
            ) from None

    def abort(self) -> None:
        """Give up, as far as the broker can be reached; else it times out, or the next S1 ends
        it. Nothing of the task goes on after this."""
        if self._opener is not None:
            self._opener.shutdown()  # whatever it raises, there is nothing to write any more
        try:
            if self._second_look is not None:
                self._second_look.stop()
        except Fenced:
            return  # it is ended
        if self._writer is not None:
            self._end()

    def _end(self) -> None:
        try:
            transactional_producer.abort(self._producer, 10.0)
        except Exception as error:  # what the task failed of must not be hidden by this
            log.warning("%s: not aborted now (%s).", self._who, error)
