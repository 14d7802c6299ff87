"""Brokers that take connections and go silent, as stopped ones do, or those behind a balancer; and
brokers that are upgraded under a query."""

from __future__ import annotations

import random
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
import pytest
from fake_broker import DESCRIBE, METADATA, NEW, OLD, Broker, broker
from kafka import errors
from kafka.errors import KafkaTimeoutError, UnsupportedVersionError

from eo_kafka.clients.kafka import bootstrap, control_plane, topic_lists
from eo_kafka.clients.kafka.control_errors import is_outage
from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.core import patience
from eo_kafka.core.process import driver_directory
from eo_kafka.core.transaction import EndTxnAnswer, Identity, TransactionState
from eo_kafka.errors import EnvironmentRefused, OutcomeUnknown
from eo_kafka.sinks.options import SinkOptions
from eo_kafka.sinks.protocol import preflight
from eo_kafka.testing.processes import wait_until

COMPLETE = {**OLD, 22: 5, 24: 5, 32: 4, 66: 1}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 127.0.0.1, with its key, in one file."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    made = (
        "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=b -addext subjectAltName=IP:127.0.0.1"
    )
    command = ["openssl", *made.split(), "-keyout", str(path), "-out", f"{path}.crt"]
    subprocess.run(command, check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@pytest.fixture
def tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def settings(certificate: Path) -> dict[str, str]:
    return {"security.protocol": "SSL", "ssl.ca.location": str(certificate)}


@pytest.fixture
def served(tls: ssl.SSLContext) -> Iterator[Broker]:
    with broker(tls) as made:
        yield made


def within(seconds: float, method: Any, *args: Any) -> Any:
    """What it returns or raises; fails if it takes longer."""
    done: list[Any] = []

    def run() -> None:
        try:
            done.append(method(*args))
        except Exception as error:
            done.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert done, f"no answer in {seconds} s"
    return done[0]


def open_to(server: Broker) -> int:
    """How many connections this process keeps to it."""
    there = ("127.0.0.1", int(server.servers.rpartition(":")[2]))
    found = psutil.Process().net_connections("tcp")
    return sum(one.status == psutil.CONN_ESTABLISHED and one.raddr == there for one in found)


def test_a_server_that_completes_no_handshake_is_passed_over(
    served: Broker, tls: ssl.SSLContext, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "PATIENCE_S", 0.5)
    monkeypatch.setattr(random, "shuffle", lambda _: None)
    with broker(tls) as silent:
        silent.silent = True
        plane = within(
            10,
            ControlPlane,
            {**settings, "bootstrap.servers": f"{silent.servers},{served.servers}"},
        )
        with closing(plane):
            assert plane.describe_one("a").state is TransactionState.ONGOING


def test_a_connection_to_the_only_server_that_is_never_answered_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A balancer whose backend went just then; those after it are answered at once."""
    monkeypatch.setattr(bootstrap, "TURN_MAX_S", 0.5, raising=False)
    with broker() as one:
        one.deaf = 1
        with closing(within(5, ControlPlane, {"bootstrap.servers": one.servers})) as plane:
            assert plane.describe_one("a").state is TransactionState.ONGOING


@pytest.mark.parametrize(
    ("servers", "turns"),
    [("127.0.0.1:1", [4, 4, 4, 4]), ("127.0.0.1:1,127.0.0.1:2", [1, 2, 4, 4])],
)
def test_turns_get_no_longer_than_a_connection_needs(
    servers: str, turns: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one server hangs, the others are looked at no later than that."""
    given: list[float] = []

    def connected_to(_: object, __: object, within_s: float, ___: object) -> None:
        given.append(within_s * 1000)
        time.sleep(within_s)
        raise KafkaTimeoutError

    monkeypatch.setattr(bootstrap, "PATIENCE_S", 0.001)
    monkeypatch.setattr(bootstrap, "TURN_MAX_S", 0.004, raising=False)
    monkeypatch.setattr(bootstrap, "TIMEOUT_S", 0.5)
    monkeypatch.setattr(bootstrap, "_connected_to", connected_to)
    with pytest.raises(KafkaTimeoutError):
        bootstrap.connected({"bootstrap_servers": servers})
    assert given[:4] == turns
    assert max(given) == 4


def test_a_broker_that_falls_silent_costs_no_more_than_a_request_may(
    served: Broker, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "CONNECT_TIMEOUT_MS", 250)
    monkeypatch.setattr(control_plane, "LOOKUP_TIMEOUT_S", 2.0)
    with closing(ControlPlane({**settings, "bootstrap.servers": served.servers})) as plane:
        assert plane.describe_one("a").state is TransactionState.ONGOING
        served.silent = True
        served.hang_up()
        found = within(10, plane.describe_one, "a")
        assert isinstance(found, OutcomeUnknown)
        assert "did not answer" in str(found)
        assert open_to(served) <= 2, "those that were given up stay open"
        served.silent = False
        assert within(10, plane.describe_one, "a").state is TransactionState.ONGOING


def test_after_an_upgrade_of_the_brokers_the_new_version_is_spoken() -> None:
    ours = [Identity("a", 1, 0)]
    with broker() as one, closing(ControlPlane({"bootstrap.servers": one.servers})) as plane:
        assert (plane.end_txn_version(), plane.end(ours, True, 3)) == (3, {"a": "NONE"})
        one.versions, one.transaction_version = NEW, 2
        one.hang_up()
        wait_until(lambda: plane.end_txn_version() == 5, "the feature is seen", 10)
        assert plane.end(ours, True, 5) == {"a": "NONE"}


def test_a_version_that_a_broker_does_not_know_is_a_refusal() -> None:
    with broker() as one, closing(ControlPlane({"bootstrap.servers": one.servers})) as plane:
        found = plane.end_all([Identity("a", 1, 0)], True, 5, timeout_s=5)
    assert found == {"a": (EndTxnAnswer.REFUSED, "UNSUPPORTED_VERSION")}


def test_brokers_that_answer_nothing_are_waited_for_as_in_any_outage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They take the request, so that it is what times out, and not the connection."""
    monkeypatch.setattr(bootstrap, "REQUEST_TIMEOUT_MS", 300)
    monkeypatch.setattr(bootstrap, "CONNECT_TIMEOUT_MS", 300)
    monkeypatch.setattr(control_plane, "LOOKUP_TIMEOUT_S", 0.5)
    monkeypatch.setattr(patience, "OUTAGE_S", 3.0)
    monkeypatch.setattr(driver_directory, "_seen", set())
    with broker() as one, closing(ControlPlane({"bootstrap.servers": one.servers})) as plane:
        assert plane.describe_one("a").state is TransactionState.ONGOING
        patience.served(one.servers)
        one.silent = True
        began = time.monotonic()
        with pytest.raises(OutcomeUnknown, match="did not answer when asked to describe"):
            plane.describe_one("a")
        assert time.monotonic() - began > 2.5


def test_a_certificate_that_is_not_trusted_is_no_outage(
    served: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bootstrap, "TIMEOUT_S", 2.0)
    asked = {"bootstrap.servers": served.servers, "security.protocol": "SSL"}
    found = within(20, ControlPlane, asked)
    assert type(found) is EnvironmentRefused, "needs a person"
    assert "certificate verify failed" in str(found)


def test_what_is_waited_for_is_looked_at_also_while_others_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The address of `bootstrap.servers` is away, and the cluster behind it works."""
    monkeypatch.setattr(control_plane, "OTHERS_AFTER_S", 0.2)
    monkeypatch.setattr(patience, "OUTAGE_S", 6.0)
    monkeypatch.setattr(driver_directory, "_seen", set())
    patience.served("127.0.0.1:1")
    plane = ControlPlane.__new__(ControlPlane)
    plane._settings = {"bootstrap.servers": "127.0.0.1:1"}
    began, meanwhile = time.monotonic(), []

    def end_offset(*_: object) -> int:
        return 10 if time.monotonic() - began > 0.5 else 5

    monkeypatch.setattr(plane, "end_offset", end_offset)
    assert plane.reach(("t", 0, True), 10, 60, lambda: meanwhile.append(time.monotonic())) == 10
    assert time.monotonic() - began < 4
    assert meanwhile[-1] - began > 0.3, "what is in the way is not ended meanwhile"


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        (OLD, "InitProducerId 1, to take"),
        ({**COMPLETE, METADATA: 8}, "do not offer Metadata 10, for the ids of topics"),
        ({**COMPLETE, DESCRIBE: -1}, "DescribeTransactions 0, to see"),
        (COMPLETE, ""),
    ],
)
def test_brokers_that_lack_a_request_are_refused_before_a_ledger_is_made(
    versions: dict[int, int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    for name in ("_check_topics", "check_timeout"):
        monkeypatch.setattr(preflight, name, lambda *_: None)
    monkeypatch.setattr(preflight, "connect", lambda *_: (None, 1))
    monkeypatch.setattr(preflight.topics, "ensure", lambda *_: made.append(1))
    with broker() as one:
        one.versions = versions
        given = {"kafka.bootstrap.servers": one.servers, "topic": "t", "jobName": "j"}
        options = SinkOptions.parse(given, streaming=True)
        try:
            found = within(10, preflight.ensure, options) if said else preflight.ensure(options)
        finally:
            control_plane.forget(options.kafka)
    if said:
        assert type(found) is EnvironmentRefused
        assert said in str(found)
    assert bool(made) is not bool(said)


def test_a_request_that_a_broker_lacks_is_refused_with_a_sentence() -> None:
    with broker() as one:
        one.versions = {key: highest for key, highest in OLD.items() if key != DESCRIBE}
        with closing(ControlPlane({"bootstrap.servers": one.servers})) as plane:
            with pytest.raises(EnvironmentRefused, match="offer what is needed to describe trans"):
                plane.describe_one("a")
            # What is asked where there is another way, too
            with pytest.raises(EnvironmentRefused) as refused:
                plane.open_transactions("a", bool)
    assert isinstance(refused.value.__cause__, UnsupportedVersionError)


def test_an_answer_of_before_topics_had_ids_is_named_as_that() -> None:
    rows = [{"name": "t", "error_code": 0}]
    with pytest.raises(UnsupportedVersionError, match="ids of topics"):
        topic_lists.ids_of(rows)


@pytest.mark.parametrize(
    ("answer", "is_away"),
    [
        (errors.CoordinatorNotAvailableError, True),
        (errors.CoordinatorLoadInProgressError, True),
        (errors.NotCoordinatorError, True),
        (errors.UnknownTopicOrPartitionError, False),
    ],
)
def test_a_coordinator_that_is_not_there_is_an_outage(
    answer: type[Exception], is_away: bool
) -> None:
    error = OutcomeUnknown("servers answered it.")
    error.__cause__ = answer("a")
    assert is_outage(error) is is_away
