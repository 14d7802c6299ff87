"""A server that the workers of one test run share: started once, and ended after its last user."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from eo_kafka.testing import shared_servers
from eo_kafka.testing.processes import wait_until

WORKER = """
import sys
from contextlib import contextmanager
from pathlib import Path
from eo_kafka.testing import shared_servers
said = Path(sys.argv[1])

def say(word):
    with said.open("a") as log:
        log.write(word + " ")

@contextmanager
def server():
    say("started")
    yield "here"
    say("ended")

print(shared_servers.address_of("one", server, str), flush=True)
sys.stdin.readline()
shared_servers.leave()
if "lives on" in sys.argv:
    print("left", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Starts a worker that uses the server until it is told to end."""
    monkeypatch.setenv(shared_servers.FOLDER, str(tmp_path))
    running: list[subprocess.Popen] = []

    def start(*more: str) -> subprocess.Popen:
        command = [sys.executable, "-c", WORKER, str(tmp_path / "said"), *more]
        running.append(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait()


def told_to_end(process: subprocess.Popen) -> None:
    process.stdin.write("\n")
    process.stdin.flush()


def test_it_is_started_once_and_ends_with_its_last_user(worker, tmp_path):
    first, second = worker(), worker()
    assert [process.stdout.readline() for process in (first, second)] == ["here\n"] * 2
    third = worker()
    assert third.stdout.readline() == "here\n"
    for process in (first, second):
        told_to_end(process)
    # whichever of the two has started it waits for the third; the other one ends
    wait_until(lambda: [first.poll(), second.poll()].count(0) == 1, "one of them has ended", 30)
    assert (tmp_path / "said").read_text() == "started "
    told_to_end(third)
    assert [process.wait(30) for process in (first, second, third)] == [0, 0, 0]
    assert (tmp_path / "said").read_text() == "started ended "


def test_who_comes_after_it_has_ended_starts_it_anew(worker, tmp_path):
    """Whatever the worker does that had started it: xdist ends none before all have ended."""
    first = worker("lives on")
    assert first.stdout.readline() == "here\n"
    told_to_end(first)
    assert first.stdout.readline() == "left\n"
    second = worker()
    wait_until(lambda: (tmp_path / "said").read_text() == "started ended started ", "it is", 30)
    assert second.stdout.readline() == "here\n"
    told_to_end(second)
    assert second.wait(30) == 0


def test_a_user_that_was_killed_holds_nobody_up(worker, tmp_path):
    first = worker()
    assert first.stdout.readline() == "here\n"
    second = worker()
    assert second.stdout.readline() == "here\n"
    told_to_end(first)
    second.kill()
    assert first.wait(30) == 0
    assert (tmp_path / "said").read_text() == "started ended "


def test_a_server_that_is_gone_is_named_at_once(monkeypatch, tmp_path):
    monkeypatch.setenv(shared_servers.FOLDER, str(tmp_path))
    monkeypatch.setitem(shared_servers._in_use, "one", 0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        (tmp_path / "one").write_text(address)
        shared_servers.check("one")
    with pytest.raises(RuntimeError, match=f"'one' at {address} that all workers share is gone"):
        shared_servers.check("one")
