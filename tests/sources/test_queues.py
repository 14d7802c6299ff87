"""Queues without a server: options, ids, messages as records and as rows, the window."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
import re
import socket
import ssl
import struct
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pika
import pika.exceptions
import pyarrow as pa
import pyspark_eo_queue
import pytest
from confluent_kafka import KafkaError
from pika.adapters.utils.connection_workflow import (
    AMQPConnectionWorkflowFailed,
    AMQPConnectorSocketConnectError,
    AMQPConnectorStackTimeout,
)
from pika.adapters.utils.io_services_utils import _AsyncTransportBase

from eo_kafka.clients.amqp.client import explained
from eo_kafka.clients.amqp.queue import Delivery
from eo_kafka.clients.amqp.repairs import repair
from eo_kafka.clients.kafka import topics
from eo_kafka.clients.kafka.share_group import ShareGroup
from eo_kafka.connectors.queues.reader import checked, columns
from eo_kafka.core.patience import served
from eo_kafka.core.process import driver_directory
from eo_kafka.errors import EnvironmentRefused, OptionsError, ReadTimeout, SourceError
from eo_kafka.formats.shared.arrow_types import arrow_schema
from eo_kafka.sources.queues.id_window import Window
from eo_kafka.sources.queues.message import META, PART_BYTES, Record, id_of, id_source, message_of
from eo_kafka.sources.queues.rabbitmq import RabbitMQQueue
from eo_kafka.sources.queues.receiver import PORTION_BYTES, _portions
from eo_kafka.sources.queues.rows import unpacked, with_messages
from eo_kafka.sources.queues.share_group import message_of as message_of_share_group
from eo_kafka.sources.queues.unkept import stopped

SECRET = "s3cr3t-pa55"
GIVEN = {
    "kafka.bootstrap.servers": "nowhere:1",
    "url": f"amqp://me:{SECRET}@host:1234/shop",
    "queue": "orders",
    "inbox": "orders-inbox",
}


def delivery(body: bytes = b"x", redelivered: bool = False, **properties: object) -> Delivery:
    given = pika.BasicProperties(**properties)
    return Delivery(1, body, "shop", "eu.de", redelivered, given)


def record_of(one: Delivery, key: bytes) -> Record:
    return message_of(one, key).record()


def problems(**given: str) -> list[str]:
    with pytest.raises(OptionsError) as told:
        checked({**GIVEN, **given})
    assert SECRET not in str(told.value)
    return list(told.value.problems)


def test_a_body_that_is_cut_is_whole_in_its_parts() -> None:
    for size, count in ((0, 1), (PART_BYTES, 1), (PART_BYTES + 1, 2), (3 * PART_BYTES, 3)):
        body = bytes(number % 251 for number in range(size))
        parts = message_of(delivery(body, message_id="a"), b"a").parts("why")
        assert b"".join(one.value for one in parts) == body
        said = [json.loads(one.headers[0][1]) for one in parts]
        assert [one.get("part", 1) for one in said] == list(range(1, count + 1))
        assert {one["reason"] for one in said} == {"why"}


def test_all_problems_are_told_at_once() -> None:
    found = problems(
        **{
            "messageId": "digest",
            "onMissingId": "skip",
            "dedupWindow": "10",
            "prefetch": "100",
            "subscribe": "another",
            "startingOffsets": "latest",
            "kafka.isolation.level": "read_uncommitted",
            "poisonTopic": "orders-inbox",
            "user": "me",
            "maxOffsetsPerTrigger": "many",
            "value.format": "xml",
            "maxDeliverys": "3",
        }
    )
    for word in (
        *("'messageId' must", "'onMissingId' must", "'dedupWindow' (10)", "'subscribe' is not"),
        *("'startingOffsets' must", "read_committed", "different topics", "'user'"),
        *("'maxOffsetsPerTrigger' must", "'value.format'", "did you mean 'maxDeliveries'"),
    ):
        assert any(word in one for one in found), (word, found)


def test_what_must_be_given() -> None:
    with pytest.raises(OptionsError) as told:
        checked({})
    for name in ("url", "queue", "inbox", "kafka.bootstrap.servers"):
        assert any(f"'{name}' must" in one for one in told.value.problems), name


SHARED = {
    **{name: value for name, value in GIVEN.items() if name != "url"},
    "shareGroup": "billing",
}


def test_a_share_group_has_options_of_its_own() -> None:
    given = {
        "url": GIVEN["url"],
        "user": "me",
        "password": SECRET,
        "messageId": "body",
        "onMissingId": "fail",
        "dedupWindow": "1",
        "shareGroup": "g",
        "maxDeliveries": "0",
        "inbox": "orders",
        "kafka.bootstrap.servers": "nowhere:1",
        "queue": "orders",
    }
    with pytest.raises(OptionsError) as told:
        checked(given)
    assert SECRET not in str(told.value)
    for name in ("url", "user", "password", "messageId", "onMissingId", "dedupWindow"):
        sentence = f"Options '{name}' and 'shareGroup' do not go together"
        assert any(sentence in one for one in told.value.problems), name
    for word in ("'maxDeliveries' must", "must be different topics"):
        assert any(word in one for one in told.value.problems), word
    found = checked(SHARED).queue
    assert (found.share_group, found.amqp, found.max_deliveries) == ("billing", None, 4)
    assert checked({**SHARED, "maxDeliveries": "2"}).queue.max_deliveries == 2
    for name in ("orders-inbox.kept", "orders-inbox.poison"):
        with pytest.raises(OptionsError, match="must be different topics"):
            checked({**SHARED, "queue": name})
    with pytest.raises(OptionsError, match="'url' must be specified.*'shareGroup'"):
        checked({name: value for name, value in GIVEN.items() if name != "url"})


class OfShareGroup:
    """A record as confluent-kafka gives it."""

    def __init__(self, count: int | None, kind: int, sent: int = 1_700_000_000_000) -> None:
        self._count, self._kind, self._sent = count, kind, sent

    def __getattr__(self, name: str):
        found = {
            "topic": "orders",
            "partition": 3,
            "offset": 12,
            "key": b"k",
            "value": None,
            "delivery_count": self._count,
            "headers": [("h", None)],
            "timestamp": (self._kind, self._sent),
        }[name]
        return lambda: found


def test_a_record_of_a_share_group_is_a_message_with_a_key_of_its_own() -> None:
    raw = arrow_schema(with_messages(checked(SHARED).source.schema()))
    given = [OfShareGroup(1, 1), OfShareGroup(3, 2), OfShareGroup(None, 0)]
    records = [message_of_share_group(one, "its id").record() for one in given]
    (found,) = unpacked(iter([rows_of(*records)]), raw)
    first, second, third = found.to_pylist()
    assert (first["key"], first["value"], first["messageId"]) == (b"k", None, "orders-3-12")
    assert (first["exchange"], first["routingKey"], first["redelivered"]) == (None, None, False)
    assert [one["deliveries"] for one in (first, second, third)] == [0, 2, None]
    assert second["redelivered"]
    assert first["sent"].timestamp() == 1_700_000_000
    assert third["sent"] is None
    place = {"topic": "orders", "partition": "3", "offset": "12"}
    assert dict(first["properties"]) == {**place, "timestampType": "CreateTime"}
    assert dict(third["properties"]) == place
    assert first["headers"] == [{"key": "h", "value": None}]


@pytest.mark.parametrize("sent", [1_764_000_000_000_000_000, -(2**60), 253_402_300_800_000])
def test_a_time_that_is_no_date_is_left_in_the_properties(sent: int) -> None:
    """Kafka takes any number, and whoever takes nanoseconds for milliseconds writes one."""
    raw = arrow_schema(with_messages(checked(SHARED).source.schema()))
    one = message_of_share_group(OfShareGroup(1, 1, sent), "its id")
    older = replace(one, said={**one.said, "sent": sent})  # as it stands in an inbox
    (found,) = unpacked(iter([rows_of(one.record(), older.record())]), raw)
    assert found.column("sent").to_pylist() == [None, None]
    assert dict(found.column("properties")[0].as_py())["timestamp"] == str(sent)


@pytest.mark.parametrize("sent", [-62_135_596_800_000, -1, 0, 253_402_300_799_999])
def test_any_date_is_kept(sent: int) -> None:
    raw = arrow_schema(with_messages(checked(SHARED).source.schema()))
    record = message_of_share_group(OfShareGroup(1, 1, sent), "its id").record()
    (found,) = unpacked(iter([rows_of(record)]), raw)
    assert found.column("sent")[0].value == sent * 1000


def test_a_record_that_cannot_be_read_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try is a delivery, and after some of them Kafka drops it."""
    monkeypatch.setattr("eo_kafka.clients.kafka.control_plane.shared", lambda settings: None)
    group = ShareGroup({"bootstrap.servers": "localhost:1"}, "orders", "workers", 1)
    for offset in (0, 7):
        bad = SimpleNamespace(
            error=lambda: KafkaError(KafkaError._BAD_MSG),
            partition=lambda: 3,
            offset=lambda offset=offset: offset,
        )
        told = group._unreadable(bad)
        assert isinstance(told, SourceError)
        assert f"record of orders-3 at offset {offset} cannot be read" in str(told)


