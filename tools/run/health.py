"""What a supervisor tells over HTTP: /live and /ready for probes of Kubernetes, /metrics."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ...core.errors import OptionsError

LOOPBACK = "127.0.0.1"


Page = tuple[int, str, bytes]  # status, type of the content, content
Answer = Callable[[str], Page]  # of what the client accepts: its header of that name


def address(option: str, text: str, problems: list[str]) -> tuple[str, int]:
    """What `--health` or `--metrics` names: `8080` or `127.0.0.1:8080`. What is wrong goes to
    `problems`."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        problems.append(f"{option} takes PORT or HOST:PORT, not '{text}'.")
        return LOOPBACK, 0
    return host or LOOPBACK, int(port)


@contextmanager
def served(
    option: str, where: tuple[str, int] | None, pages: Mapping[str, Answer]
) -> Iterator[None]:
    """Answer there until the block ends: what `pages` has for a path. Raises OptionsError: nobody
    can listen where the option says."""
    if where is None:
        yield
        return
    try:
        server = ThreadingHTTPServer(where, _handler(pages))
    except OSError as error:
        raise OptionsError(
            [f"{option} {where[0]}:{where[1]}: {error.strerror or error}."]
        ) from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def probes(view: Callable[[], dict[str, Any]]) -> dict[str, Answer]:
    """/live and /ready of what `view` tells."""

    def probe(name: str, _: str) -> Page:
        shown = view()
        body = json.dumps(shown).encode() + b"\n"
        return 200 if shown[name] else 503, "application/json", body

    return {name: partial(probe, name) for name in ("live", "ready")}


def _handler(pages: Mapping[str, Answer]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One request. It tells no message of an error and no option."""

        timeout = 5.0

        def do_GET(self) -> None:
            name = self.path.partition("?")[0].strip("/")
            if name not in pages:
                self.send_error(404, f"There is /{' and /'.join(pages)}")
                return
            status, kind, body = pages[name](self.headers.get("Accept", ""))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes come every few seconds."""

    return Handler
