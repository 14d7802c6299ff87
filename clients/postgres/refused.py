"""Why a server lets nobody in, as a SQLSTATE, which libpq keeps to itself.

Its words are no help: they are in the server's language or in this machine's. But libpq writes down
what servers send it (PQtrace), and a SQLSTATE is in that. On Linux; elsewhere all that is known is
that there is no connection.
"""

from __future__ import annotations

import os
import re
import selectors
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg
    from psycopg.pq.abc import PGconn

_REFUSAL = re.compile(rb'^.*B\t\d+\tErrorResponse\t.*? C "(\w{5})"', re.MULTILINE)
_IS_READY = re.compile(rb"^.*B\t\d+\tReadyForQuery\t", re.MULTILINE)
_NO_PASSWORD, _READ_ONLY = "28P01", "25006"


def with_state(
    error: psycopg.Error, parameters: Mapping[str, Any], within_s: float
) -> psycopg.Error:
    """`error`, with which a connection has failed, as the class of the SQLSTATE that another try
    finds; itself if that finds none."""
    from psycopg import errors

    state = _state(parameters, within_s)
    if state is None or state.startswith("XX"):  # poolers say that of a server that is away
        return error
    try:
        return errors.lookup(state)(str(error))
    except KeyError:
        return error


def _state(parameters: Mapping[str, Any], within_s: float) -> str | None:
    if sys.platform != "linux":
        return None
    from psycopg.conninfo import make_conninfo
    from psycopg.pq import PGconn, PollingStatus

    asked = PGconn.connect_start(make_conninfo(**parameters).encode())
    with os.fdopen(os.memfd_create("eo-kafka"), "rb") as said:  # no file: a password may be in it
        asked.trace(said.fileno())
        failed = _polled(asked, within_s) == PollingStatus.FAILED
        asked.untrace()
        lacks_password = asked.needs_password
        asked.finish()
        said.seek(0)
        told = said.read()
    if refusals := _REFUSAL.findall(told):
        return str(refusals[-1].decode())
    if lacks_password:
        return _NO_PASSWORD
    # It let us in, and `target_session_attrs` is not so
    return _READ_ONLY if failed and _IS_READY.search(told) else None


def _polled(asked: PGconn, within_s: float) -> int:
    """How it ended, or that it has not."""
    from psycopg.pq import PollingStatus

    waits_for = {
        PollingStatus.READING: selectors.EVENT_READ,
        PollingStatus.WRITING: selectors.EVENT_WRITE,
    }
    end = time.monotonic() + within_s
    while (polled := asked.connect_poll()) in waits_for and time.monotonic() < end:
        with selectors.DefaultSelector() as selector:
            selector.register(asked.socket, waits_for[PollingStatus(polled)])
            selector.select(max(0.0, end - time.monotonic()))
    return polled
