"""A TCP proxy that hands on what a server says at so many bytes a second. It knows no protocol."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

PIECE = 16384


@contextmanager
def slow_wire(target: int, bytes_per_s: int) -> Iterator[int]:
    """The port, before that of a server on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):  # the listener was closed
                while True:
                    client, _ = listener.accept()
                    server = socket.create_connection(("127.0.0.1", target))
                    for ends in ((client, server, 0.0), (server, client, PIECE / bytes_per_s)):
                        threading.Thread(target=_pump, args=ends, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, sink: socket.socket, pause_s: float) -> None:
    with suppress(OSError):
        while data := source.recv(PIECE):
            time.sleep(pause_s * len(data) / PIECE)
            sink.sendall(data)
    for one in (source, sink):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
