"""Who may see the page, and who may act: before any of it is answered.

Everything here is about browsers, which send what another site's page tells them to: hence the
Host header is looked at (a name that was made to lead to this machine), a form bears a word that
only this server's pages know, and no page may be framed or load anything from elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections import OrderedDict
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

SESSION_S = 12 * 3600.0
SESSIONS = 1000
FORM_MAX = 16 << 10
CSRF = "csrf"
LOGIN, STATIC = "/login", "/static/"  # what is shown without the token
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # not `no-referrer`: a form of ours would come from an origin "null" then
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::[0-9]*)?")
_SESSION_ID = re.compile(r"[A-Za-z0-9_-]{43}")


class Refused(Exception):
    """A form that none of our pages sent."""


class Gate:
    """ASGI, around the pages. `token`: who does not know it sees nothing; None: everybody does who
    can reach the port. `hosts`: the names that a request may ask for; None: any. `port` is in the
    cookie's name, as browsers keep one jar for all ports."""

    def __init__(
        self, app: ASGIApp, port: int, token: str | None, hosts: frozenset[str] | None
    ) -> None:
        self._app, self._token, self._hosts = app, token, hosts
        self._cookie = f"eo_kafka_ui_{port}"
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[str, float] = OrderedDict()  # session -> when it ends

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the pages answer."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        request = Request(scope)
        session = self._session(request)
        fresh = session or secrets.token_urlsafe(32)
        scope["eo_kafka.session"], scope["eo_kafka.gate"] = fresh, self
        cookie = "" if session else self._as_cookie(fresh)

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if cookie and "set-cookie" not in headers:
                    headers.append("Set-Cookie", cookie)
            await send(message)

        refused = self._refusal(request, fresh)
        await (refused or self._app)(scope, receive, answer)

    def _refusal(self, request: Request, session: str) -> Response | None:
        given = request.headers.get("host", "")
        host = _host_of(given)
        if given and not host:
            return PlainTextResponse("The Host header is no name of a machine.\n", 421)
        if self._hosts is not None and host not in self._hosts:
            return PlainTextResponse(
                "This page answers to requests for this machine's own names only "
                f"({', '.join(sorted(self._hosts))}), and this one asks for another.\n",
                421,
            )
        if not _is_from_here(request):
            return PlainTextResponse("This was asked for by another site's page.\n", 403)
        # The routes go by this one; `request.url` is made of the Host header, too.
        path: str = request.scope["path"]
        if self.may_see(session) or path == LOGIN or path.startswith(STATIC):
            return None
        if request.method != "GET" or request.headers.get("x-live"):
            return PlainTextResponse("Log in first.\n", 401)
        return RedirectResponse(f"/login?to={quote(path)}", 303)

    @property
    def needs_token(self) -> bool:
        """Whether there is one."""
        return self._token is not None

    def is_token(self, given: str) -> bool:
        """In a time that tells nothing of how much of it is right."""
        return self._token is not None and hmac.compare_digest(_digest(given), _digest(self._token))

    def is_known(self, session: str) -> bool:
        """Whether who has the session knew the token."""
        return self._known.get(session, 0.0) > time.monotonic()

    def may_see(self, session: str) -> bool:
        """Whether who has the session is shown what is known of the cluster."""
        return self._token is None or self.is_known(session)

    def log_in(self, response: Response) -> None:
        """A session of a new name, which nobody can have given the browser before."""
        session = secrets.token_urlsafe(32)
        self._known[session] = time.monotonic() + SESSION_S
        while len(self._known) > SESSIONS:
            self._known.popitem(last=False)
        response.headers.append("Set-Cookie", self._as_cookie(session))

    def log_out(self, session: str) -> None:
        """It knows nothing any more."""
        self._known.pop(session, None)

    def word_of(self, session: str) -> str:
        """What a form of this session's pages bears."""
        return hmac.new(self._key, session.encode(), hashlib.sha256).hexdigest()

    def _session(self, request: Request) -> str:
        jar: SimpleCookie = SimpleCookie()
        try:
            jar.load(request.headers.get("cookie", ""))
        except CookieError:
            return ""
        found = jar[self._cookie].value if self._cookie in jar else ""
        return found if _SESSION_ID.fullmatch(found) else ""

    def _as_cookie(self, session: str) -> str:
        return f"{self._cookie}={session}; HttpOnly; SameSite=Strict; Path=/"


async def form_of(request: Request) -> dict[str, str]:
    """A form's fields. Raises Refused: it is not from a page of this session."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_MAX:
            raise Refused
    try:
        fields = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=50)
    except ValueError:
        raise Refused from None
    found = {name: values[0] for name, values in fields.items()}
    gate, session = request.scope["eo_kafka.gate"], request.scope["eo_kafka.session"]
    if not hmac.compare_digest(_digest(found.get(CSRF, "")), _digest(gate.word_of(session))):
        raise Refused
    return found


def local_path(text: str) -> str:
    """Where to go after the login: on this server, whatever a link says."""
    is_path = re.fullmatch(r"/[A-Za-z0-9._~%/-]*", text) and not text.startswith("//")
    return text if is_path else "/"


def _is_from_here(request: Request) -> bool:
    """Whether a page of ours asks, or a person: by an address, a bookmark, a link. Another site's
    page can have a browser ask for thousands of addresses, each of which asks Kafka."""
    headers = request.headers
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        is_opened = (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest"))
        return request.method == "GET" and is_opened == ("navigate", "document")
    origin = headers.get("origin")
    is_ours = origin is None or urlsplit(origin).netloc == headers.get("host", "")
    return is_ours or request.method != "POST"


def _host_of(header: str) -> str:
    """Without the port: a tunnel may have another one. Empty: it is none."""
    found = _HOST.fullmatch(header)
    return (found[1] or found[2]).lower() if found else ""


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
