"""Which security protocol a listener of Kafka's speaks, where a client hears nothing from it.

A client that speaks another one is only cut off, as it is by a broker that is being started. So the
listener is asked what needs no login: a SaslHandshake, whose answer says whether it wants one.
"""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping
from contextlib import suppress

from .outages import address_of

_AFTER_S = 3.0
_ANSWER_S = 2.0
_NUMBER = 0x656F6B61  # of the request, by which its answer is known
_NONE_KNOWN = b"none"
# API 17, version 1; client id and mechanism are texts with their length before them
_QUESTION = struct.pack(">hhih4sh4s", 17, 1, _NUMBER, 4, b"look", len(_NONE_KNOWN), _NONE_KNOWN)
_WANTS_LOGIN = {33: True, 34: False}  # UNSUPPORTED_SASL_MECHANISM, ILLEGAL_SASL_STATE
_DEFAULT = "PLAINTEXT"
_TLS = ("SSL", "SASL_SSL")


class Suspicion:
    """For a client that no broker has answered yet. From its making on."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._next = time.monotonic() + _AFTER_S

    def problem(self) -> str | None:
        """Sentences that say what is wrong, and what to do; None if that is not certain. Looks when
        nothing has come for a few seconds, and then every few seconds."""
        if time.monotonic() < self._next:
            return None
        found = wrong_protocol(self._settings)
        self._next = time.monotonic() + _AFTER_S
        return found


def wrong_protocol(settings: Mapping[str, str]) -> str | None:
    """As `Suspicion.problem`, now: only where no server that answers speaks the client's."""
    given = settings.get("security.protocol", _DEFAULT).strip().upper()
    told = None
    for server in settings.get("bootstrap.servers", "").split(","):
        address = address_of(server.strip())
        speaks = spoken(*address) if address else ()
        if given in speaks:
            return None
        if address and speaks:
            its = " or ".join(speaks)
            told = (
                f"The listener at {address[0]}:{address[1]} speaks {its}, and "
                f"'kafka.security.protocol' is {given}. Set it to {its}, with what that needs "
                "(docs/security.md), or give the address of another listener."
            )
    return told


def spoken(host: str, port: int) -> tuple[str, ...]:
    """The security protocol of the listener there, as its answers show it: one, two where only TLS
    is sure, none where it has not answered."""
    try:
        with socket.create_connection((host, port), _ANSWER_S) as connection:
            wants_login = _wants_login(connection)
    except TimeoutError:
        return ()
    except OSError:  # as TLS does with what is none
        wants_login = None
    if wants_login is not None:
        return ("SASL_PLAINTEXT",) if wants_login else (_DEFAULT,)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # no secret is sent
    try:
        with (
            socket.create_connection((host, port), _ANSWER_S) as connection,
            context.wrap_socket(connection, server_hostname=host) as secured,
            suppress(OSError),  # it may ask for a certificate after the handshake
        ):
            wants_login = _wants_login(secured)
    except OSError as error:
        return _TLS if "ALERT" in str(getattr(error, "reason", "")) else ()
    return _TLS if wants_login is None else _TLS[wants_login : wants_login + 1]


def _wants_login(connection: socket.socket) -> bool | None:
    connection.sendall(struct.pack(">i", len(_QUESTION)) + _QUESTION)
    answer = b""
    while len(answer) < 10 and (more := connection.recv(10 - len(answer))):
        answer += more
    if len(answer) < 10 or struct.unpack(">i", answer[4:8])[0] != _NUMBER:
        return None
    return _WANTS_LOGIN.get(struct.unpack(">h", answer[8:])[0])
