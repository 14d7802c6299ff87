"""What a supervisor tells over HTTP, for probes of Kubernetes and monitors: /live and /ready."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ...core.errors import OptionsError

LOOPBACK = "127.0.0.1"


def address(text: str, problems: list[str]) -> tuple[str, int]:
    """What `--health` names: `8080` or `127.0.0.1:8080`. What is wrong goes to `problems`."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not 0 < int(port) < 1 << 16:
        problems.append(f"--health takes PORT or HOST:PORT, not '{text}'.")
        return LOOPBACK, 0
    return host or LOOPBACK, int(port)


@contextmanager
def served(where: tuple[str, int] | None, view: Callable[[], dict[str, Any]]) -> Iterator[None]:
    """Answer there until the block ends. Raises OptionsError: nobody can listen there."""
    if where is None:
        yield
        return
    try:
        server = ThreadingHTTPServer(where, _handler(view))
    except OSError as error:
        raise OptionsError(
            [f"--health {where[0]}:{where[1]}: {error.strerror or error}."]
        ) from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


def _handler(view: Callable[[], dict[str, Any]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One request. It tells no message of an error and no option."""

        timeout = 5.0

        def do_GET(self) -> None:
            name = self.path.partition("?")[0].strip("/")
            if name not in ("live", "ready"):
                self.send_error(404, "There are /live and /ready")
                return
            shown = view()
            body = json.dumps(shown).encode() + b"\n"
            self.send_response(200 if shown[name] else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Probes come every few seconds."""

    return Handler
