"""Transactional ids of which almost all epochs are used, as those of a job that has run for hours.

Each take of an id uses one of its 32,767 epochs, and on Kafka 4 each end of a transaction another
one. Then it gets another producer id, and begins with epoch 0.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

from eo_kafka.state.ledger.appender import NEW_TIMEOUT_MS
from harness import control_plane

_INIT_PRODUCER_ID, _VERSION = 22, 1
_LOADING = 14, 15, 16  # the coordinator
_AT_ONCE = 200


def age(server: str, epochs: Mapping[str, int]) -> None:
    """Of the only broker: take each id again and again, until it has this epoch. A coordinator's
    is that of a job without a ledger still."""
    with control_plane(server) as control:
        control.describe(list(epochs))  # so that there is a coordinator
    with ThreadPoolExecutor(len(epochs)) as each:
        list(each.map(lambda one: _age(server, *one), epochs.items()))


def _age(server: str, name: str, epoch: int) -> None:
    """kafka-python would take a minute for it."""
    whole = struct.pack(">hhi", _INIT_PRODUCER_ID, _VERSION, 0) + _text("test")
    whole += _text(name) + struct.pack(">i", NEW_TIMEOUT_MS)
    request, last = struct.pack(">i", len(whole)) + whole, -1
    host, _, port = server.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        answers = connection.makefile("rb")
        while last < epoch:
            count = min(_AT_ONCE, epoch - last if last >= 0 else 1)
            connection.sendall(request * count)
            last = [_taken(answers) for _ in range(count)][-1]


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _taken(answers: BinaryIO) -> int:
    """The epoch that an answer gives; -1: ask again."""
    (size,) = struct.unpack(">i", answers.read(4))
    _, _, error, _, epoch = struct.unpack(">iihqh", answers.read(size))
    assert error in (0, *_LOADING), f"InitProducerId is refused: {error}"
    return int(epoch)
