"""Rows sent without a transaction, by both paths, against librdkafka's own mock broker:
settings that no broker of the other tests is started for."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator

import confluent_kafka
import pyarrow as pa
import pytest
from confluent_kafka import KafkaException

from eo_kafka.clients.kafka import config, transactional_producer
from eo_kafka.core import librdkafka
from eo_kafka.core.errors import SinkError
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.rows import plain, plain_write
from eo_kafka.sinks.rows.producer_settings import producer_settings
from eo_kafka.state.ledger.appender import Appender

LARGE = b"x" * 2_000_000
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Of a broker with topic `t` of one partition."""
    assert librdkafka.available() is None
    host = confluent_kafka.Producer({"test.mock.num.brokers": 1, "log_level": 0})
    rk = librdkafka.library()
    find, call = rk.rd_kafka_handle_mock_cluster, rk.rd_kafka_mock_cluster_bootstraps
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    call.restype, call.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    cluster = find(librdkafka.raw_handle(host))
    create = rk.rd_kafka_mock_topic_create
    assert create(ctypes.c_void_p(cluster), b"t", ctypes.c_int(1), ctypes.c_int(1)) == 0
    yield call(cluster).decode()
    del host


@pytest.fixture(params=["fast", "plain"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways of sending."""
    if request.param == "plain":
        monkeypatch.setattr(librdkafka, "available", lambda: "a test says so")


def options(servers: str, guarantee: str = "at-least-once", **kafka: str) -> SinkOptions:
    settings = {f"kafka.{name.replace('_', '.')}": value for name, value in kafka.items()}
    given = {"kafka.bootstrap.servers": servers, "topic": "t", "guarantee": guarantee, **settings}
    return SinkOptions.parse(given, streaming=False)


def write(given: SinkOptions, **columns: object) -> None:
    plain_write.write(given, 0, iter([pa.record_batch(columns)]))


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("headers", [[], [{"key": "h", "value": b"1"}]])
def test_a_row_larger_than_the_queue_is_refused(servers: str, headers: list[object]) -> None:
    sizes = {"message_max_bytes": "4000000", "queue_buffering_max_kbytes": "1024"}
    with pytest.raises(SinkError, match=r"Row 1 .* raise 'kafka\.queue\.buffering\.max\.kbytes'"):
        write(
            options(servers, **sizes),
            value=pa.array([b"small", LARGE]),
            headers=pa.array([headers, headers], HEADERS),
        )


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("headers", [[], [{"key": "h", "value": b"1"}]])
@pytest.mark.parametrize("topics", [["t"] * 1000, ["t", "other"] * 500])
def test_a_row_that_is_refused_is_told_by_its_number(
    servers: str, headers: list[object], topics: list[str]
) -> None:
    """Among the rows of the task, whichever of them went out before it."""
    given = {"kafka.bootstrap.servers": servers, "guarantee": "at-least-once"}

    def rows(large: int) -> pa.RecordBatch:
        values = [LARGE if n == large else b"small" for n in range(1000)]
        columns = {"value": values, "topic": topics, "partition": pa.array([0] * 1000, pa.int32())}
        return pa.record_batch({**columns, "headers": pa.array([headers] * 1000, HEADERS)})

    batches = iter([rows(-1), rows(5)])
    with pytest.raises(SinkError, match=r"^Row 1005 of the task cannot be sent to .*too large"):
        plain_write.write(SinkOptions.parse(given, streaming=False), 0, batches)


JOB = {"topic": "t", "jobname": "j"}


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "name",
    ["delivery.timeout.ms", "message.timeout.ms", "socket.timeout.ms"],
)
def test_timeouts_for_rows_do_not_stop_the_ledger(servers: str, name: str) -> None:
    given = {"kafka.bootstrap.servers": servers, f"kafka.{name}": "120000", **JOB}
    Appender(SinkOptions.parse(given, streaming=True)).take()


@pytest.mark.timeout(60)
def test_a_record_of_ours_does_not_wait_for_ever(servers: str) -> None:
    queue = {"queue.buffering.max.kbytes": "1024", "message.max.bytes": "4000000"}
    settings = {"bootstrap.servers": servers, **queue}
    ours = transactional_producer.for_own_records(settings, 60_000)
    for given, refused in ((settings, True), (ours, False)):
        producer = config.producer(given)
        try:
            transactional_producer.send(producer, "t", (None, LARGE), 0, lambda *_: None)
            assert not refused
        except KafkaException as error:
            assert refused, error
        assert producer.flush(10) == 0


def test_batches_of_rows_may_be_larger_than_those_of_our_records() -> None:
    """A topic of ours takes 8 MiB at once, records and batches alike."""
    assert not transactional_producer.for_own_records({"batch.size": "20000000"}, 60_000)


@pytest.mark.parametrize(
    ("given", "acks"),
    [
        ({}, "1"),
        ({"request.required.acks": "all"}, None),
        ({"enable.idempotence": "true"}, None),
        ({"acks": "0"}, "0"),
    ],
)
def test_the_users_acks_stand_where_nothing_is_guaranteed(given: dict[str, str], acks: str) -> None:
    settings = producer_settings(options("b:1", "none", **given))
    assert settings.get("acks") == acks
    config.producer(settings)


def test_a_header_name_that_would_be_cut_is_refused_on_the_plain_path() -> None:
    headers = pa.array([[{"key": "h\0x", "value": b"1"}]], HEADERS)
    rows = pa.record_batch({"value": pa.array([b"v"]), "headers": headers})
    with pytest.raises(SinkError, match="zero byte"):
        plain.ArrowProducer(object(), "t").send(rows)


@pytest.mark.timeout(60)
@pytest.mark.usefixtures("path")
@pytest.mark.parametrize("given", [{"acks": "0"}, {"message.timeout.ms": "50"}])
def test_rows_that_do_not_arrive_stop_nothing_where_nothing_is_guaranteed(
    servers: str, given: dict[str, str]
) -> None:
    nobody = "127.0.0.1:1"
    chosen = options(servers if "acks" in given else nobody, "none", **given)
    rows = pa.record_batch({"value": pa.array([b"v"])})

    def slowly() -> Iterator[pa.RecordBatch]:
        for _ in range(15):
            yield rows
            time.sleep(0.1)  # librdkafka looks for late rows once a second

    plain_write.write(chosen, 0, slowly())
