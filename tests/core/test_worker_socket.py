"""Whether the JVM holds on to its end; and what it and a worker write each other does not wait for
TCP's timers."""

from __future__ import annotations

import gc
import socket
import struct
import sys
from collections.abc import Iterator

import pytest

from eo_kafka.core.process import worker_socket

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair(monkeypatch) -> Iterator[Pair]:
    """A worker's end of a connection, and the JVM's."""
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    monkeypatch.setattr(worker_socket, "_mine", [])
    before = list(gc.callbacks)
    with socket.create_server(("127.0.0.1", 0)) as server:
        jvm = socket.create_connection(server.getsockname())
        mine, _ = server.accept()
    with mine, jvm:
        yield mine, jvm
    gc.callbacks[:] = before


def worker(sock: socket.socket) -> None:
    worker_socket.speak_at_once()


def is_set(connection: socket.socket, option: int) -> bool:
    return bool(connection.getsockopt(socket.IPPROTO_TCP, option))


def converse(mine: socket.socket, jvm: socket.socket) -> None:
    for _ in range(5):
        jvm.sendall(b"a task")
        mine.recv(100)
        mine.sendall(b"rows")
        jvm.recv(100)


def test_what_is_written_is_sent_at_once(pair):
    assert not is_set(pair[0], socket.TCP_NODELAY)
    worker(pair[0])
    assert is_set(pair[0], socket.TCP_NODELAY)


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_QUICKACK is Linux's")
def test_what_comes_is_acknowledged_at_once_after_each_task(pair):
    mine, jvm = pair
    worker(mine)
    for _ in range(2):
        converse(mine, jvm)
        assert not is_set(mine, socket.TCP_QUICKACK), "the kernel did not take it back"
        gc.collect()
        assert is_set(mine, socket.TCP_QUICKACK)


def test_a_worker_has_one_connection(pair):
    worker(pair[0])
    worker(pair[0])
    assert len(worker_socket._mine) == 1
    assert gc.callbacks.count(worker_socket._acknowledge_at_once) == 1


def test_a_connection_that_is_closed_is_no_error(pair, capsys):
    worker(pair[0])
    pair[0].close()
    gc.collect()
    assert capsys.readouterr().err == ""


def test_unix_sockets_and_other_processes_are_left_alone(pair, monkeypatch):
    mine, other = socket.socketpair()
    with mine, other:
        worker(mine)
    monkeypatch.delenv("SPARK_REUSE_WORKER")
    worker(pair[0])
    worker_socket.speak_at_once()
    assert worker_socket._mine == []
    assert not is_set(pair[0], socket.TCP_NODELAY)


def in_worker(sock: socket.socket) -> bool:
    def worker(sock: socket.socket) -> bool:  # as pyspark/daemon.py calls it
        return worker_socket.jvm_holds_on()

    return worker(sock)


def test_a_jvm_that_waits_or_has_said_more_holds_on(pair):
    mine, jvm = pair
    assert in_worker(mine)
    jvm.sendall(b"that was all")
    assert in_worker(mine)
    assert mine.recv(100) == b"that was all", "it was not only looked at"


def test_a_jvm_that_has_closed_its_end_has_let_go(pair):
    mine, jvm = pair
    jvm.close()
    assert not in_worker(mine)


def test_a_jvm_that_was_reset_has_let_go(pair):
    mine, jvm = pair
    mine.sendall(b"unread")
    jvm.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    jvm.close()
    assert not in_worker(mine)


def test_a_process_for_one_task_knows_its_jvm_by_the_port(pair, monkeypatch):
    mine, jvm = pair
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", str(mine.getpeername()[1]))
    assert worker_socket.jvm_holds_on()
    jvm.close()
    assert not worker_socket.jvm_holds_on()


def test_where_there_is_no_jvm_nothing_is_said_of_it(pair):
    pair[1].close()
    assert worker_socket.jvm_holds_on()
