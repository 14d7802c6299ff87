"""Logs once that a broker is away and once that it is back, for all clients of a process.

librdkafka tells of every failed attempt of every client. What it tells is looked into: the broker
is away if nothing answers at its address. Then a thread waits until something does. A login that
is refused is kept for whoever tells later that there was no answer: librdkafka goes on trying.
"""

from __future__ import annotations

import logging
import re
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from ...core.errors import cut
from ...core.patience import OUTAGE_S

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

log = logging.getLogger(__name__)

# How librdkafka begins what it says of a broker: `sasl_ssl://host:9092/1: `.
_BROKER = re.compile(r"(?:\w+://)?\[?([^/\]]+)\]?:(\d+)/")
_CONNECT_TIMEOUT_S = 3.0
_HIGHEST_PORT, _DEFAULT_PORT = 65_535, 9092
SILENT = "no answer"
# What is answered, by Kafka's names, while a coordinator is away, loads for minutes, or has moved.
NO_COORDINATOR = ("COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR")
_PAUSE_S, _PAUSE_MAX_S = 0.25, 5.0  # one that never comes back is looked for at leisure
# One that goes on librdkafka tells twice a minute. Below the minute after which it ends a wait
# (`patience.py`): a single one, at the beginning of an outage, does not.
_REFUSAL_COUNTS_S = 45.0
_watched: set[tuple[str, int]] = set()
_back: deque[float] = deque([0.0], maxlen=1)  # when (time.monotonic()) one was back
_refused: deque[tuple[float, str]] = deque(maxlen=1)  # when (time.monotonic()), and why
_lock = threading.Lock()


def told(error: KafkaError) -> None:
    """Look into what a client's error callback was told. Any thread; waits for nothing."""
    from confluent_kafka import KafkaError

    if error.code() == KafkaError._AUTHENTICATION:
        _refused.append((time.monotonic(), error.str()))
    found = _BROKER.match(error.str())
    if found and error.code() in (KafkaError._TRANSPORT, KafkaError._RESOLVE):
        _watch(found[1], int(found[2]))


def refused_login() -> str:
    """A sentence with a space before it: that a login of this process was refused just now, and
    why; "" if none was."""
    for when, said in list(_refused):
        if time.monotonic() - when < _REFUSAL_COUNTS_S:
            return f" Kafka does not let this principal in: {cut(said, 400)}."
    return ""


def is_no_answer(error: KafkaError) -> bool:
    """Whether Kafka may only be away: what it refuses, it has answered."""
    from confluent_kafka import KafkaError

    silence = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    return error.retriable() or error.code() in silence


def stall_timeout_s(usual_s: float, moved: float) -> float:
    """For how many seconds after `moved` (time.monotonic()) a read may make no progress: `usual_s`,
    or longer while a broker that this process has talked to, or tried to, is away. What passed
    before it was back does not count: it takes a moment until it is asked again, and answers."""
    if _watched:
        return OUTAGE_S
    return usual_s + max(0.0, _back[-1] - moved)


def suspect(servers: str) -> None:
    """Look whether the brokers of a `bootstrap.servers` are there; as `told`."""
    for server in servers.split(","):
        if address := address_of(server.strip()):
            _watch(*address)


def address_of(server: str) -> tuple[str, int] | None:
    """Of an entry of a `bootstrap.servers` as librdkafka reads it, such as `sasl_ssl://[::1]:9092`
    or `host`; None for one that is not understood here."""
    found = re.fullmatch(r"(?:\w+://)?(?:\[([^\[\]]+)\]|([^\[\]:/]+))(?::(\d+))?", server)
    return None if found is None else (found[1] or found[2], int(found[3] or _DEFAULT_PORT))


def _watch(host: str, port: int) -> None:
    with _lock:
        if (host, port) in _watched:
            return
        _watched.add((host, port))
    threading.Thread(target=_until_back, args=(host, port), daemon=True).start()


def _until_back(host: str, port: int) -> None:
    try:
        reason = connection_problem(host, port)
        if reason is None:
            return
        began = time.monotonic()
        log.warning(
            "Kafka broker %s:%d is away (%s). Requests to it wait and are tried again.",
            *(host, port, reason),
        )
        pause = _PAUSE_S
        while connection_problem(host, port) is not None:
            time.sleep(pause)
            pause = min(1.1 * pause, _PAUSE_MAX_S)
        _back.append(time.monotonic())
        log.warning("Kafka broker %s:%d is back after %.0f s.", host, port, _back[-1] - began)
    finally:
        with _lock:
            _watched.discard((host, port))


def connection_problem(host: str, port: int, timeout_s: float = _CONNECT_TIMEOUT_S) -> str | None:
    """Why nothing takes a connection there, or None. Waits for `timeout_s` for each address of the
    host, at most."""
    if port > _HIGHEST_PORT:  # the C library connects to its lower 16 bits, and so does librdkafka
        return f"no port is above {_HIGHEST_PORT}"
    try:
        socket.create_connection((host, port), timeout_s).close()
    except TimeoutError:
        return SILENT
    except OSError as error:
        return error.strerror or str(error) or type(error).__name__
    except ValueError as error:  # a name that none can have
        return str(error)
    return None
