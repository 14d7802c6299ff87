"""Logs in by OAuth 2 (SASL mechanism OAUTHBEARER, RFC 7628): one token a process for both clients.

librdkafka's clients are given it (`token_feed.py`), kafka-python has a provider of tokens.
librdkafka's own way (`sasl.oauthbearer.method=oidc`) asks for a token for each client that is made,
of which a query makes many, and kafka-python has none. So its settings are read here:

- client credentials (RFC 6749, section 4.4) at `sasl.oauthbearer.token.endpoint.url`;
- or a function of the user's, `oauth_cb=module:function`, called as confluent-kafka calls its
  `oauth_cb`: clouds that sign tokens themselves have one in Python.
"""

from __future__ import annotations

import logging
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from ....core.errors import EnvironmentRefused, Unreachable, cut
from ....core.imported import imported
from ....core.process import moment
from ....core.url_secrets import without_secrets
from . import token_endpoint

log = logging.getLogger(__name__)

MECHANISM = "OAUTHBEARER"
FUNCTION = "oauth_cb"
_PREFIX = "sasl.oauthbearer."
_URL, _ID, _SECRET = (
    f"{_PREFIX}{name}" for name in ("token.endpoint.url", "client.id", "client.secret")
)
_SCOPE, _EXTENSIONS, _GIVEN = (f"{_PREFIX}{name}" for name in ("scope", "extensions", "config"))
_CA_FILE, _CA_TEXT = "https.ca.location", "https.ca.pem"
_OURS = (f"{_PREFIX}method", _URL, _ID, _SECRET, _SCOPE, _EXTENSIONS, _GIVEN, _CA_FILE, _CA_TEXT)
_RENEWED_AT = 0.8  # of a token's time, as librdkafka and Kafka's Java client renew it
TRY_AGAIN_S = 10.0  # after a failure, while the old one lasts; as librdkafka does
_FEW = 400
_NO_TOKEN_LASTS_S = 100 * 366 * 24 * 3600.0


@dataclass(frozen=True, repr=False)
class Token:
    """What brokers are shown, and until when (seconds since 1970) they take it."""

    text: str
    expires: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


class Tokens:
    """The token of one set of settings in this process, renewed before it expires."""

    def __init__(self, get: Callable[[bool], Token]) -> None:
        """`get` is told whether to be patient with whom it asks."""
        self._get = get
        self._lock = threading.Lock()  # both clients ask in threads of their own
        self._failed = 0.0, EnvironmentRefused()  # when (time.monotonic), and why
        self.newest: Token | None = None
        self.renew_at = 0.0  # seconds since 1970
        self._got = 0.0, 0.0  # when `newest` was asked for: by that clock, and by one never set

    def _now(self) -> float:
        """Seconds since 1970, for what expires. A clock that was set back makes nothing last."""
        at, seconds = self._got
        return max(time.time(), at + moment.seconds() - seconds if self.newest else 0.0)

    def current(self) -> Token:
        """A token that lasts. Raises EnvironmentRefused if there is none to be had, Unreachable
        where that may pass. Waits for another thread that asks only where there is none that
        lasts."""
        began, now, token = time.monotonic(), self._now(), self.newest
        lasting = token if token is not None and now < token.expires else None
        if lasting is not None and now < self.renew_at:
            return lasting
        if not self._lock.acquire(blocking=lasting is None):
            return lasting  # type: ignore[return-value]
        try:
            return self._renewed(began)
        finally:
            self._lock.release()

    def _renewed(self, began: float) -> Token:
        now, token, asked = self._now(), self.newest, (time.time(), moment.seconds())
        if token is not None and now < self.renew_at:
            return token
        failed, why = self._failed
        if failed > began:  # while this thread waited for its turn
            raise type(why)(*why.args)
        try:
            found = self._get(token is None or now >= token.expires)
        except EnvironmentRefused as error:
            now = self._now()  # an endpoint that hangs has taken its time
            if token is None or now >= token.expires:
                self._failed = time.monotonic(), error
                raise
            self.renew_at = min(now + TRY_AGAIN_S, token.expires)
            log.warning("%s The token of before is used until it expires.", error)
            return token
        self.newest, self._got, now = found, asked, asked[0]
        self.renew_at = now + _RENEWED_AT * (found.expires - now)
        return found


