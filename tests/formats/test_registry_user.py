"""Who asks a schema registry, where its URL says it: the client logs each URL that it asks."""

from __future__ import annotations

import base64
import http.server
import json
import logging
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest

from eo_kafka.errors import OptionsError
from eo_kafka.formats.shared.registry import Registry

USER_INFO = "basic.auth.user.info"


class Answers(http.server.BaseHTTPRequestHandler):
    asked: ClassVar[list[str]] = []  # the users

    def do_GET(self) -> None:
        kind, _, user = self.headers.get("Authorization", "").partition(" ")
        assert kind in ("", "Basic")
        self.asked.append(base64.b64decode(user).decode())
        body = json.dumps({"schema": '"string"'}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def place() -> Iterator[str]:
    """Host and port of a registry that takes everybody."""
    Answers.asked = []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("url", "user"),
    [
        ("http://me:MARKER@{}", "me:MARKER"),
        ("http://me:MAR%2FKER%40%25@{}/", "me:MAR/KER@%"),
        ("http://me:MARKER:x@{}", "me:MARKER:x"),
        ("http://MARKER@{}", "MARKER:"),
        ("http://me:MARKER@{0}, http://me:MARKER@{0}", "me:MARKER"),
        ("http://{}", ""),
    ],
)
def test_its_password_is_not_logged(place: str, caplog, url: str, user: str) -> None:
    with caplog.at_level(logging.DEBUG):
        known = Registry({"url": url.format(place)})
        assert known.schema(7) == '"string"'
    assert Answers.asked == [user]
    assert any(f"{place}/schemas/ids/7" in one for one in caplog.messages), "the client's line"
    for text in (*caplog.messages, known.url, repr(known)):
        assert "MAR" not in text


@pytest.mark.parametrize(
    ("url", "beside"),
    [
        ("http://me:MARKER@one,http://two", {}),
        ("http://me:MARKER@one,http://you:MARKER@two", {}),
        ("http://me:MARKER@one", {USER_INFO: "me:MARKER"}),
        ("http://me:MAR/KER@one", {}),
        ("http://me:MAR,KER@one", {}),
        ("http://me:MAR?KER@one", {}),
        ("http://me:1#MARKER@one", {}),
        ("http://[me:MARKER@one", {}),
    ],
)
def test_what_is_unclear_is_refused(url: str, beside: dict[str, str]) -> None:
    with pytest.raises(OptionsError, match=USER_INFO) as told:
        Registry({"url": url, **beside})
    assert "MAR" not in str(told.value)
    assert "KER" not in str(told.value)
    assert told.value.__cause__ is None
