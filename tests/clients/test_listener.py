"""A listener is asked which protocol it speaks; who does not answer may be an outage. And whom one
waits for is a login, not only an address."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from confluent_kafka import KafkaException

from eo_kafka.clients.kafka import listener, transactional_producer
from eo_kafka.clients.kafka.cluster import connect
from eo_kafka.clients.kafka.config import contact
from eo_kafka.clients.kafka.listener import spoken, wrong_protocol
from eo_kafka.core import patience
from eo_kafka.core.patience import patience_s, served
from eo_kafka.core.process import driver_directory
from eo_kafka.errors import Unreachable


@contextmanager
def answering(answer: bytes) -> Iterator[int]:
    """A server that says `answer` to whatever it hears, and hangs up; its port."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client, suppress(OSError):
                        client.recv(1000)
                        client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\x02\0\0"])
def test_who_hangs_up_or_is_no_broker_has_not_answered(answer: bytes) -> None:
    with answering(answer) as port:
        assert spoken("127.0.0.1", port) == ()


def test_a_listener_that_hangs_up_may_be_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_AFTER_S", 0.1)
    with answering(b"") as port:
        settings = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SSL"}
        with pytest.raises(Unreachable, match=r"answered within 1 s \(ssl://") as told:
            connect(settings, 1)
    assert told.value.retriable


def test_one_server_that_fits_is_enough() -> None:
    wants_login = b"\0\0\0\x0aeoka\0\x21\0\0\0\0"
    with answering(wants_login) as port, answering(b"") as other:
        assert spoken("127.0.0.1", port) == ("SASL_PLAINTEXT",)
        settings = {"bootstrap.servers": f"127.0.0.1:{other},127.0.0.1:{port}"}
        assert f"127.0.0.1:{port} speaks SASL_PLAINTEXT" in (wrong_protocol(settings) or "")
        assert wrong_protocol({**settings, "security.protocol": "sasl_plaintext"}) is None


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda settings: connect(settings, 30), "No Kafka broker at 127.0.0.1:"),
        (
            lambda settings: transactional_producer.take(settings, "mine", 60_000),
            "Kafka gives no producer id for 'mine': ",
        ),
    ],
    ids=["connect", "take"],
)
def test_a_broker_that_is_frozen_is_told_of(
    ask: Callable[[dict[str, str]], object],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its kernel takes connections, so nothing looks like an outage."""
    monkeypatch.setattr(driver_directory, "_seen", set())
    monkeypatch.setattr(patience, "TELL_AFTER_S", 0.5)
    monkeypatch.setattr(patience, "OUTAGE_S", 2.0)
    monkeypatch.setattr(transactional_producer, "_TRIAL_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        settings = {"bootstrap.servers": f"127.0.0.1:{frozen.getsockname()[1]}"}
        served(contact(settings))
        with pytest.raises((Unreachable, KafkaException)):
            ask(settings)
    (line,) = [one.getMessage() for one in caplog.records if "asked again" in one.getMessage()]
    assert line.startswith(told)


def test_another_login_has_not_been_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_directory, "_seen", set())
    first = {"bootstrap.servers": "one:9092", "sasl.username": "a", "sasl.password": "s3cret"}
    served(contact(first))
    assert patience_s(contact({**first, "fetch.min.bytes": "7"}), 1) == patience.OUTAGE_S
    for other in ({"sasl.username": "b"}, {"security.protocol": "SSL"}):
        assert patience_s(contact({**first, **other}), 1) == 1
    assert "s3cret" not in contact(first)
