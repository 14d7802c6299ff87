"""A schema registry that says nothing, or is away for a while."""

from __future__ import annotations

import http.server
import pickle
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from eo_kafka.core.patience import Wait
from eo_kafka.core.process import driver_directory
from eo_kafka.errors import EoKafkaError, OptionsError, ReadTimeout, SourceError
from eo_kafka.formats.shared import registry
from eo_kafka.formats.shared.registry import Registry, UnknownSchema

ONCE: dict[str, Any] = {"max.retries": 0}


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of one that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def waits(monkeypatch: pytest.MonkeyPatch, at_first_s: float) -> None:
    monkeypatch.setattr(registry, "Wait", partial(Wait, at_first_s=at_first_s))


def test_a_registry_that_says_nothing_holds_nobody(
    silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "ANSWER_S", 0.2)
    waits(monkeypatch, at_first_s=0)
    raised: list[EoKafkaError] = []

    def ask() -> None:
        try:
            Registry({"url": silent, **ONCE}).schema(1)
        except EoKafkaError as error:
            raised.append(error)

    asks = threading.Thread(target=ask, daemon=True)
    asks.start()
    asks.join(10)
    assert not asks.is_alive()
    assert "did not answer: ReadTimeout" in str(raised[0])


@pytest.mark.parametrize(("given", "meant"), [("2.5", 2.5), (20, 20.0)])
def test_how_long_it_may_take_is_the_users_to_say(given: Any, meant: float) -> None:
    client = Registry({"url": "http://registry", "timeout": given})._client
    assert client._rest_client.timeout == meant


@pytest.mark.parametrize("given", ["soon", "0", "-1", "nan", "inf"])
def test_a_time_that_is_none_is_told(given: str) -> None:
    with pytest.raises(OptionsError, match="'timeout' must be a number of seconds; it is"):
        Registry({"url": "http://registry", "timeout": given})


# --- outages ------------------------------------------------------------------------------------


class Answers:
    """An HTTP server that answers with these statuses, the last one for good."""

    def __init__(self) -> None:
        self.statuses = [200]
        self.refusal = b'{"error_code": 40403, "message": "busy"}'
        self.asked = 0
        answers = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                left = answers.statuses
                status = left.pop(0) if len(left) > 1 else left[0]
                answers.asked += 1
                body = b'{"schema": "\\"long\\"", "id": 7}' if status == 200 else answers.refusal
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answers]:
    monkeypatch.setattr(driver_directory, "_seen", set())
    made = Answers()
    with made.server:
        threading.Thread(target=made.server.serve_forever, args=(0.05,), daemon=True).start()
        yield made
        made.server.shutdown()


def test_a_number_is_asked_for_once_a_process(answers: Answers) -> None:
    """Each task of each batch unpickles one of its own."""
    for _ in range(2):
        assert pickle.loads(pickle.dumps(Registry({"url": answers.url}))).schema(1) == '"long"'
    assert answers.asked == 1
    other = Registry({"url": answers.url, "basic.auth.user.info": "somebody:else"})
    assert other.schema(1) == '"long"'
    assert answers.asked == 2
    answers.statuses = [404]
    for _ in range(2):
        with pytest.raises(UnknownSchema):
            Registry({"url": answers.url}).schema(2)
    assert answers.asked == 4


def test_the_newest_of_a_subject_is_told_to_the_tasks(answers: Answers) -> None:
    driver = Registry({"url": answers.url})
    assert driver.latest("orders-value", "") == '"long"'
    asked = answers.asked
    task = pickle.loads(pickle.dumps(driver))
    assert task.schema(7) == '"long"'
    assert task._known is None, "not even a client"
    assert answers.asked == asked


@pytest.mark.parametrize("status", [500, 429])
def test_a_registry_that_is_back_soon_is_waited_for(answers: Answers, status: int) -> None:
    answers.statuses = [status, 200]
    assert Registry({"url": answers.url, **ONCE}).schema(1) == '"long"'
    assert answers.asked == 2


@pytest.mark.parametrize("status", [500, 503, 429])
def test_one_that_stays_away_is_an_outage(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    waits(monkeypatch, at_first_s=0)
    answers.statuses = [status]
    with pytest.raises(ReadTimeout, match=f"HTTP {status}.*Start again when it is up") as raised:
        Registry({"url": answers.url, **ONCE}).schema(1)
    assert raised.value.retriable
    assert answers.asked == 1


def test_so_is_one_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    waits(monkeypatch, at_first_s=0)
    with pytest.raises(ReadTimeout, match="did not answer: ConnectError"):
        Registry({"url": "http://127.0.0.1:1", **ONCE}).schema(1)


@pytest.mark.parametrize("first", [200, 404])
def test_an_outage_of_one_that_has_answered_is_waited_for_longer(
    answers: Answers, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    waits(monkeypatch, at_first_s=0)
    one = Registry({"url": answers.url, **ONCE})
    answers.statuses = [first, 503, 200]
    with suppress(UnknownSchema):
        one.schema(1)
    assert one.schema(2) == '"long"'


@pytest.mark.parametrize("status", [400, 401, 403, 409, 422])
def test_what_it_refuses_is_told_at_once(answers: Answers, status: int) -> None:
    answers.statuses = [status]
    with pytest.raises(SourceError, match="refused schema 1") as raised:
        Registry({"url": answers.url}).schema(1)
    assert not raised.value.retriable
    assert answers.asked == 1


def test_so_is_what_no_waiting_mends() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk_in_clear() -> None:
            talk, _ = listener.accept()
            with talk:
                talk.recv(4096)
                talk.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=talk_in_clear, daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(SourceError, match="did not answer") as raised:
            Registry({"url": url, **ONCE}).schema(1)
        assert not raised.value.retriable
