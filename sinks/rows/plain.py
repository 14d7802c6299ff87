"""Sends Arrow batches through a confluent-kafka producer in plain Python.

The twin of sinks/rows/fast.py: the same rows give the same bytes, the same digest and the same
errors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from ...clients.kafka.transactional_producer import landed_at, reporting
from ...core.bad_record_headers import origin
from ...core.digest import Digest
from ...core.errors import EnvironmentRefused, SinkError, WriteFailed, cut
from ...state.ledger.job_topics import is_internal

if TYPE_CHECKING:
    import pyarrow as pa

# Every record is reported, also those that went well: what counts is that it has an offset.
PRODUCER_SETTINGS: dict[str, Any] = {"delivery.report.only.error": False}
_POLL_S = 0.05
_POLL_EVERY = 1000


class ArrowProducer:
    """Sends record batches; on an executor, one a task. Not safe for threads.

    Columns go by name: `value` (string or binary, also large), and if present `key`, `topic`
    (string), `partition` (int32, null: the partitioner chooses) and `headers`
    (list<struct<key, value>>). Other columns are ignored. `default_topic` wins over the column,
    which may name none of the topics in `kept`.
    `rows`, `size` (bytes of keys and values) and `digest` cover all rows handed over so far;
    whether they were delivered, `failures` says after `flush()`. With `goes_on` they stop nothing.
    """

    def __init__(
        self, producer: Any, default_topic: str | None, kept: Collection[str] = ()
    ) -> None:
        self._producer = producer
        self._default_topic = default_topic
        self._kept = kept
        self.rows = 0
        self.size = 0
        self.goes_on = False  # after rows that were not delivered
        self.digest = Digest()
        self._acknowledged = 0
        self._failed = 0
        self._first_failure = ""
        self._first_code = 0

    @property
    def first_code(self) -> int:
        """Kafka's number for why the first of the rows was not delivered that were not; else 0."""
        return self._first_code

    @property
    def failures(self) -> str:
        """A sentence about the rows that were not delivered; empty if there are none so far."""
        if not self._failed:
            return ""
        return f"{self._failed} rows were not delivered; the first: {self._first_failure}"

    @property
    def acknowledged(self) -> int:
        """Rows of which the broker has said at which offset they are."""
        return self._acknowledged

    def send(self, batch: pa.RecordBatch) -> None:
        """Hand all rows to the producer, waiting while its queue is full.

        Raises SinkError for a row that cannot be sent as it is (null topic, a partition that does
        not exist, a record larger than allowed), WriteFailed when earlier rows were not delivered,
        EnvironmentRefused when they may not be written.
        """
        rows = batch_rows(batch, self._default_topic, self._kept)
        for topic, partition, key, value, headers in rows:
            self._produce(topic, partition, key, value, headers)
            self.digest.add(topic.encode(), partition, key, value, headers)
            self.rows += 1
            self.size += len(key or b"") + len(value or b"")
            if self.rows % _POLL_EVERY == 0:
                self._poll(0)
        self._poll(0)

    def flush(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until every row is delivered; raises WriteFailed if not,
        EnvironmentRefused if rows may not be written."""
        self._producer.flush(timeout)
        self._raise_failures()
        if left := self.rows - self.acknowledged:
            raise WriteFailed(f"{left} of {self.rows} rows got no answer within {timeout:g} s.")

    def _produce(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[bytes, bytes | None]],
    ) -> None:
        from confluent_kafka import KafkaError, KafkaException

        if any(b"\0" in name for name, _ in headers):  # confluent-kafka ends the name there
            raise SinkError(
                "The 'headers' column holds a header whose key contains a zero byte, which rows "
                "that are sent one by one cannot keep. Take it out of the key."
            )
        named = [(name.decode(), content) for name, content in headers] or None
        while True:
            try:
                self._producer.produce(
                    topic, value, key, partition, on_delivery=self._delivered, headers=named
                )
                return
            except BufferError:
                if not len(self._producer):  # nothing will make room
                    code = KafkaError._QUEUE_FULL
                    raise refusal(code, topic, partition, self.rows, headers) from None
                self._poll(_POLL_S)
            except KafkaException as refused:
                code = refused.args[0].code()
                raise refusal(code, topic, partition, self.rows, headers) from refused

    def _delivered(self, error: Any, message: Any) -> None:
        from confluent_kafka import KafkaError

        if error is None and landed_at(message) < 0:
            error = KafkaError(KafkaError.DUPLICATE_SEQUENCE_NUMBER)
        if error is None:
            self._acknowledged += 1
            return
        if not self._failed:
            where = place(message.topic(), message.partition())
            self._first_failure = failure(where, error.code(), error.str())
            self._first_code = error.code()
        self._failed += 1

    def _poll(self, seconds: float) -> None:
        from confluent_kafka import KafkaException

        try:
            reporting(self._producer, self._producer.poll, seconds)
        except KafkaException as fatal:
            why = fatal.args[0].str()
            raise WriteFailed(f"Row {self.rows} and those after it were not sent: {why}.") from None
        self._raise_failures()

    def _raise_failures(self) -> None:
        if not self.goes_on and (failures := self.failures):
            raise not_written(f"{failures}.", self.first_code)


def batch_rows(
    batch: pa.RecordBatch, default_topic: str | None, kept: Collection[str] = ()
) -> Iterable[tuple[str, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]]:
    """The rows as (topic, partition, key, value, headers). Raises SinkError before the first."""
    columns = {
        name: batch.column(index).to_pylist()
        for index, name in enumerate(batch.schema.names)
        if name in ("key", "value", "topic", "partition", "headers")
    }
    if "value" not in columns:
        raise SinkError("Required attribute 'value' not found.")
    nothing = [None] * batch.num_rows
    topics = [default_topic] * batch.num_rows if default_topic else columns.get("topic", nothing)
    partitions = columns.get("partition", nothing)
    check(None in topics, any(p is not None and p < 0 for p in partitions))
    if not default_topic:
        check_topics(set(topics), kept)
    rows = zip(
        topics,
        partitions,
        columns.get("key", nothing),
        columns["value"],
        columns.get("headers", nothing),
        strict=True,
    )
    for topic, partition, key, value, headers in rows:
        chosen = -1 if partition is None else partition
        yield (
            str(topic),
            chosen,
            _bytes(key),
            _bytes(value),
            [_header(pair) for pair in headers or ()],
        )


def check(null_topic: bool, negative_partition: bool) -> None:
    """What no row may have, told apart from the rest of the batch. Raises SinkError."""
    if null_topic:
        raise SinkError(
            "null topic present in the data. Use the topic option for setting a default topic."
        )
    if negative_partition:
        raise SinkError(
            "The 'partition' column holds a negative number; leave it null to let the partitioner "
            "choose."
        )


def check_topics(names: Iterable[str], kept: Collection[str]) -> None:
    """Whoever chooses a row's topic must not reach what a job's guarantee is kept in: `kept`, the
    sink's own topics, or any with a name of eo-kafka's or Kafka's. Raises SinkError."""
    for topic in names:
        if is_internal(topic) or topic in kept:
            raise SinkError(
                f"A row names topic '{cut(topic)}' in column 'topic': there Kafka or eo-kafka "
                "keeps its own books, which rows could forge. The row was not written. Filter such "
                "rows, or give them another topic."
            )


def null_header() -> SinkError:
    """The error for a header without a name."""
    return SinkError("The 'headers' column holds a header whose key is null; Kafka has no such.")


def refusal(
    code: int,
    topic: str,
    partition: int,
    row: int,
    headers: Iterable[tuple[bytes, bytes | None]] = (),
) -> SinkError | EnvironmentRefused:
    """The error for a row that the client itself refuses."""
    from confluent_kafka import KafkaError

    where = place(topic, partition)
    reason = KafkaError(code).str()
    advice = ""
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        advice = " Raise 'kafka.message.max.bytes', and the topic's 'max.message.bytes' with it."
    elif code == KafkaError._QUEUE_FULL:  # though it is empty
        advice = " It is larger than the queue: raise 'kafka.queue.buffering.max.kbytes'."
    elif code == KafkaError._UNKNOWN_PARTITION:
        advice = (
            " The topic has no such partition. It is what the row's column 'partition' says, as in "
            "a copy of all of a source's columns: without that column the key decides."
        )
    elif code in (KafkaError._STATE, KafkaError._FATAL):  # of an earlier row's failure
        return WriteFailed(f"Row {row} and those after it were not sent to {where}.")
    elif _is_no_topic(code) or is_denied(code):  # the client knows it before a delivery report
        return not_written(f"Row {row} was not delivered {failure(where, code, reason)}.", code)
    letter = f", the dead letter of {cut(of)}," if (of := origin(headers)) else ""
    return SinkError(f"Row {row} of the task{letter} cannot be sent to {where}: {reason}.{advice}")


def _is_no_topic(code: int) -> bool:
    from confluent_kafka import KafkaError

    return code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)


