"""Asks a token endpoint for a token by client credentials (RFC 6749, section 4.4)."""

from __future__ import annotations

import base64
import json
import ssl
import time
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from ....core.errors import cut
from ....core.patience import Wait, served
from ....core.url_secrets import without_secrets

_ANSWER_S = 10.0
_PATIENCE_AT_FIRST_S = 6.0  # a mistake is likelier than an outage
_FEW, _LONGEST = 400, 1 << 20


class NoToken(Exception):
    """Why there is none. `by_endpoint`: it answered, and refused. `is_outage`: it is away, or too
    busy to answer."""

    def __init__(self, why: str, *, by_endpoint: bool = False, is_outage: bool = False) -> None:
        super().__init__(why)
        self.by_endpoint, self.is_outage = by_endpoint, is_outage


def ask(
    url: str, login: tuple[str, str], scope: str | None, tls: ssl.SSLContext, *, patient: bool
) -> tuple[str, float]:
    """A token, and when it expires (seconds since 1970; 0 if nobody says). Driver and executors,
    once a process and again before the token ends.

    Args:
        url: The endpoint, with http or https.
        login: The client's id and its secret.
        scope: What is asked for, if the endpoint wants to know.
        tls: Which authorities count.
        patient: Whether a server that does not answer, or is overloaded, is asked again: for six
            seconds, or as long as brokers if it has given a token here before.

    Raises:
        NoToken: There is none to be had.
    """
    asked = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    request = Request(  # noqa: S310 - options let no other scheme pass than http and https
        url,
        urlencode(asked).encode(),
        {
            "Authorization": f"Basic {base64.b64encode(':'.join(login).encode()).decode()}",
            "Accept": "application/json",
        },
    )
    try:
        now, given = _answer(request, tls, patient)
        text, lasts = checked(given["access_token"]), float(given.get("expires_in") or 0)
    except HTTPError as error:
        away = _may_pass(error)
        raise NoToken(
            f"HTTP {error.code}: {_said(error)}", by_endpoint=not away, is_outage=away
        ) from None
    except (
        *(OSError, HTTPException, ValueError, LookupError, TypeError, AttributeError),
        RecursionError,
    ) as error:
        raise NoToken(
            f"{type(error).__name__}: {cut(error, _FEW)}", is_outage=_may_pass(error)
        ) from None
    served(url)
    return text, now + lasts if lasts else _expiry(text)


def checked(token: object) -> str:
    """It. Raises ValueError for what can be no token."""
    if not (isinstance(token, str) and token.isascii() and token.isprintable() and token):
        raise ValueError("a token is a text of ASCII")
    return token


def _answer(request: Request, tls: ssl.SSLContext, patient: bool) -> tuple[float, Any]:
    """When it was asked, and the JSON."""
    import tenacity

    url = request.full_url
    wait = Wait(url, _PATIENCE_AT_FIRST_S)

    def goes_on(error: BaseException) -> bool:
        problem = f"The token endpoint {without_secrets(url)} gives no token ({cut(error, _FEW)})."
        return patient and _may_pass(error) and wait.goes_on(True, problem)

    @tenacity.retry(
        retry=tenacity.retry_if_exception(goes_on),
        wait=tenacity.wait_random_exponential(multiplier=0.2, max=2.0),
        reraise=True,
    )
    def asked() -> tuple[float, Any]:
        now = time.time()
        with opener.open(request, timeout=_ANSWER_S) as answer:
            return now, json.loads(answer.read(_LONGEST))

    opener = build_opener(_NoRedirect, HTTPSHandler(context=tls))
    return asked()


class _NoRedirect(HTTPRedirectHandler):
    """It would show the secret to whoever is named, in clear if need be."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _said(error: HTTPError) -> str:
    try:
        return cut(error.read(_FEW).decode("utf-8", "replace"), _FEW)
    except (OSError, HTTPException):
        return "and no more"


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, HTTPError):
        return error.code >= 500 or error.code == 429
    reason = getattr(error, "reason", error)
    return isinstance(reason, OSError) and not isinstance(reason, ssl.SSLError)


def _expiry(text: str) -> float:
    """What a JWT itself says; 0 if it does not."""
    try:
        claims = text.split(".")[1]
        decoded = base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4))
        return float(json.loads(decoded)["exp"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return 0.0