_shared: dict[tuple[Any, ...], Tokens] = {}


def tokens(settings: Mapping[str, Any]) -> Tokens | None:
    """This process's, for these settings; None if they log in by something else."""
    if not _is_used(settings):
        return None
    given = {name: settings[name] for name in (FUNCTION, *_OURS) if name in settings}
    key = os.getpid(), *given.items()  # a fork may have the lock held, and has no thread
    if key not in _shared:
        get = _by_function if FUNCTION in given else _by_client_credentials
        _shared[key] = Tokens(lambda patient: get(given, patient))
    return _shared[key]


def left_to_librdkafka(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A client's settings without those that are read here."""
    if not _is_used(settings):
        return dict(settings)
    return {name: value for name, value in settings.items() if name not in (FUNCTION, *_OURS)}


def provider(settings: Mapping[str, Any]) -> Any:
    """kafka-python's, or None. Raises EnvironmentRefused where no token is to be had."""
    found = tokens(settings)
    if found is None:
        return None
    from kafka.net.sasl.oauth import AbstractTokenProvider

    one = found
    one.current()

    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return one.current().text

        def extensions(self) -> Mapping[str, str]:
            return one.current().extensions

    return Provider()


def problems(settings: Mapping[str, str]) -> list[str]:
    """What is wrong with a login by OAuth, a sentence each. Imports the user's function; asks
    nobody."""
    mechanism = _mechanism(settings)
    if mechanism == "AWS_MSK_IAM":
        return [
            "Kafka option 'kafka.sasl.mechanism' is 'AWS_MSK_IAM', which only Java knows. Amazon "
            f"MSK takes the same login as {MECHANISM}: set that, and 'kafka.{FUNCTION}' to a "
            "function that signs a token (docs/security.md, 'OAuth')."
        ]
    if not _is_used(settings):
        given = f"Kafka option 'kafka.{FUNCTION}' needs 'kafka.sasl.mechanism' {MECHANISM} and a "
        return [f"{given}'kafka.security.protocol' with SASL."] if FUNCTION in settings else []
    if FUNCTION in settings:
        try:
            imported(settings[FUNCTION], "function")
        except ValueError as error:
            return [f"Kafka option 'kafka.{FUNCTION}' {error}; it is '{settings[FUNCTION]}'."]
        return []
    found = [
        f"Kafka option 'kafka.{name}' must be specified: SASL {MECHANISM} gets its tokens from a "
        f"token endpoint, or from a function, 'kafka.{FUNCTION}'."
        for name in (_URL, _ID, _SECRET)
        if not settings.get(name, "").strip()
    ]
    if settings.get(_URL) and urlsplit(settings[_URL]).scheme not in ("http", "https"):
        found.append(f"Kafka option 'kafka.{_URL}' must be a URL with https.")
    if "@" in settings.get(_URL, ""):
        found.append(
            f"Kafka option 'kafka.{_URL}' must have no login: that is 'kafka.{_ID}' and "
            f"'kafka.{_SECRET}'. Else write '@' as %40."
        )
    others = {name for name in settings if name.startswith(_PREFIX)} - {*_OURS}
    found += [
        f"Kafka option 'kafka.{name}' is not supported: a token endpoint is asked by client id and "
        f"secret. For another way give a function, 'kafka.{FUNCTION}'."
        for name in sorted(others)
    ]
    if any("=" not in one for one in _pairs(settings)):
        found.append(f"Kafka option 'kafka.{_EXTENSIONS}' must be 'name=value,name=value'.")
    return found


def _mechanism(settings: Mapping[str, Any]) -> str:
    found = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    return str(found).strip().upper()


def _is_used(settings: Mapping[str, Any]) -> bool:
    protocol = str(settings.get("security.protocol", "")).strip().upper()
    return _mechanism(settings) == MECHANISM and protocol.startswith("SASL")


def _pairs(settings: Mapping[str, str]) -> list[str]:
    return [one for one in settings.get(_EXTENSIONS, "").split(",") if one.strip()]


def _by_function(settings: Mapping[str, str], _: bool) -> Token:
    name = settings[FUNCTION]
    try:
        text, expires, *more = imported(name, "function")(settings.get(_GIVEN, ""))
    except Exception as error:  # whatever it raises, or gives
        raise _no_token_by(name, f"{type(error).__name__}: {cut(error, _FEW)}") from None
    try:
        principal, extensions = (*more, "", None)[:2]
        token = Token(
            token_endpoint.checked(text), float(expires), str(principal), _words(extensions or {})
        )
    except (ValueError, TypeError, AttributeError):  # says what it was given: it may be the token
        kinds = ", ".join(type(one).__name__ for one in (text, expires, *more))
        raise _no_token_by(name, f"it returned {kinds}") from None
    return _lasting(token, f"function '{name}'")


def _no_token_by(function: str, why: str) -> EnvironmentRefused:
    return EnvironmentRefused(
        f"Function '{function}' (kafka.{FUNCTION}) gave no token ({why}). It must return the token "
        "and when it expires, in seconds since 1970, and may return a principal and a dictionary "
        "of extensions."
    )


def _words(extensions: Mapping[object, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in dict(extensions).items()}


def _by_client_credentials(settings: Mapping[str, str], patient: bool) -> Token:
    try:
        text, expires = token_endpoint.ask(
            settings[_URL],
            (settings[_ID], settings[_SECRET]),
            settings.get(_SCOPE),
            _tls(settings),
            patient=patient,
        )
    except token_endpoint.NoToken as refused:
        names = (_ID, _SECRET, _SCOPE) if refused.by_endpoint else (_URL, _CA_FILE)
        check = ", ".join(f"'kafka.{name}'" for name in names)
        sentence = (
            f"The token endpoint {without_secrets(settings[_URL])} gave no token ({refused}). "
            f"Check {check}{'' if refused.by_endpoint else ' and the network'}."
        )
        if refused.is_outage:
            raise Unreachable(f"{sentence} If it is away, start when it answers again.") from None
        raise EnvironmentRefused(sentence) from None
    extensions = dict(one.strip().split("=", 1) for one in _pairs(settings))
    token = Token(text, expires, extensions=extensions)
    return _lasting(token, f"the token endpoint {without_secrets(settings[_URL])}")


def _lasting(token: Token, source: str) -> Token:
    lasts = token.expires - time.time()
    if lasts > _NO_TOKEN_LASTS_S:
        raise EnvironmentRefused(
            f"The token that {source} gave would last for centuries. When it expires is to be said "
            "in seconds since 1970, not in milliseconds: else it is never renewed."
        )
    if not lasts > 0:  # nor is it a number
        raise EnvironmentRefused(
            f"The token that {source} gave does not say when it expires, or has expired. Is this "
            "machine's clock right?"
        )
    return token


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    path = settings.get(_CA_FILE)
    is_folder = path is not None and os.path.isdir(path)  # as librdkafka takes them, too
    try:
        return ssl.create_default_context(
            cafile=None if is_folder else path,
            capath=path if is_folder else None,
            cadata=settings.get(_CA_TEXT),
        )
    except (OSError, ValueError) as error:
        raise EnvironmentRefused(
            f"The authorities in 'kafka.{_CA_FILE}' or 'kafka.{_CA_TEXT}', by which the token "
            f"endpoint is to be checked, cannot be read: {error}."
        ) from None
