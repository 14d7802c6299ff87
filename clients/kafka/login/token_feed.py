"""Gives clients of librdkafka the process's token, and each that follows it, while they live.

confluent-kafka's own way, a callback, makes each new client wait for a second (`sleep(1)` in
`wait_for_oauth_token_set`), and a batch makes several. So the token is set by librdkafka's public
function, on the handle inside the client. Where that handle is not to be had (see
core/librdkafka.py), the callback is used.

librdkafka takes such a token only where it could also make one itself, an unsigned one, which
brokers refuse. So it is told to make one of settings that it cannot read: it has none then, and
connects to nobody until it is given one, however long a busy process takes for that. Its one error
of this is kept from the client's callback. Our tokens are given for ten years, so that it never
tries again.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any

from ....core import librdkafka
from .oauth import FUNCTION, TRY_AGAIN_S, Token, Tokens, left_to_librdkafka, tokens

log = logging.getLogger(__name__)

_UNREADABLE = "eo-kafka-sets-the-token"
_UNSIGNED = {
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.config": _UNREADABLE,
}
_LOOK_S = 60.0  # at the latest: a machine's clock may be set, or stand still
_TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000


def make(kind: type, settings: Mapping[str, Any], *, by_callback: bool = False) -> Any:
    """A confluent-kafka client of this kind, logged in by OAuth if the settings say so; with
    `by_callback` in confluent-kafka's own way. Raises KafkaException, and EnvironmentRefused where
    no token is to be had."""
    found = tokens(settings)
    if found is None:
        return kind(dict(settings))
    token = found.current()  # or the first that is heard of it is a broker that does not answer
    rest = left_to_librdkafka(settings)
    if not by_callback and _can_be_set():
        client = _fed(kind)({**rest, **_UNSIGNED, **_told_of_others(rest)})
        try:
            _set(client, token)
        except librdkafka.Unavailable as reason:
            log.warning("Tokens are given by callbacks, which take a second each: %s.", reason)
        else:
            _feed(found).add(client, token)
            return client
    return kind({**rest, FUNCTION: functools.partial(_callback, found)})


def _told_of_others(settings: Mapping[str, Any]) -> dict[str, Any]:
    """An error callback that is not told of the token that librdkafka does not make."""
    told = settings.get("error_cb")
    if told is None:
        return {}

    def of_others(error: Any) -> None:
        if _UNREADABLE not in error.str():
            told(error)

    return {"error_cb": of_others}


def _callback(source: Tokens, _: str) -> tuple[str, float, str, dict[str, str]]:
    token = source.current()
    return token.text, token.expires, token.principal, dict(token.extensions)


@functools.cache
def _can_be_set() -> bool:
    try:
        librdkafka.library()
    except librdkafka.Unavailable as reason:
        log.info("Tokens are given by callbacks, which take a second each: %s.", reason)
        return False
    return True


def _set(client: Any, token: Token) -> None:
    """Raises Unavailable."""
    until_ms = int(time.time() * 1000) + _TEN_YEARS_MS
    extensions = dict(token.extensions)
    librdkafka.set_token(client, token.text, until_ms, token.principal or "none", extensions)


class _Feed:
    """The clients with tokens of one source, and the thread that gives them each new one as long as
    there are any."""

    def __init__(self, source: Tokens) -> None:
        self._source = source
        self._clients: set[weakref.ref[Any]] = set()
        # A client that is being closed has no handle to be used. A finalizer may close one in a
        # thread that is here already.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def add(self, client: Any, shown: Token) -> None:
        """`shown`: what it has been given."""
        client.fed_by = self
        with self._lock:
            self._clients.add(one := weakref.ref(client, self._clients.discard))
            if (newest := self._source.newest) is not None and newest is not shown:
                self._give(one, newest)  # the thread may have been here in between
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def discard(self, client: Any) -> None:
        """It is about to be closed."""
        with self._lock:
            self._clients.discard(weakref.ref(client))

    def _run(self) -> None:
        given = None
        while True:
            time.sleep(min(max(0.1, self._source.renew_at - time.time()), _LOOK_S))
            with self._lock:
                if not self._clients:
                    self._thread = None
                    return
            try:
                token = self._source.current()
            except Exception as error:  # clients that are made later tell the user
                log.warning("%s It is tried again.", error)
                time.sleep(TRY_AGAIN_S)
                continue
            if token is not given:
                for one in self._clients.copy():
                    self._give(one, token)
                given = token

    def _give(self, one: weakref.ref[Any], token: Token) -> None:
        """Nothing here may keep a client for longer: this thread may sleep for an hour."""
        with self._lock:
            client = one()
            if client is None or one not in self._clients:
                return
            try:
                _set(client, token)
            except Exception as error:  # the others get theirs
                log.warning("A client could not be given a new token: %s.", error)


@functools.cache
def _feed(source: Tokens) -> _Feed:
    return _Feed(source)


@functools.cache
def _fed(kind: type) -> type:
    """The same kind of client, which is not given a token while it is closed."""

    def closing(name: str) -> Any:
        def closed(self: Any, *args: Any, **named: Any) -> Any:
            self.fed_by.discard(self)
            return getattr(kind, name)(self, *args, **named)

        return closed

    names = [name for name in ("close", "__exit__") if hasattr(kind, name)]
    return type("Fed", (kind,), {name: closing(name) for name in names})