@pytest.mark.parametrize(
    ("of_group", "of_brokers", "said"),
    [
        ("8", ["2"], None),
        ("7", ["10"], "has share.delivery.count.limit=7.*--alter --entity-type groups"),
        (None, ["10", "8"], None),
        (None, ["10", "5"], "has share.delivery.count.limit=5.*the brokers have group.share"),
        (None, ["10", None], None),
        (None, [None], "not known.*DescribeConfigs.*must be 8"),
    ],
)
def test_a_limit_that_only_brokers_have_is_compared_too(
    monkeypatch: pytest.MonkeyPatch, caplog, of_group, of_brokers, said
) -> None:
    """As of Kafka 4.2, whose groups have no such setting."""
    monkeypatch.setattr("eo_kafka.clients.kafka.control_plane.shared", lambda settings: None)
    found = [{"group.share.delivery.count.limit": one} if one else {} for one in of_brokers]
    monkeypatch.setattr(topics, "settings_of", lambda admin, name, kind: found[int(name)])
    admin = SimpleNamespace(brokers=range(len(found)))
    monkeypatch.setattr(topics, "metadata", lambda admin: admin)
    group = ShareGroup({}, "orders", "workers", 1)
    try:
        group._check_limit(of_group, admin, 4)
    except EnvironmentRefused as error:
        caplog.clear()
        assert said and re.search(said, str(error))
    else:
        assert bool(re.search(said or "not known", caplog.text)) == bool(said)