def is_denied(code: int) -> bool:
    """Whether the principal lacks a right on the topic."""
    from confluent_kafka import KafkaError

    return bool(code == KafkaError.TOPIC_AUTHORIZATION_FAILED)


def _is_invalid(code: int) -> bool:
    from confluent_kafka import KafkaError

    return code in (KafkaError.INVALID_RECORD, KafkaError._INVALID_DIFFERENT_RECORD)


def not_written(sentence: str, code: int) -> SinkError | EnvironmentRefused:
    """The error for rows that were not delivered: a right comes by no other start, nor does a
    topic take what it has refused."""
    if is_denied(code):
        return EnvironmentRefused(sentence)
    return SinkError(sentence) if _is_invalid(code) else WriteFailed(sentence)


def place(topic: str, partition: int | None) -> str:
    """Where a row was to go, for errors; None, or below 0: no partition is chosen yet."""
    is_chosen = partition is not None and partition >= 0
    return f"partition {partition} of {topic}" if is_chosen else topic


def failure(where: str, code: int, reason: str) -> str:
    """The sentence for a row that was not delivered."""
    from confluent_kafka import KafkaError

    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        reason += " (the row, or the batch of rows it was sent in, is larger than the topic's "
        reason += "'max.message.bytes': raise that, or set 'kafka.batch.size' below it)"
    if is_denied(code):
        reason += " (the principal needs Write and Describe on the topic)"
    if _is_no_topic(code):
        reason += " (a write creates no topic: create it)"
    if _is_invalid(code):
        reason += (
            " (a topic whose 'cleanup.policy' is compact takes no row whose key is null: give "
        )
        reason += "each row a key, or write to a topic with another policy)"
    if code == KafkaError.DUPLICATE_SEQUENCE_NUMBER:
        reason += " (reported as delivered, but without an offset: it is not in the log)"
    return f"to {where}: {reason}"


def _bytes(field: str | bytes | None) -> bytes | None:
    return field.encode() if isinstance(field, str) else field


def _header(pair: dict[str, Any] | None) -> tuple[bytes, bytes | None]:
    if pair is None or pair["key"] is None:
        raise null_header()
    return pair["key"].encode(), _bytes(pair["value"])
