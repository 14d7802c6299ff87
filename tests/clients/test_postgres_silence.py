"""Hosts of PostgreSQL that go away, or take what is said to them and answer nothing."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest
from pyspark import TaskContext

from eo_kafka.clients.postgres import client
from eo_kafka.clients.postgres.client import PostgresSettings, connected
from eo_kafka.core.options import OptionReader
from eo_kafka.core.patience import served
from eo_kafka.core.process import driver_directory
from eo_kafka.errors import ReadTimeout


def refusal(state: str, words: str) -> bytes:
    """In the server's language, the severity too."""
    fields = {"S": "SCHWERWIEGEND", "V": "FATAL", "C": state, "M": words}
    body = b"".join(f"{name}{value}\0".encode() for name, value in fields.items())
    return message(b"E", body + b"\0")


def message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


READY = message(b"Z", b"I")
KNOWN = {"server_version": "17.5", "client_encoding": "UTF8", "standard_conforming_strings": "on",
         "default_transaction_read_only": "off", "in_hot_standby": "off"}  # fmt: skip


def login(**known: str) -> bytes:
    return b"".join(
        [
            message(b"R", bytes(4)),
            *(message(b"S", f"{name}\0{value}\0".encode()) for name, value in known.items()),
            message(b"K", struct.pack("!II", 1, 2)),
            READY,
        ]
    )


LOGIN = login(**KNOWN)
READ_ONLY = login(**{**KNOWN, "in_hot_standby": "on"})
IS_READ_ONLY = b"".join(
    [
        message(b"T", struct.pack("!H", 1) + b"r\0" + struct.pack("!IHIhih", 0, 0, 25, -1, -1, 0)),
        message(b"D", struct.pack("!Hi", 1, 2) + b"on"),
        message(b"C", b"SHOW\0"),
        READY,
    ]
)


class Host:
    """As much of a server as a connection needs. `mute`: it answers that no more."""

    def __init__(self, listener: socket.socket) -> None:
        self.mute: Callable[[bytes], bool] = lambda query: False
        self.login = LOGIN
        self.heard: list[bytes] = []
        self._listener = listener
        self.port = listener.getsockname()[1]
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                talk = self._listener.accept()[0]
                threading.Thread(target=self._serve, args=(talk,), daemon=True).start()

    def _serve(self, talk: socket.socket) -> None:
        with talk, talk.makefile("rb") as said, suppress(OSError, struct.error):
            while True:
                body = said.read(struct.unpack("!I", said.read(4))[0] - 4)
                if struct.unpack("!I", body[:4])[0] not in (80877103, 80877104):
                    break
                talk.sendall(b"N")  # neither TLS nor GSS
            self._answer(talk, b"login", self.login)
            if self.login[:1] == b"E":
                return
            query = b""
            while (kind := said.read(1)) not in (b"", b"X"):
                body = said.read(struct.unpack("!I", said.read(4))[0] - 4)
                if kind in b"PQ":
                    query = body
                if kind == b"Q":
                    is_so = self.login is READ_ONLY and b"transaction_read_only" in query
                    answer = IS_READ_ONLY if is_so else message(b"C", b"SELECT 0\0") + READY
                    self._answer(talk, query, answer)
                if kind == b"S":
                    done = [b"1", b"2", b"n"]
                    self._answer(
                        talk,
                        query,
                        b"".join(map(message, done)) + message(b"C", b"SELECT 0\0") + READY,
                    )

    def _answer(self, talk: socket.socket, query: bytes, answer: bytes) -> None:
        self.heard.append(query)
        if not self.mute(query):
            talk.sendall(answer)


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Host]]:
    """Two: the second takes over from the first."""
    monkeypatch.setattr(driver_directory, "_seen", set())
    monkeypatch.setattr(client, "_SOON_S", 0.5)
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in "ab"]
        yield [Host(listener) for listener in listeners]
    client._kept.close()


def settings_of(hosts: list[Host]) -> PostgresSettings:
    places = ",".join(f"127.0.0.1:{host.port}" for host in hosts)
    url = f"postgresql://u@{places}/d?connect_timeout=2&sslmode=disable&gssencmode=disable"
    return PostgresSettings.read(OptionReader({"url": url}))


def use(settings: PostgresSettings, within_s: float = 10) -> bool:
    """Whether a connection is had."""
    done: list[bool] = []

    def work() -> None:
        with connected(settings) as connection:
            connection.execute("SELECT 5")
            done.append(True)

    works = threading.Thread(target=work, daemon=True)
    works.start()
    works.join(within_s)
    return bool(done)