@pytest.mark.parametrize(
    "url",
    [
        f"http://me:{SECRET}@host/",
        f"amqp://me:{SECRET}@host:port/",
        f"amqp://me:{SECRET}@host/?unknown=1",
        f"amqp://{SECRET}@host/",
        SECRET,
    ],
)
def test_a_wrong_url_is_told_without_what_it_says(url: str) -> None:
    assert any("'url' cannot be read" in one for one in problems(url=url))


@pytest.mark.parametrize(
    "start",
    ["latest", "group:x", '{"orders-inbox":{"0":-1}}', '{"orders-inbox":"latest"}'],
)
def test_no_start_that_loses_acknowledged_messages(start: str) -> None:
    assert any("must be 'earliest'" in one for one in problems(startingOffsets=start))


def test_secrets_are_not_shown() -> None:
    options = checked(GIVEN)
    again = pickle.loads(pickle.dumps(options))
    assert SECRET not in repr(options) + str(again)
    assert again.queue.amqp.parameters().credentials.password == SECRET
    assert options.queue.amqp.place == "host:1234/shop"
    separate = {**GIVEN, "url": "amqp://host/%2F", "user": "you", "password": SECRET}
    amqp = checked(separate).queue.amqp
    assert (amqp.place, amqp.parameters().credentials.username) == ("host:5672//", "you")
    assert SECRET not in repr(amqp)


def test_tasks_get_no_password() -> None:
    source = pyspark_eo_queue.DefaultSource(GIVEN)
    pickled = pickle.dumps(source.streamReader(source.schema()))
    assert SECRET.encode() not in pickled
    assert pickle.loads(pickled)._options.subscription.topics == ("orders-inbox",)


