"""A librdkafka producer that holds a transactional id."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...core.patience import Wait
from ...core.process.kept import Kept
from . import config as kafka_config
from . import outages
from .config import contact, quick_connect
from .fenced import is_fencing

log = logging.getLogger(__name__)

INIT_TIMEOUT_S = 60.0
# Without a connection that is up, InitProducerId is put off by half a second; so one waits for it,
# but not for ever: what is wrong with the cluster, InitProducerId says better.
CONNECT_TIMEOUT_S = 2.0
_TRIAL_S = 10.0
# What librdkafka goes on trying after, and may hear something else: silence, a refused login, no
# coordinator, or one that waits for partitions of the id's last transaction.
_NOT_NOW = {
    *("_TIMED_OUT", "_TRANSPORT", "_AUTHENTICATION", "CONCURRENT_TRANSACTIONS"),
    *outages.NO_COORDINATOR,
}
MESSAGE_TIMEOUT_MAX_MS = 900_000
_ROOM_POLL_S = 0.05
_OF_ROWS = {"queue.buffering.max.kbytes", "queue.buffering.max.messages", "batch.size"}
_TIMEOUTS = {"message.timeout.ms", "delivery.timeout.ms", "socket.timeout.ms"}
_ANY_TOPIC = "__transaction_state"  # not all topics: there may be thousands


# Connected, and no more: they hold no id, so one that is never used, or used late, hurts nobody.
_ahead: Kept[Any] = Kept(limit=4)
_allowed_ms: dict[str, int] = {}  # contact -> for how long brokers let a transaction be open
_LEAST_MS = 2000  # librdkafka takes no timeout below a second


def open_ahead(
    settings: Mapping[str, Any], transactional_id: str, timeout_ms: int, topic: str | None = None
) -> None:
    """Let a producer connect for the next `take_own` with the same arguments in this process. It
    takes no id and fences nobody before that. Raises KafkaException for settings that are refused.
    """
    ours_ms = _own_timeout_ms(settings, timeout_ms)
    config = _config(for_own_records(settings, ours_ms), transactional_id, ours_ms)
    producer = kafka_config.producer(config)
    _ahead.put(config, producer)
    # A producer that is asked nothing learns the brokers' names, and connects to none of them.
    asks = threading.Thread(target=_wait_connected, args=(producer, topic or _ANY_TOPIC))
    asks.daemon = True  # nobody waits for it; who takes the producer asks again
    asks.start()


def take(
    settings: Mapping[str, Any],
    transactional_id: str,
    timeout_ms: int,
    before: Callable[[], None] = lambda: None,
    topic: str | None = None,
) -> Any:
    """A producer after InitProducerId: earlier holders of the id are fenced, their transaction is
    aborted. `before` is called right before that. `topic` is one that it may describe. Raises
    KafkaException.

    Never one that was taken before: a (producer id, epoch) must not cover two transactions.
    Dropping the producer leaves an open transaction open; its `close()` would abort it.
    """
    from confluent_kafka import KafkaException

    config = _config(settings, transactional_id, timeout_ms)
    producer = _ahead.take(config) or kafka_config.producer(config)
    _wait_connected(producer, topic or _ANY_TOPIC)
    before()
    wait = Wait(contact(settings), INIT_TIMEOUT_S)
    while True:
        try:
            producer.init_transactions(_TRIAL_S)
            return producer
        except KafkaException as failed:
            producer.poll(0)  # lets it tell `outages` of a login that is refused
            error, login = failed.args[0], outages.refused_login()
            problem = f"Kafka gives no producer id for '{transactional_id}': {error.str()}.{login}"
            # A call that is over goes on in the next one
            if error.name() not in _NOT_NOW or not wait.goes_on(not login, problem):
                raise


def take_own(
    settings: Mapping[str, Any], transactional_id: str, timeout_ms: int, topic: str | None = None
) -> Any:
    """`take`, for short transactions of ours: where brokers allow less than `timeout_ms`, for less.
    Such a one that takes longer Kafka aborts sooner, and who wrote it is told and asks again."""
    from confluent_kafka import KafkaError, KafkaException

    while True:
        ours_ms = _own_timeout_ms(settings, timeout_ms)
        ours = for_own_records(settings, ours_ms)
        try:
            return take(ours, transactional_id, ours_ms, topic=topic)
        except KafkaException as error:
            is_too_long = error.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
            if not is_too_long or ours_ms < _LEAST_MS:
                raise
        allow(settings, (ours_ms + 1) // 2)  # by how much it is too long, Kafka does not say
        log.warning(
            "The brokers' transaction.max.timeout.ms is below the %g s that eo-kafka asks for to "
            "write records of its own. It goes on with half of that: what librdkafka calls a fatal "
            "error here is none.",
            ours_ms / 1000,
        )


def allow(settings: Mapping[str, Any], timeout_ms: int) -> None:
    """From here on, transactions of ours are open for no longer than that on these brokers."""
    _allowed_ms[contact(settings)] = timeout_ms


def _own_timeout_ms(settings: Mapping[str, Any], wanted_ms: int) -> int:
    allowed_ms = _allowed_ms.get(contact(settings), wanted_ms + 1)
    # Odd stays odd, and even even: the ledger's tell by it what they were taken for. Who is told of
    # an odd one asks for the next even one: that must be allowed, too.
    return min(wanted_ms, allowed_ms - allowed_ms % 2 - wanted_ms % 2)


def for_own_records(settings: Mapping[str, Any], timeout_ms: int) -> dict[str, Any]:
    """The user's settings, for a short transaction of ours. What they say of rows does not fit it:
    librdkafka refuses a timeout above the transaction's, a queue may be smaller than a record of
    the ledger, and a batch of records larger than our topics take."""
    ours = {name: value for name, value in settings.items() if name not in _OF_ROWS}
    for name in _TIMEOUTS & ours.keys():
        ours[name] = str(min(int(ours[name]), timeout_ms))
    return ours


def _config(settings: Mapping[str, Any], transactional_id: str, timeout_ms: int) -> dict[str, Any]:
    return {
        **quick_connect(settings),
        "log.connection.close": "false",  # of one that waits: it connects again when it is used
        # By default librdkafka tries to send a row for as long as the transaction may be open.
        "message.timeout.ms": str(min(timeout_ms, MESSAGE_TIMEOUT_MAX_MS)),
        **settings,
        "transactional.id": transactional_id,
        "transaction.timeout.ms": str(timeout_ms),
        "enable.idempotence": "true",
        "acks": "all",
    }


def _wait_connected(producer: Any, topic: str) -> None:
    """Wait for a connection that lasts. The first one ends as soon as it has told the brokers'
    names, and answers with no broker's number."""
    from confluent_kafka import KafkaException

    deadline = time.monotonic() + CONNECT_TIMEOUT_S
    while (left := deadline - time.monotonic()) > 0:
        try:
            if producer.list_topics(topic, timeout=left).orig_broker_id >= 0:
                return
        except KafkaException:
            return