@pytest.mark.skipif(sys.platform != "linux", reason="names of the kernel's")
def test_a_host_that_is_gone_is_noticed_under_a_statement(hosts: list[Host]) -> None:
    """Without it, nothing is sent for two hours while one waits for an answer."""
    with (
        connected(settings_of(hosts)) as connection,
        socket.socket(fileno=os.dup(connection.fileno())) as used,
    ):
        assert used.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        idle, between, count = (
            used.getsockopt(socket.IPPROTO_TCP, name)
            for name in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
        )
    assert idle + between * count <= 60


def test_a_kept_connection_whose_host_answers_no_more_is_given_up(hosts: list[Host]) -> None:
    settings = settings_of(hosts)
    assert use(settings)
    assert not hosts[1].heard
    hosts[0].mute = lambda query: True
    began = time.monotonic()
    assert use(settings), "the next host of the URL is asked"
    assert hosts[1].heard
    assert time.monotonic() - began < 8


def test_so_is_a_new_one_that_is_not_made_safe(hosts: list[Host]) -> None:
    settings = settings_of(hosts)
    served(settings.place)
    muted: list[bytes] = []

    def first(query: bytes) -> bool:
        """The host hangs as soon as the login is over."""
        if query == b"login" and not muted:
            return False
        muted.append(query)
        return True

    hosts[0].mute = first
    assert use(settings)
    assert b"set_config" in muted[0]
    assert hosts[1].heard


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["28P01", "53300", "57P03", "08P01"])
def test_a_server_that_refuses_now_is_asked_again(hosts: list[Host], state: str) -> None:
    """A server may say that of a role when its own LDAP is away, or for want of connections."""
    settings = settings_of(hosts[:1])
    served(settings.place)
    hosts[0].login = refusal(state, "die Anmeldung ist nicht erlaubt")
    later = threading.Timer(1.5, lambda: setattr(hosts[0], "login", LOGIN))
    later.start()
    assert use(settings)


def test_one_that_refuses_at_the_first_start_says_why(hosts: list[Host]) -> None:
    hosts[0].login = refusal("28P01", "die Anmeldung ist nicht erlaubt")
    why = r"nicht erlaubt.*refuses the role, password or database"
    with pytest.raises(ReadTimeout, match=why), connected(settings_of(hosts[:1])):
        pass


def test_a_host_of_several_that_takes_no_writes_is_waited_for(hosts: list[Host]) -> None:
    settings = settings_of(hosts)
    served(settings.place)
    hosts[0].login = READ_ONLY
    hosts[1].login = refusal("57P03", "das Datenbanksystem startet")
    later = threading.Timer(1.5, lambda: setattr(hosts[1], "login", LOGIN))
    later.start()
    assert use(settings)


def test_a_server_that_takes_no_writes_is_told_of(hosts: list[Host]) -> None:
    hosts[0].login = READ_ONLY
    with pytest.raises(ReadTimeout, match="read-only"), connected(settings_of(hosts[:1])):
        pass


def test_a_kept_connection_to_a_server_that_takes_no_writes_any_more_is_given_up(
    hosts: list[Host],
) -> None:
    settings = settings_of(hosts)
    assert use(settings)
    hosts[0].login = READ_ONLY
    assert use(settings)
    assert hosts[1].heard


# --- first contact ------------------------------------------------------------------------------


def test_a_task_that_meets_the_database_first_waits_for_it(
    hosts: list[Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the driver has planned says that the database was there: Spark's four attempts would be
    over in no time."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    settings = PostgresSettings.read(
        OptionReader({"url": f"postgresql://u@127.0.0.1:{port}/d?gssencmode=disable"})
    )
    began = time.monotonic()
    with pytest.raises(ReadTimeout), connected(settings):
        pass
    assert time.monotonic() - began < 5, "the driver may have a wrong address"

    monkeypatch.setattr(TaskContext, "_taskContext", TaskContext.__new__(TaskContext))
    opened: list[socket.socket] = []

    def open_it() -> None:
        opened.append(socket.create_server(("127.0.0.1", port)))
        Host(opened[0])

    later = threading.Timer(1.0, open_it)
    later.start()
    try:
        with connected(settings) as connection:
            connection.execute("SELECT 5")
    finally:
        later.join()
        opened[0].close()
