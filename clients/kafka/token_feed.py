"""Gives clients of librdkafka the process's token, and each that follows it, while they live.

confluent-kafka's own way, a callback, makes each new client wait for a second (`sleep(1)` in
`wait_for_oauth_token_set`), and a batch makes several. So the token is set by librdkafka's public
function, on the handle inside the client. Where that handle is not to be had (see
core/librdkafka.py), the callback is used.

librdkafka takes such a token only where it could also make one itself: an unsigned one, which
brokers refuse. It makes it with the client, and a token of ours is in its place before a connection
is ready to show it. Ours are given for ten years, so that it never makes another.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
import weakref
from collections.abc import Mapping
from typing import Any

from ...core import librdkafka
from ...core.errors import EnvironmentRefused
from .oauth import FUNCTION, TRY_AGAIN_S, Token, Tokens, left_to_librdkafka, tokens

log = logging.getLogger(__name__)

_UNSIGNED = {
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "sasl.oauthbearer.config": "principal=none",
}
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
        client = _fed(kind)({**rest, **_UNSIGNED})
        try:
            _set(client, token)
        except librdkafka.Unavailable as reason:
            log.warning("Tokens are given by callbacks, which take a second each: %s.", reason)
        else:
            _feed(found).add(client)
            return client
    return kind({**rest, FUNCTION: functools.partial(_callback, found)})


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
        self._clients: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()  # a client that is being closed has no handle to be used
        self._thread: threading.Thread | None = None

    def add(self, client: Any) -> None:
        client.fed_by = self
        with self._lock:
            self._clients.add(client)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()

    def discard(self, client: Any) -> None:
        """It is about to be closed."""
        with self._lock:
            self._clients.discard(client)

    def _run(self) -> None:
        while True:
            time.sleep(max(0.1, self._source.renew_at - time.time()))
            with self._lock:
                if not self._clients:
                    self._thread = None
                    return
            try:
                token = self._source.current()
            except EnvironmentRefused as error:
                log.warning("%s It is tried again.", error)
                time.sleep(TRY_AGAIN_S)
                continue
            for client in list(self._clients):
                with self._lock:
                    if client in self._clients:
                        self._give(client, token)

    def _give(self, client: Any, token: Token) -> None:
        try:
            _set(client, token)
        except librdkafka.Unavailable as reason:
            log.warning("A client could not be given a new token: %s.", reason)


@functools.cache
def _feed(source: Tokens) -> _Feed:
    return _Feed(source)


@functools.cache
def _fed(kind: type) -> type:
    """The same kind of client, which is not given a token while it is closed."""

    class Fed(kind):  # type: ignore[misc]
        def close(self, *args: Any, **named: Any) -> Any:
            self.fed_by.discard(self)
            return super().close(*args, **named)

    return Fed