def test_the_source_reads_the_inbox_from_its_beginning() -> None:
    source = checked({**GIVEN, "maxOffsetsPerTrigger": "5"}).source
    assert source.subscription.topics == ("orders-inbox",)
    assert (source.starting, source.max_offsets_per_trigger) == ("earliest", 5)
    assert source.include_headers
    assert source.read_committed
    offsets = '{"orders-inbox":{"0":3}}'
    assert checked({**GIVEN, "startingOffsets": offsets}).source.starting != "earliest"


def test_a_batch_is_refused() -> None:
    with pytest.raises(OptionsError, match="is a stream"):
        pyspark_eo_queue.DefaultSource(GIVEN).reader(None)


def test_what_is_an_id() -> None:
    assert id_of("message-id")(delivery(message_id="a")) == b"a"
    for none in ({}, {"message_id": ""}):
        assert id_of("message-id")(delivery(**none)) is None
    find = id_of(id_source(" Header: order "))
    for value, key in (
        (7, b"7"),
        ("é", "é".encode()),
        (b"\xff", b"\xff"),
        (True, None),
        (1.5, None),
    ):
        assert find(delivery(headers={"order": value})) == key
    assert find(delivery()) is find(delivery(headers={"order": None})) is None
    same, other = delivery(b"a", message_id="1"), delivery(b"a", message_id="2")
    assert id_of("body")(same) == id_of("body")(other) != id_of("body")(delivery(b"b"))
    for wrong in ("", "id", "header:", "header: "):
        with pytest.raises(ValueError, match="must be"):
            id_source(wrong)


def rows_of(*records) -> pa.RecordBatch:
    """As the Kafka source fetches them."""
    shape = arrow_schema(checked(GIVEN).source.schema())
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    rows = [
        {
            "key": one.key,
            "value": one.value,
            "topic": "i",
            "partition": 0,
            "offset": at,
            "timestamp": now,
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in one.headers] or None,
        }
        for at, one in enumerate(records)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=shape)


def test_a_message_comes_back_as_it_was() -> None:
    raw = with_messages(checked(GIVEN).source.schema())
    full = delivery(
        b"\x00body",
        True,
        message_id="a",
        timestamp=1_700_000_000,
        content_type="text/plain",
        headers={
            META: "not ours",
            "n": 1,
            "text": "é",
            "raw": b"\xff",
            "none": None,
            "t": {"a": [1], b"\xff": {"at": Decimal("1.5"), "none": None}},
        },
    )
    odd = delivery(b"", True, timestamp=2**60, headers={"x-delivery-count": 3}, app_id="é")
    batch = rows_of(record_of(full, b"a"), record_of(odd, b"\xff"))
    (found,) = unpacked(iter([batch]), arrow_schema(raw))
    assert found.schema == arrow_schema(raw)
    first, second = found.to_pylist()
    assert first["value"] == b"\x00body"
    assert (first["messageId"], first["exchange"], first["routingKey"]) == ("a", "shop", "eu.de")
    assert (first["redelivered"], first["deliveries"]) == (True, None)
    assert first["sent"].timestamp() == 1_700_000_000
    assert dict(first["properties"]) == {"content_type": "text/plain", "timestamp": "1700000000"}
    headers = {one["key"]: one["value"] for one in first["headers"]}
    assert headers == {
        META: b"not ours",
        "n": b"1",
        "text": "é".encode(),
        "raw": b"\xff",
        "none": None,
        "t": rb'{"a": [1], "\\xff": {"at": "1.5", "none": null}}',
    }
    assert (second["messageId"], second["sent"], second["deliveries"]) == ("\\xff", None, 3)
    assert dict(second["properties"]) == {"timestamp": str(2**60), "app_id": "é"}


