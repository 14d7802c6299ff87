"""A wrong address is told soon, an outage never: by sockets in the place of brokers."""

from __future__ import annotations

import socket
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eo_kafka.clients.kafka import first_contact, outages
from eo_kafka.clients.kafka.cluster import connect, is_refusal
from eo_kafka.clients.kafka.first_contact import nobody_listens
from eo_kafka.clients.kafka.outages import connection_problem
from eo_kafka.core.process import driver_directory
from eo_kafka.errors import EnvironmentRefused, ReadTimeout
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import preflight
from eo_kafka.sinks.transactions.not_prepared import not_opened
from eo_kafka.sinks.transactions.task_transaction import TaskTransaction
from eo_kafka.sources.lookup import OffsetLookup
from eo_kafka.sources.settings.options import SourceOptions
from eo_kafka.tools.cli import main

NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_directory, "_seen", set())


@pytest.fixture
def there() -> socket.socket:
    made = socket.create_server(("127.0.0.1", 0))
    with made:
        yield made


def address(of: socket.socket) -> str:
    return f"127.0.0.1:{of.getsockname()[1]}"


def test_each_address_is_told_with_what_is_wrong_with_it() -> None:
    started = time.monotonic()
    said = nobody_listens(f"sasl_ssl://{NOWHERE}, no-such-host.invalid", within_s=0.5)
    assert time.monotonic() - started < 5
    assert said is not None
    assert f"listens at {NOWHERE} (Connection refused), no-such-host.invalid:9092 (" in said


def test_it_takes_a_few_seconds_where_all_look_for_kafka_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(first_contact, "PATIENCE_S", 1.0)
    given = {"kafka.bootstrap.servers": NOWHERE, "subscribe": "t"}
    started = time.monotonic()
    with pytest.raises(EnvironmentRefused, match=f"No Kafka broker listens at {NOWHERE} ") as told:
        connect({"bootstrap.servers": NOWHERE}, 30)
    assert told.value.retriable, "Kafka may be down: 'eo-kafka run' starts the job again"
    with pytest.raises(ReadTimeout, match=f"No Kafka broker listens at {NOWHERE} "):
        OffsetLookup(SourceOptions.parse(given, streaming=True)).partitions()
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    "command",
    [
        *("txn list", "topic list", "job show counts", "snapshots list counts"),
        *("verify --input orders --output counts", "doctor"),
    ],
)
def test_each_command_tells_it_soon(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(first_contact, "PATIENCE_S", 1.0)
    started = time.monotonic()
    assert main([*command.split(), "--bootstrap-servers", NOWHERE]) == 1
    assert time.monotonic() - started < 10
    said = capsys.readouterr()
    assert f"No Kafka broker listens at {NOWHERE} " in " ".join(f"{said.out} {said.err}".split())


def test_one_that_listens_is_enough(there: socket.socket) -> None:
    started = time.monotonic()
    assert nobody_listens(f"{NOWHERE},{address(there)}") is None
    assert time.monotonic() - started < first_contact.PATIENCE_S


def test_one_that_takes_connections_and_is_silent_is_an_outage(there: socket.socket) -> None:
    with pytest.raises(EnvironmentRefused, match="answered within 1 s") as told:
        connect({"bootstrap.servers": address(there)}, 1)
    assert told.value.retriable


@pytest.mark.parametrize(
    ("code", "is_outage"),
    [
        (KafkaError._TIMED_OUT, True),
        (KafkaError._TRANSPORT, True),
        (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, False),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, False),
    ],
)
def test_a_transaction_that_cannot_be_opened_while_brokers_are_away_is_an_outage(
    code: int, is_outage: bool
) -> None:
    def take_id() -> None:
        raise KafkaException(KafkaError(code))

    options = SimpleNamespace(
        prefix="eo-kafka", transaction_timeout_ms=60_000, topic="out", ledger_topic=None
    )
    task = SimpleNamespace(_options=options, _take_id=take_id, _who="Task 1", _id="eo-kafka.1")
    task.identity = None
    with pytest.raises(EnvironmentRefused, match="no transaction could be opened") as told:
        TaskTransaction._open(task)  # type: ignore[arg-type]
    assert told.value.retriable is is_outage
    assert ("The principal needs Write" in str(told.value)) is not is_outage
    assert ("Is Kafka up" in str(told.value)) is is_outage


def test_a_transaction_that_is_not_opened_for_a_refused_login_is_for_a_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outages, "_refused", deque(maxlen=1))
    outages.told(KafkaError(KafkaError._AUTHENTICATION, "b:1/1: wrong password"))
    options = SinkOptions.parse({"kafka.bootstrap.servers": NOWHERE, "topic": "t"}, streaming=False)
    error = not_opened("Task 1", "eo-kafka.1", options, KafkaError(KafkaError._TIMED_OUT))
    assert not error.retriable
    assert "b:1/1: wrong password. Nothing was written. Correct the 'kafka.*' set" in str(error)


