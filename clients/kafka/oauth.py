"""Logs in by OAuth 2 (SASL mechanism OAUTHBEARER, RFC 7628): one token a process for both clients.

librdkafka takes it by its callback, kafka-python by a provider of tokens. librdkafka's own way
(`sasl.oauthbearer.method=oidc`) asks for a token for each client that is made, of which a query
makes many, and kafka-python has none. So its settings are read here:

- client credentials (RFC 6749, section 4.4) at `sasl.oauthbearer.token.endpoint.url`;
- or a function of the user's, `oauth_cb=module:function`, called as confluent-kafka calls its
  `oauth_cb`: clouds that sign tokens themselves have one in Python.
"""

from __future__ import annotations

import base64
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from ...core.errors import EnvironmentRefused, cut
from ...core.imported import imported

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
_ANSWER_S, _PATIENCE_S = 10.0, 6.0
_FEW = 400


@dataclass(frozen=True, repr=False)
class Token:
    """What brokers are shown, and until when (seconds since 1970) they take it."""

    text: str
    expires: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


class Tokens:
    """The token of one set of settings in this process, renewed before it expires."""

    def __init__(self, get: Callable[[], Token]) -> None:
        self._get = get
        self._lock = threading.Lock()  # both clients ask in threads of their own
        self._token: Token | None = None
        self.renew_at = 0.0  # seconds since 1970

    def current(self) -> Token:
        """A token that lasts. Raises EnvironmentRefused if there is none to be had."""
        with self._lock:
            now = time.time()
            if self._token is None or now >= self.renew_at:
                try:
                    self._token = self._get()
                    self.renew_at = now + _RENEWED_AT * (self._token.expires - now)
                except EnvironmentRefused as error:
                    if self._token is None or now >= self._token.expires:
                        raise
                    self.renew_at = min(now + TRY_AGAIN_S, self._token.expires)
                    log.warning("%s The token of before is used until it expires.", error)
            return self._token


_shared: dict[tuple[tuple[str, str], ...], Tokens] = {}


def tokens(settings: Mapping[str, Any]) -> Tokens | None:
    """This process's, for these settings; None if they log in by something else."""
    if not _is_used(settings):
        return None
    key = tuple((name, settings[name]) for name in (FUNCTION, *_OURS) if name in settings)
    if key not in _shared:
        given = dict(key)
        get = _by_function if FUNCTION in given else _by_client_credentials
        _shared[key] = Tokens(lambda: get(given))
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


def _by_function(settings: Mapping[str, str]) -> Token:
    name = settings[FUNCTION]
    try:
        text, expires, *more = imported(name, "function")(settings.get(_GIVEN, ""))
        principal, extensions = (*more, "", None)[:2]
        token = Token(str(text), float(expires), str(principal), dict(extensions or {}))
    except Exception as error:  # whatever it raises, or gives
        raise EnvironmentRefused(
            f"Function '{name}' (kafka.{FUNCTION}) gave no token ({type(error).__name__}: "
            f"{cut(error, _FEW)}). It must return the token and when it expires, in seconds since "
            "1970, and may return a principal and a dictionary of extensions."
        ) from None
    return _lasting(token, f"function '{name}'")


def _by_client_credentials(settings: Mapping[str, str]) -> Token:
    url, login = settings[_URL], f"{settings[_ID]}:{settings[_SECRET]}"
    asked = {"grant_type": "client_credentials"}
    if scope := settings.get(_SCOPE):
        asked["scope"] = scope
    request = Request(  # noqa: S310 - `problems` lets no other scheme pass than http and https
        url,
        urlencode(asked).encode(),
        {
            "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
            "Accept": "application/json",
        },
    )
    try:
        now, given = _answer(request, _context(settings))
        text, lasts = given["access_token"], float(given.get("expires_in", 0))
    except HTTPError as error:
        said = cut(error.read(_FEW).decode("utf-8", "replace"), _FEW)
        raise EnvironmentRefused(
            f"The token endpoint {url} gave no token (HTTP {error.code}: {said}). Check "
            f"'kafka.{_ID}', 'kafka.{_SECRET}' and 'kafka.{_SCOPE}'."
        ) from None
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise EnvironmentRefused(
            f"The token endpoint {url} gave no token ({type(error).__name__}: "
            f"{cut(error, _FEW)}). Check 'kafka.{_URL}', the network, and 'kafka.{_CA_FILE}'."
        ) from None
    expires = now + lasts if lasts else _expiry(text)
    extensions = dict(one.strip().split("=", 1) for one in _pairs(settings))
    return _lasting(Token(text, expires, extensions=extensions), f"the token endpoint {url}")


def _answer(request: Request, context: ssl.SSLContext | None) -> tuple[float, Any]:
    """When it was asked, and the JSON. Asked again for a few seconds where nobody answers, or a
    server that is overloaded. Raises OSError, ValueError."""
    import tenacity

    @tenacity.retry(
        retry=tenacity.retry_if_exception(_may_pass),
        stop=tenacity.stop_after_delay(_PATIENCE_S),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=2.0),
        reraise=True,
    )
    def asked() -> tuple[float, Any]:
        now = time.time()
        with urlopen(request, timeout=_ANSWER_S, context=context) as answer:  # noqa: S310
            return now, json.load(answer)

    return asked()


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, HTTPError):
        return error.code >= 500 or error.code == 429
    reason = getattr(error, "reason", error)
    return isinstance(reason, OSError) and not isinstance(reason, ssl.SSLError)


def _lasting(token: Token, source: str) -> Token:
    if token.expires <= time.time():
        raise EnvironmentRefused(
            f"The token that {source} gave does not say when it expires, or has expired. Is this "
            "machine's clock right?"
        )
    return token


def _expiry(text: str) -> float:
    """What a JWT itself says; 0 if it does not."""
    try:
        claims = text.split(".")[1]
        decoded = base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))
        return float(json.loads(decoded)["exp"])
    except (ValueError, LookupError, TypeError):
        return 0.0


def _context(settings: Mapping[str, str]) -> ssl.SSLContext | None:
    if not settings[_URL].lower().startswith("https"):
        return None
    file = settings.get(_CA_FILE)
    return ssl.create_default_context(cafile=file, cadata=settings.get(_CA_TEXT))