def test_headers_are_read_as_they_were_sent() -> None:
    """A test of the repairs, and of how pika finds them."""
    repair()
    then = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)
    sent = {"n": 5_000_000_000, "t": then, "in": {"l": [2, -1]}, "text": "x"}
    late = b"\x04lateT" + (1_767_225_600_000).to_bytes(8, "big")  # milliseconds
    half = b"\x04halff" + struct.pack(">f", 0.5)
    pieces: list[bytes] = []
    pika.data.encode_table(pieces, sent)
    table = b"".join(pieces)[4:] + b"\x01dd" + struct.pack(">d", 1.5) + late + half
    found, end = pika.data.decode_table(len(table).to_bytes(4, "big") + table, 0)
    assert end == len(table) + 4
    assert found.pop("late") == 1_767_225_600_000
    assert (found.pop("d"), found.pop("half")) == (1.5, 0.5)
    assert found == sent
    assert id_of("header:n")(delivery(headers=found)) == b"5000000000"


def lost(cause: BaseException) -> pika.exceptions.AMQPError:
    return pika.exceptions.StreamLostError(f"Stream connection lost: {cause!r}")


@pytest.mark.parametrize(
    "cause",
    [
        ValueError("year"),
        struct.error("short"),
        pika.exceptions.InvalidFieldTypeException("?"),
        pika.exceptions.UnsupportedAMQPFieldException("?", 1),
        RecursionError("maximum recursion depth exceeded"),
        OverflowError("too large"),
        MemoryError(),
        decimal.InvalidOperation("what no version of pika has raised yet"),
        RuntimeError("connection lost: OSError(5, 'in it')"),
    ],
    ids=repr,
)
def test_what_the_client_cannot_read_is_not_an_outage(cause) -> None:
    assert type(explained(lost(cause), checked(GIVEN).queue.amqp, "orders")) is SourceError


@pytest.mark.parametrize("depth", [900, 5000])
def test_headers_that_are_nested_too_deep_are_not_an_outage(depth) -> None:
    """Each attempt would be a delivery of all that was fetched with it, and the broker drops what
    was delivered too often."""
    repair()
    table = b""
    for _ in range(depth):
        table = b"\x01aF" + struct.pack(">I", len(table)) + table
    with pytest.raises(RecursionError) as told:
        pika.data.decode_table(struct.pack(">I", len(table)) + table, 0)
    found = explained(lost(told.value), checked(GIVEN).queue.amqp, "orders")
    assert type(found) is SourceError
    assert "cannot be read by the client" in str(found)


@pytest.mark.parametrize(
    "error",
    [
        lost(ConnectionResetError(104, "Connection reset by peer")),
        lost(BrokenPipeError(32, "Broken pipe")),
        lost(TimeoutError(110, "Connection timed out")),
        lost(TimeoutError("timed out")),
        lost(PermissionError(1, "Operation not permitted")),  # a firewall that refuses
        lost(OSError(113, "No route to host")),
        lost(OSError(5, "input")),
        lost(EOFError()),
        lost(socket.gaierror(-3, "Temporary failure in name resolution")),
        lost(ssl.SSLError(1, "[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed")),
        lost(ssl.SSLEOFError(8, "EOF occurred in violation of protocol")),
        lost(ssl.SSLZeroReturnError(6, "TLS/SSL connection has been closed (EOF)")),
        lost(_AsyncTransportBase.RxEndOfFile()),  # the end of a TLS connection
        lost(pika.exceptions.ConnectionWrongStateError()),
        lost(pika.exceptions.InvalidFrameError("Unknown frame type: 72")),
        lost(pika.exceptions.UnexpectedFrameError("a body")),
        lost(pika.exceptions.AMQPHeartbeatTimeout("No activity")),
        lost(pika.exceptions.ChannelWrongStateError("Channel is closed.")),
        pika.exceptions.StreamLostError("Transport indicated EOF"),
        pika.exceptions.AMQPHeartbeatTimeout("No activity or too many missed heartbeats"),
        pika.exceptions.ConnectionClosedByBroker(320, "CONNECTION_FORCED - shut down"),
        pika.exceptions.ConnectionWrongStateError(),
        pika.exceptions.AMQPConnectionError(
            AMQPConnectionWorkflowFailed(
                [AMQPConnectorSocketConnectError(ConnectionRefusedError(111, "refused"))]
            )
        ),
        pika.exceptions.IncompatibleProtocolError(repr(lost(ConnectionResetError(104, "reset")))),
        pika.exceptions.ProbableAuthenticationError(repr(lost(ConnectionResetError(104, "reset")))),
        pika.exceptions.ProbableAccessDeniedError(
            repr(pika.exceptions.StreamLostError("Transport indicated EOF"))
        ),
        pika.exceptions.ProbableAuthenticationError(
            repr(pika.exceptions.ConnectionClosedByBroker(320, "CONNECTION_FORCED - user 'a'"))
        ),
        AMQPConnectorStackTimeout("Timeout during AMQP handshake"),
        ConnectionResetError(104, "reset"),
    ],
    ids=repr,
)
def test_whatever_ends_a_connection_is_an_outage(error) -> None:
    assert type(explained(error, checked(GIVEN).queue.amqp, "orders")) is ReadTimeout


