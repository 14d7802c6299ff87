"""Gives out tokens for client credentials, as an identity provider does, and the keys by which
Kafka's brokers check them. Real signatures, by RSA; on loopback."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import RSAKey
from typing_extensions import Self

AUDIENCE = "kafka"
CLIENT_SECRET = "s3cret-of-the-client-Vt3"


class TokenIssuer:
    """Running while it is entered. `lasts_s`: of the next tokens. `broken`: every request for a
    token is answered 503. `given`: the tokens, so that a test can look for them."""

    def __init__(self, folder: Path, store: Path | None = None) -> None:
        """`folder` is for its keys, `store` has certificate and key in PEM, for https."""
        self.lasts_s = 3600.0
        self.broken = False
        self.given: list[str] = []
        self.keys = folder / "keys.json"
        self._key = RSAKey.generate_key(2048, {"kid": uuid.uuid4().hex}, auto_kid=False)
        self.keys.write_text(json.dumps({"keys": [self._key.as_dict(private=False)]}))
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._scheme = "http"
        if store is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(store)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self._scheme = "https"

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def java_option(self) -> str:
        """Kafka looks for keys only where its JVM was told that it may."""
        name = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
        return f"-D{name}={self.keys.as_uri()}"

    def broker_properties(self, reauthenticated_ms: int) -> dict[str, object]:
        """What a broker's listener is told of this issuer. Its keys are in a file: for an address
        the JVM would have to be told, too, which authority to trust."""
        module = "org.apache.kafka.common.security.oauthbearer"
        return {
            "sasl.jaas.config": f"{module}.OAuthBearerLoginModule required;",
            "sasl.server.callback.handler.class": f"{module}.OAuthBearerValidatorCallbackHandler",
            "sasl.oauthbearer.jwks.endpoint.url": self.keys.as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "connections.max.reauth.ms": reauthenticated_ms,
        }

    def settings(self, client: str, secret: str = CLIENT_SECRET) -> dict[str, str]:
        """How a Kafka client logs in with its tokens."""
        return {
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"{self.url}/token",
            "sasl.oauthbearer.client.id": client,
            "sasl.oauthbearer.client.secret": secret,
        }

    def token(self, client: str, audience: str = AUDIENCE) -> tuple[str, float]:
        """A token, and when it expires."""
        now = time.time()
        expires = now + self.lasts_s
        claims = {"sub": client, "aud": audience, "iat": int(now), "exp": expires, "scope": "all"}
        made = jwt.encode({"alg": "RS256", "kid": self._key.kid}, claims, self._key)
        self.given.append(made)
        return made, expires

    def _answer(self, head: Mapping[str, str], asked: Mapping[str, list[str]]) -> tuple[int, dict]:
        kind, _, login = head.get("Authorization", "").partition(" ")
        client, _, secret = base64.b64decode(login).decode().partition(":")
        if self.broken:
            return 503, {"error": "temporarily_unavailable"}
        if kind != "Basic" or secret != CLIENT_SECRET:
            return 401, {"error": "invalid_client"}
        if asked.get("grant_type") != ["client_credentials"]:
            return 400, {"error": "unsupported_grant_type"}
        audience = asked.get("scope", [AUDIENCE])[0]
        made, _ = self.token(client, audience)
        return 200, {"access_token": made, "token_type": "Bearer", "expires_in": self.lasts_s}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._say(*issuer._answer(self.headers, parse_qs(body)))

            def _say(self, code: int, told: dict) -> None:
                body = json.dumps(told).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Not on a test's output."""

        return Handler