def test_what_brokers_allow_is_not_known_in_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them is away and the others do not know it yet: nobody is to grant anything."""
    away, denied = (
        KafkaException(KafkaError(code))
        for code in (KafkaError._TRANSPORT, KafkaError.CLUSTER_AUTHORIZATION_FAILED)
    )
    answers: list[Exception] = [away, FutureTimeout(), denied]

    def describe(resources: list[Any], **_: Any) -> dict[Any, Any]:
        future: Future[Any] = Future()
        future.set_exception(answers.pop(0))
        return {resources[0]: future}

    told = SimpleNamespace(brokers={1: None})
    admin = SimpleNamespace(list_topics=lambda **_: told, describe_configs=describe)
    monkeypatch.setattr(preflight, "connect", lambda *_: (admin, 1))
    monkeypatch.setattr(preflight, "TIMEOUT_S", 0.0)  # asked once
    given = {"kafka.bootstrap.servers": NOWHERE, "topic": "t", "jobName": "j"}
    options = SinkOptions.parse({**given, "transactionTimeout": "max"}, streaming=True)
    for is_outage in (True, True, False):
        with pytest.raises(EnvironmentRefused) as refused:
            preflight.with_allowed_timeout(options)
        assert refused.value.retriable is is_outage, refused.value


def test_one_that_comes_up_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    before = socket.create_server(("127.0.0.1", 0))
    servers, port = address(before), before.getsockname()[1]
    before.close()
    problems: list[str | None] = []
    after: list[socket.socket] = []

    def comes_up_after_the_first(host: str, of: int, timeout_s: float) -> str | None:
        problems.append(connection_problem(host, of, timeout_s))
        if not after:
            after.append(socket.create_server(("127.0.0.1", port)))
        return problems[-1]

    monkeypatch.setattr(first_contact, "connection_problem", comes_up_after_the_first)
    assert nobody_listens(servers) is None
    assert problems == ["Connection refused", None]
    after[0].close()


def test_once_seen_its_absence_is_an_outage_for_all_processes_of_the_driver(
    there: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = address(there)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    monkeypatch.setattr(driver_directory, "is_sparks", lambda: True)
    assert nobody_listens(servers) is None
    there.close()
    assert nobody_listens(servers) is None
    monkeypatch.setattr(driver_directory, "_seen", set())  # as in another process
    assert nobody_listens(servers) is None
    monkeypatch.setattr(driver_directory, "is_sparks", lambda: False)  # as in another program
    assert nobody_listens(servers, within_s=0.5) is not None


def test_a_port_that_none_can_have_is_told_whatever_listens_at_its_lower_16_bits(
    there: socket.socket,
) -> None:
    above = there.getsockname()[1] + 2**16  # what the C library's lookup makes `there`'s port of
    said = nobody_listens(f"127.0.0.1:{above}", within_s=0.5)
    assert said is not None
    assert f"listens at 127.0.0.1:{above} (no port is above 65535)" in said


@pytest.mark.parametrize("servers", [" , ", "::1", "2001:db8::5", "127.0.0.1:1/", "127.0.0.1:"])
def test_what_is_not_understood_is_left_to_the_client(servers: str) -> None:
    assert nobody_listens(f"{NOWHERE},{servers}" if servers.strip(" ,") else servers) is None


def test_an_address_in_brackets_is_understood() -> None:
    said = nobody_listens("ssl://[::1]:1", within_s=0.5)
    assert said is not None
    assert "listens at ::1:1 (" in said


def test_who_is_silent_may_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first name server that is down, an address behind a firewall: clients take 30 s for it."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as busy, ExitStack() as waiting:
        for _ in range(4):  # more than its backlog holds: further connections wait
            one = waiting.enter_context(closing(socket.socket()))
            one.setblocking(False)
            with suppress(BlockingIOError):
                one.connect(busy.getsockname())
        assert nobody_listens(f"{NOWHERE},{address(busy)}", within_s=0.5) is None
    monkeypatch.setattr(first_contact, "connection_problem", lambda *_: time.sleep(2))
    assert nobody_listens("slow-name.invalid", within_s=0.5) is None


@pytest.mark.parametrize(
    ("said", "refused"),
    [
        # from real brokers, on Java 17 and on Java 25
        ("error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42", True),
        (
            "error:0A00045C:SSL routines::tlsv13 alert certificate required: SSL alert number 116",
            True,
        ),
        ("Disconnected", False),
    ],
)
def test_a_client_without_a_certificate_is_told_at_once(said: str, refused: bool) -> None:
    assert (
        is_refusal(KafkaError(KafkaError._TRANSPORT, f"ssl://a:1: Receive failed: {said}"))
        is refused
    )


def test_a_connection_that_is_lost_in_a_login_is_no_refusal() -> None:
    said = "SASL OAUTHBEARER mechanism handshake failed: {}: broker's supported mechanisms: {}"
    for why, mechanisms, refused in [
        ("Local: Broker transport failure", "(n/a) (after 0ms in state DOWN)", False),
        ("Broker: Unsupported SASL mechanism", "PLAIN", True),
    ]:
        error = KafkaError(KafkaError._AUTHENTICATION, said.format(why, mechanisms))
        assert is_refusal(error) is refused