@pytest.mark.parametrize(
    ("code", "text", "kind", "said"),
    [
        (404, "no queue 'orders' in vhost '/'", EnvironmentRefused, "has no queue"),
        (
            *(
                404,
                "home node 'b@h' of durable queue 'orders' in vhost '/' is down or inaccessible",
            ),
            *(ReadTimeout, "cannot reach queue 'orders' .*do not delete or declare"),
        ),
        (404, "queue 'orders' in vhost '/' process is stopped by supervisor", ReadTimeout, "node"),
        (404, "queue 'orders' has crashed and failed to restart", ReadTimeout, "has crashed"),
        (403, "access to queue 'orders' refused for user 'me'", EnvironmentRefused, "'read'"),
        (403, "queue 'orders' in vhost '/' in exclusive use", ReadTimeout, "Another consumer has"),
        (
            *(403, "access to queue 'orders' refused for user 'me', backend b returned an error"),
            *(ReadTimeout, "backend that says who may do what"),
        ),
    ],
)
def test_what_goes_by_itself_is_waited_for(code, text, kind, said) -> None:
    """RabbitMQ has the same code for what a person must correct."""
    error = pika.exceptions.ChannelClosedByBroker(code, text)
    found = explained(error, checked(GIVEN).queue.amqp, "orders")
    assert type(found) is kind
    assert re.search(said, str(found))


@pytest.mark.parametrize(
    ("code", "text", "kind", "said"),
    [
        (403, "Login was refused using authentication mechanism PLAIN.", EnvironmentRefused, "the"),
        (530, "access to vhost 'shop' refused for user 'me'", EnvironmentRefused, "permissions"),
        (530, "vhost my shop not found", EnvironmentRefused, "this virtual host"),
        (
            *(541, "access to vhost 'shop' refused for user 'me': vhost 'shop' is down"),
            *(ReadTimeout, "rabbitmqctl restart_vhost -p 'shop'"),
        ),
        (
            *(530, "access to vhost '/' refused for user 'me': connection limit (1) is reached"),
            *(ReadTimeout, "no more connections.*list_connections"),
        ),
        (530, "connection refused: node connection limit (9) is reached", ReadTimeout, "no more"),
        (541, "user 'me': something else", ReadTimeout, "No answer"),
        (320, "CONNECTION_FORCED - broker forced the login to end", ReadTimeout, "No answer"),
    ],
)
def test_a_refusal_is_what_rabbitmq_itself_refused(code, text, kind, said) -> None:
    """pika takes any end of a connection that is not open yet for a wrong password."""
    ended = pika.exceptions.ConnectionClosedByBroker(code, text)
    for guess in ("ProbableAuthenticationError", "ProbableAccessDeniedError"):
        error = getattr(pika.exceptions, guess)(repr(ended))
        found = explained(error, checked(GIVEN).queue.amqp, "orders")
        assert type(found) is kind
        assert re.search(said, str(found))
        assert guess not in str(found)