def transaction_failure(producer: Any) -> Any:
    """The KafkaError that the open transaction failed of, None if it goes on, or there can be none.
    Beginning another one is refused with that error, and changes nothing; what else is called may
    only say "erroneous state"."""
    from confluent_kafka import KafkaError, KafkaException

    try:
        producer.begin_transaction()
    except KafkaException as refused:
        if refused.args[0].code() not in (KafkaError._STATE, KafkaError._NOT_CONFIGURED):
            return refused.args[0]
    return None


def reported_failure(producer: Any) -> Any:
    """The same, after a look at the delivery reports that are there."""
    from confluent_kafka import KafkaException

    with suppress(KafkaException):
        reporting(producer, producer.poll, 0)
    return transaction_failure(producer)


def send(
    producer: Any,
    topic: str,
    record: tuple[bytes | None, bytes | None],
    partition: int,
    on_delivery: Callable[[Any, Any], None],
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> None:
    """Write a record (key, value) in the open transaction, as soon as the queue has room for it.
    Raises KafkaException; of a transaction that has failed already, with what it failed of."""
    from confluent_kafka import KafkaError, KafkaException

    key, value = record
    while True:
        try:
            producer.produce(
                topic, value, key, partition, on_delivery=on_delivery, headers=list(headers) or None
            )
            return
        except BufferError:
            if not len(producer):  # nothing will make room
                raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from None
            reporting(producer, producer.poll, _ROOM_POLL_S)
        except KafkaException as error:
            raise KafkaException(transaction_failure(producer) or error.args[0]) from None


def flush(producer: Any, timeout_s: float) -> int:
    """Wait until every record is delivered or refused; how many are not, after `timeout_s`. Raises
    KafkaException after a fatal error: that its id was taken, for one."""
    return int(reporting(producer, producer.flush, timeout_s))


def reporting(producer: Any, call: Callable[[float], Any], timeout_s: float) -> Any:
    """What `call` returns, a method of the producer that looks at delivery reports: it polls,
    flushes, or ends the transaction. Raises KafkaException after a fatal error, too.

    confluent-kafka 2.x then goes on to call those who wait for reports, with its exception pending.
    That gets lost, or what comes out is a bare KafkaError: no exception to Python, which lets
    nothing but a bare `except` stop it, so it would end the worker.
    """
    from confluent_kafka import KafkaException

    try:
        return call(timeout_s)
    except KafkaException:
        raise
    except:  # noqa: E722
        if (failed := transaction_failure(producer)) is None:
            raise
    raise KafkaException(failed)


def commit(producer: Any, timeout_s: float) -> None:
    """Commit the open transaction. Raises KafkaException."""
    reporting(producer, producer.commit_transaction, timeout_s)


def abort(producer: Any, timeout_s: float) -> None:
    """Abort the open transaction, if it is not ended. Raises KafkaException."""
    from confluent_kafka import KafkaException

    try:
        reporting(producer, producer.abort_transaction, timeout_s)
    except KafkaException as error:
        if not is_fencing(error.args[0]):
            raise


def landed_at(message: Any) -> int:
    """The offset of a record that is reported as delivered; -1 if it is not in the log. An
    idempotent producer's batch that is sent again after a later one was taken is answered
    "duplicate sequence", which librdkafka 2.16 reports as delivered: the first record of the batch
    without an offset, the others with invented ones. So one -1 makes all of them doubtful."""
    offset = message.offset()
    return -1 if offset is None or offset < 0 else int(offset)
