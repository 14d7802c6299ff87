"""Which deliveries of a queue are repeats, poison, or new. Without a server."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import pika
import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.clients.amqp.queue import Delivery
from eo_kafka.connectors.queues.reader import checked
from eo_kafka.core.transaction import Described, Identity, TransactionState
from eo_kafka.errors import Fenced, OutcomeUnknown, ReadTimeout
from eo_kafka.sources.queues.id_window import IdWindows
from eo_kafka.sources.queues.inbox import Inbox
from eo_kafka.sources.queues.message import Headers, Message, Record, message_of
from eo_kafka.sources.queues.receiver import Receiver, _Counts

INBOX, POISON = "inbox", "inbox.poison"
OPTIONS = {
    "kafka.bootstrap.servers": "nowhere:1",
    "url": "amqp://host/shop",
    "queue": "orders",
    "inbox": INBOX,
}


def message(name: str, *, redelivered: bool = False, count: int | None = None) -> Message:
    headers = {} if count is None else {"x-delivery-count": count}
    given = pika.BasicProperties(message_id=name, headers=headers)
    return message_of(Delivery(1, b"x", "", "orders", redelivered, given), name.encode())


class Topics:
    """The inbox and the poison topic, in memory."""

    def __init__(self) -> None:
        self.memory = IdWindows((INBOX, POISON), 1000)
        self.records: dict[str, list[Record]] = {INBOX: [], POISON: []}

    def append(self, kept: Sequence[Record], poison: Sequence[Record]) -> bool:
        wanted = {INBOX: kept, POISON: poison}
        for name, records in wanted.items():
            self.records[name] += records
        self.memory.note(wanted)
        return True

    def read(
        self, name: str, begin: int, end: int
    ) -> Iterator[tuple[int, bytes, bytes | None, Headers]]:
        for offset, one in enumerate(self.records[name][begin:end], begin):
            yield offset, one.key or b"", one.value, one.headers


class Queue:
    def acknowledge(self, taken: Sequence[Message]) -> None:
        pass


def receiver(topics: Topics) -> Receiver:
    found = Receiver(checked(OPTIONS).queue)
    found._inbox, found._queue = topics, Queue()
    return found


def sizes(topics: Topics) -> tuple[int, int]:
    return len(topics.records[INBOX]), len(topics.records[POISON])


@pytest.mark.parametrize("at_once", [False, True])
def test_a_poison_message_that_is_put_back_into_the_queue_is_kept(at_once: bool) -> None:
    topics = Topics()
    taken = receiver(topics)
    again = [message("a", redelivered=True, count=15), message("a")]
    for portion in [again] if at_once else [[one] for one in again]:
        taken._keep(portion, _Counts())
    assert sizes(topics) == (1, 1)
    taken._keep([message("a"), message("a", redelivered=True, count=16)], _Counts())
    assert sizes(topics) == (1, 1)


def test_what_was_not_acknowledged_is_kept_once(caplog: pytest.LogCaptureFixture) -> None:
    topics, counts = Topics(), _Counts()
    taken = receiver(topics)
    for one in (message("a"), message("b", redelivered=True, count=15)):
        for redelivered in (one, one):
            taken._keep([redelivered], counts)
    assert sizes(topics) == (1, 1)
    with caplog.at_level(logging.WARNING):
        taken._tell(counts)
    assert f"2 messages of queue 'orders' came again and are in '{INBOX}' or '{POISON}'" in (
        caplog.text
    )


def test_a_count_that_was_copied_with_a_message_is_not_this_queues() -> None:
    """Shovels and tools that move messages take the header with them."""
    topics = Topics()
    receiver(topics)._keep([message("a", count=20)], _Counts())
    assert sizes(topics) == (1, 0)
    assert message("a", count=20).deliveries is None
    assert message("a", redelivered=True, count=20).deliveries == 20


def test_a_restart_remembers_an_id_from_where_it_was_newest() -> None:
    """As it was read back it would have been forgotten with its older record."""
    topics = Topics()
    names = ["a", *map(str, range(150)), "a"]
    topics.append([message(name).record() for name in names], [])
    memory = IdWindows((INBOX, POISON), 100)
    memory.recall({INBOX: len(names), POISON: 0}, topics.read)
    assert memory.has(message("a"), is_poison=False)
    assert memory.has(message("149"), is_poison=False)


def test_an_id_of_another_source_or_queue_is_not_the_same(caplog: pytest.LogCaptureFixture) -> None:
    """Both may be counters; what was kept by versions before says no kind, and counts."""
    topics = Topics()
    by_property, by_header = "message-id of orders", "header:order-id of orders"
    one = Delivery(1, b"x", "", "orders", False, pika.BasicProperties())
    kept = [message_of(one, b"1001", by_property), message_of(one, b"1002", by_header)]
    topics.append([*(each.record() for each in kept), message("1003").record()], [])
    for kind, known in ((by_header, ["1002", "1003"]), (by_property, ["1001", "1003"])):
        memory = IdWindows((INBOX, POISON), 100, kind)
        caplog.clear()
        memory.recall({INBOX: 3, POISON: 0}, topics.read)
        names = ("1001", "1002", "1003")
        assert [name for name in names if memory.has(message(name), is_poison=False)] == known
        (told,) = caplog.messages
        assert "1 are of another kind" in told
        assert kind in told
    fresh = IdWindows((INBOX, POISON), 100, "message-id of orders-v2")
    fresh.recall({INBOX: 3, POISON: 0}, topics.read)
    assert not fresh.has(message("1001"), is_poison=False)


class Silent:
    """A producer whose broker answers nothing, or what `error` says."""

    def __init__(self, error: int | None = None) -> None:
        self._error = error

    def begin_transaction(self) -> None:
        if self._error is not None:
            raise KafkaException(KafkaError(self._error))

    def abort_transaction(self, _: float) -> None: ...

    def produce(self, *_: object, **__: object) -> None: ...

    def flush(self, seconds: float) -> int:
        assert seconds > 60, "librdkafka itself gives up a connection after a minute"
        return 1


def silent_inbox(error: int | None = None) -> Inbox:
    made = Inbox.__new__(Inbox)
    made._control = made._mine = None  # type: ignore[assignment]
    made._options, made._producer, made.is_lost = checked(OPTIONS).queue, Silent(error), False
    made._timeout_ms = 60_000
    return made


@pytest.mark.parametrize(
    "error", [None, KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT, KafkaError._TRANSPORT]
)
def test_an_inbox_that_gets_no_answer_is_made_anew(
    error: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What became of its transaction, the next one finds out."""
    made: list[object] = []

    class Next(Topics):
        def __init__(self, options: object, memory: object) -> None:
            super().__init__()
            made.append(self)

        def try_out(self) -> None: ...

        is_lost = False

    monkeypatch.setattr("eo_kafka.sources.queues.receiver.Inbox", Next)
    monkeypatch.setattr("eo_kafka.sources.queues.receiver._PAUSE_S", 0)
    found = Receiver(checked(OPTIONS).queue)
    found._inbox = silent = silent_inbox(error)

    def received(all_there: bool, counts: _Counts) -> int:
        found.open()
        if found._inbox is silent:
            silent._write({INBOX: [Record(b"k", b"v", [])]})
        return 1

    monkeypatch.setattr(found, "_received", received)
    assert found.receive() == 1
    assert found._inbox is made[0]


@pytest.mark.parametrize(
    ("epoch", "kind"), [(4, ReadTimeout), (5, Fenced)], ids=["nobody else has it", "taken"]
)
def test_an_inbox_whose_machine_slept_is_made_anew_unless_it_was_taken(
    epoch: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka says the same of both, and a clock may have stood still."""
    monkeypatch.setattr("eo_kafka.clients.kafka.fenced._TAKES_S", 0.05)
    slept, aborted = silent_inbox(), TransactionState.COMPLETE_ABORT
    slept._mine, slept._is_heard = Identity("id", 7, 3), True
    told = Described("id", aborted, 7, epoch)
    slept._control = SimpleNamespace(describe_one=lambda _: told)  # type: ignore[assignment]
    assert isinstance(slept._explained(KafkaError(KafkaError._FENCED), 0.3), kind)
    assert slept.is_lost == (kind is ReadTimeout)


def test_an_inbox_that_is_refused_stops_the_query() -> None:
    with pytest.raises(OutcomeUnknown):
        silent_inbox(KafkaError.INVALID_TXN_STATE)._write({INBOX: []})
    with pytest.raises(Fenced):
        silent_inbox(KafkaError._FENCED)._write({INBOX: []})