@pytest.mark.parametrize(
    ("code", "text", "at_first", "said"),
    [
        (403, "Login was refused using authentication mechanism PLAIN.", EnvironmentRefused, "log"),
        (530, "access to vhost 'shop' refused for user 'me'", EnvironmentRefused, "LDAP"),
        (
            *(530, "access to vhost 'shop' refused for user 'me', backend b returned an error: 5"),
            *(ReadTimeout, "backend"),
        ),
    ],
)
def test_a_login_that_was_good_before_is_waited_for(
    code, text, at_first, said, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RabbitMQ's words are the same where the backend that it asks does not answer."""
    monkeypatch.setattr(driver_directory, "_seen", set())
    ended = pika.exceptions.ConnectionClosedByBroker(code, text)
    error = pika.exceptions.ProbableAuthenticationError(repr(ended))
    amqp = checked(GIVEN).queue.amqp
    assert type(explained(error, amqp, "orders")) is at_first
    served(amqp.place)
    found = explained(error, amqp, "orders")
    assert type(found) is ReadTimeout
    assert re.search(said, str(found))


def test_what_others_have_taken_is_no_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = RabbitMQQueue(checked(GIVEN).queue.amqp, "orders", "me", "body", 15)
    counts = iter([9, 1, 1])
    monkeypatch.setattr(queue._queue, "ready", lambda: (next(counts), 1))
    monkeypatch.setattr(queue._queue, "take", lambda *_: [delivery()])
    found = []
    for is_first in (True, False, False):
        queue.ready(is_first=is_first)
        found.append(queue.waited(queue.take(1)))
    assert found == [True, True, False]


def test_what_the_client_raises_for_an_end_is_known() -> None:
    """All of pika's own errors but what it says of a field that it does not know."""
    own = {name for name, one in vars(pika.exceptions).items() if isinstance(one, type)}
    unknown = {"InvalidFieldTypeException", "UnsupportedAMQPFieldException"}
    assert unknown < own
    for name in own:
        text = f"Stream connection lost: {name}: ..."
        found = explained(
            pika.exceptions.StreamLostError(text), checked(GIVEN).queue.amqp, "orders"
        )
        assert type(found) is (SourceError if name in unknown else ReadTimeout), name


@pytest.mark.parametrize(
    "headers",
    [[], [("other", b"{}")], [(META, b"no JSON")], [(META, json.dumps({"v": 2}).encode())]],
)
def test_a_record_that_the_receiver_did_not_write_is_refused(headers) -> None:
    raw = arrow_schema(with_messages(checked(GIVEN).source.schema()))
    foreign = record_of(delivery(), b"a")
    foreign = type(foreign)(foreign.key, foreign.value, headers)
    with pytest.raises(SourceError, match="i-0 at offset 1 was not written"):
        list(unpacked(iter([rows_of(record_of(delivery(), b"a"), foreign)]), raw))


def test_a_body_may_be_typed() -> None:
    given = {**GIVEN, "value.format": "json", "value.schema": "id BIGINT"}
    made = columns(checked(given))
    assert "messageId" in str(made)
    assert "id BIGINT" in str(made)


@pytest.mark.parametrize(
    ("sizes", "needed", "ours"),
    [
        ([18 << 20], 19 << 20, False),
        ([18 << 20, 70 << 20], 64 << 20, True),
        ([70 << 20], None, True),
    ],
)
def test_a_limit_of_ours_is_not_told_as_the_topics(sizes, needed, ours) -> None:
    """Who raises the topic's as he is told must not read the same again."""
    held = [message_of(delivery(bytes(size)), b"a") for size in sizes]
    told = str(stopped(checked(GIVEN).queue, [], held, is_last=False))
    limit = re.search(r"max\.message\.bytes=(\d+)", told)
    assert (limit and int(limit[1])) == needed
    assert ("more than 64 MiB" in told) == ours
    assert "after 15 (maxDeliveries) it goes to 'orders-inbox.poison'" in told


def test_the_window_holds_the_newest_ids() -> None:
    window = Window(3)
    window.add([b"a", None, b"b"])
    assert not window.is_full
    window.add([b"c", b"d"])
    assert window.is_full
    assert [one in window for one in (b"a", b"b", b"c", b"d")] == [False, True, True, True]


def test_a_transaction_ends_before_it_is_too_large() -> None:
    small, large = (message_of(delivery(b"x" * size), b"") for size in (1, PORTION_BYTES // 2))
    assert list(_portions([])) == []
    assert [len(one) for one in _portions([small] * 3)] == [3]
    assert [len(one) for one in _portions([large] * 5)] == [2, 2, 1]
