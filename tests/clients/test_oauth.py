"""Login by OAuth: what is asked of its settings, and how long a token is used."""

from __future__ import annotations

import base64
import json
import math
import socketserver
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from eo_kafka.clients.kafka.login import oauth, token_endpoint, token_feed
from eo_kafka.clients.kafka.login.oauth import Token, Tokens
from eo_kafka.core import patience
from eo_kafka.core.process import driver_directory, moment
from eo_kafka.errors import EnvironmentRefused, Unreachable

P = "sasl.oauthbearer"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
WHOLE = {
    **SASL,
    f"{P}.token.endpoint.url": "https://id.example/token",
    f"{P}.client.id": "me",
    f"{P}.client.secret": "s3cret",
}
FUNCTION = {**SASL, "oauth_cb": f"{__name__}:by_function", f"{P}.config": "given"}


def by_function(given: str) -> object:
    return f"token for {given}", time.time() + 60


def nothing(_: str) -> object:
    return "token"


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sasl.mechanism": "PLAIN", "security.protocol": "SASL_SSL"},
        {**WHOLE, f"{P}.method": "oidc", f"{P}.scope": "a b", f"{P}.extensions": "a=b,c=d=e"},
        {**WHOLE, "security.protocol": "sasl_plaintext", "sasl.mechanism": "oauthbearer"},
        {**SASL, "oauth_cb": "json:loads"},
    ],
)
def test_what_is_whole_has_no_problem(settings: dict[str, str]) -> None:
    assert oauth.problems(settings) == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (SASL, [".token.endpoint.url' must be", ".client.id' must be", ".client.secret' must be"]),
        ({**WHOLE, f"{P}.client.id": " "}, [".client.id' must be specified"]),
        ({**WHOLE, f"{P}.token.endpoint.url": "id.example"}, ["must be a URL"]),
        ({**WHOLE, f"{P}.grant.type": "jwt"}, ["'kafka.oauth_cb'"]),
        ({**WHOLE, f"{P}.extensions": "a"}, ["'name=value,name=value'"]),
        ({**SASL, "oauth_cb": "no"}, ["must be 'module:function'"]),
        ({**SASL, "oauth_cb": "no.such:f"}, ["cannot be imported on host"]),
        ({"oauth_cb": "json:loads"}, ["needs 'kafka.sasl.mechanism' OAUTHBEARER"]),
        ({**SASL, "sasl.mechanism": "AWS_MSK_IAM"}, ["which only Java knows"]),
    ],
)
def test_what_is_wrong_is_said_all_at_once(settings: dict[str, str], told: list[str]) -> None:
    found = oauth.problems(settings)
    assert len(found) == len(told)
    for sentence, words in zip(found, told, strict=True):
        assert words in sentence
        assert "s3cret" not in sentence


def test_where_no_token_can_be_set_a_client_gets_a_callback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(token_feed, "_can_be_set", lambda: False)
    given = token_feed.make(dict, {**FUNCTION, "linger.ms": "5"})
    callback = given.pop("oauth_cb")
    assert given == {**SASL, "linger.ms": "5"}
    text, expires, principal, extensions = callback("")
    assert (text, principal, extensions) == ("token for given", "", {})
    assert expires > time.time()
    assert oauth.provider(FUNCTION).token() == text


def test_another_login_is_left_as_it_is() -> None:
    plain = {"sasl.mechanism": "PLAIN", "security.protocol": "SASL_SSL", "https.ca.location": "x"}
    assert token_feed.make(dict, plain) == plain
    assert oauth.provider(plain) is None


def test_a_function_that_gives_no_token_is_told_what_it_must_return() -> None:
    with pytest.raises(EnvironmentRefused, match=r"test_oauth:nothing.* must return the token"):
        token_feed.make(dict, {**SASL, "oauth_cb": f"{__name__}:nothing"})


class Source:
    """Gives numbered tokens of ten seconds, or fails."""

    def __init__(self) -> None:
        self.given, self.broken, self.asked = 0, False, 0

    def __call__(self, _: bool = True) -> Token:
        self.asked += 1
        if self.broken:
            raise EnvironmentRefused("away")
        self.given += 1
        return Token(str(self.given), time.time() + 10)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(oauth.time, "time", lambda: now[0])
    return now


def test_a_token_is_renewed_before_it_ends(clock: list[float]) -> None:
    tokens = Tokens(Source())
    shown = []
    for clock[0] in (1000, 1007, 1008, 1015, 1016.5):
        shown.append(tokens.current().text)
    assert shown == ["1", "1", "2", "2", "3"]


def test_a_clock_that_is_set_back_makes_no_token_last(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = [50.0]
    monkeypatch.setattr(moment, "seconds", lambda: running[0])
    source = Source()
    tokens = Tokens(source)
    shown = []
    for clock[0], running[0] in ((1000, 50), (800, 57), (801, 58), (808, 65), (809.5, 66.5)):
        shown.append(tokens.current().text)
    assert shown == ["1", "1", "2", "2", "3"]
    source.broken = True
    for clock[0], running[0] in ((500, 75), (500.1, 75.1)):
        assert tokens.current().text == "3"
    assert source.asked == 4, "it is left in peace while the old one lasts"
    running[0] = 77
    with pytest.raises(EnvironmentRefused, match="away"):
        tokens.current()


def test_the_old_one_is_used_while_it_lasts_and_the_source_is_left_in_peace(
    clock: list[float],
) -> None:
    source = Source()
    tokens = Tokens(source)
    tokens.current()
    source.broken = True
    for clock[0] in (1008.5, 1009, 1009.9):
        assert tokens.current().text == "1"
    assert source.asked == 2
    clock[0] = 1010
    with pytest.raises(EnvironmentRefused, match="away"):
        tokens.current()
    source.broken = False
    assert tokens.current().text == "2"


def test_a_token_shows_itself_to_nobody() -> None:
    assert "s3cret" not in repr(Token("s3cret", 1.0))


def test_the_end_of_a_token_is_read_out_of_it() -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": 12}).encode()).decode().rstrip("=")
    assert token_endpoint._expiry(f"head.{claims}.signature") == 12
    for text in ("opaque", "a.b.c", "a.e30.c"):
        assert token_endpoint._expiry(text) == 0


def test_a_thread_that_renews_keeps_no_other_waiting_while_the_old_one_lasts(
    clock: list[float],
) -> None:
    asked, may_go_on = threading.Event(), threading.Event()

    def slow(_: bool) -> Token:
        if tokens.newest is not None:
            asked.set()
            assert may_go_on.wait(10)
        return Token("new" if tokens.newest else "old", clock[0] + 10)

    tokens = Tokens(slow)
    tokens.current()
    clock[0] = 1009
    other = threading.Thread(target=tokens.current)
    other.start()
    assert asked.wait(10)
    assert tokens.current().text == "old"
    may_go_on.set()
    other.join(10)
    assert tokens.current().text == "new"


def test_an_endpoint_that_hangs_is_left_in_peace_after_its_answer(clock: list[float]) -> None:
    def hangs(_: bool) -> Token:
        if tokens.newest is None:
            return Token("1", clock[0] + 100)
        asked.append(clock[0])
        clock[0] += oauth.TRY_AGAIN_S
        raise EnvironmentRefused("hangs")

    asked: list[float] = []
    tokens = Tokens(hangs)
    tokens.current()
    clock[0] = 1081
    for _ in range(3):
        assert tokens.current().text == "1"
    assert asked == [1081]


@pytest.mark.parametrize("given", [("secret-token", "x"), (1.0, "secret-token"), (b"t", 1), "ab"])
def test_what_a_function_returns_is_not_told(
    monkeypatch: pytest.MonkeyPatch, given: object
) -> None:
    monkeypatch.setattr(f"{__name__}.nothing", lambda _: given)
    with pytest.raises(EnvironmentRefused, match="seconds since 1970") as refused:
        token_feed.make(dict, {**SASL, "oauth_cb": f"{__name__}:nothing"})
    assert "secret-token" not in str(refused.value)


@pytest.mark.parametrize("lasts", [1e12, math.inf, math.nan])
def test_a_token_that_would_never_be_renewed_is_refused(
    monkeypatch: pytest.MonkeyPatch, lasts: float
) -> None:
    """Milliseconds, say, of which Amazon's signer tells."""
    monkeypatch.setattr(f"{__name__}.nothing", lambda _: ("token", time.time() + lasts))
    with pytest.raises(EnvironmentRefused, match=r"milliseconds|clock"):
        token_feed.make(dict, {**SASL, "oauth_cb": f"{__name__}:nothing"})


@pytest.fixture
def endpoint() -> Iterator[Callable[[bytes], dict[str, str]]]:
    """Settings with a token endpoint that gives these bytes to whoever asks."""
    servers = []

    def made(answer: bytes) -> dict[str, str]:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                self.request.recv(65536)
                self.request.sendall(answer)

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return {
            **WHOLE,
            f"{P}.token.endpoint.url": f"http://127.0.0.1:{server.server_address[1]}/",
        }

    yield made
    for server in servers:
        server.shutdown()
        server.server_close()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0\r\n",
        OK % (100, b'{"acc'),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        OK % (18, b'{"access_token":5}'),
        OK % (38, b'{"access_token":null, "expires_in":60}'),
        OK % (36, b'{"access_token":"", "expires_in":60}'),
        OK % (50_000, b"[" * 50_000),
        OK % (0, b""),
    ],
)
def test_an_answer_that_is_none_is_told_in_a_sentence(
    endpoint: Callable[[bytes], dict[str, str]], answer: bytes
) -> None:
    with pytest.raises(EnvironmentRefused, match="The token endpoint http"):
        token_feed.make(dict, endpoint(answer))


def test_the_secret_follows_no_redirect(endpoint: Callable[[bytes], dict[str, str]]) -> None:
    other = endpoint(OK % (38, b'{"access_token":"t", "expires_in":600}'))
    to = other[f"{P}.token.endpoint.url"].encode()
    here = endpoint(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %b\r\n\r\n" % to)
    with pytest.raises(EnvironmentRefused, match="HTTP 302"):
        token_feed.make(dict, here)


AWAY = b"HTTP/1.1 %d Away\r\nContent-Length: 8\r\n\r\nstarting"


@pytest.mark.parametrize("status", [500, 503, 429])
def test_an_endpoint_that_is_away_is_an_outage(
    endpoint: Callable[[bytes], dict[str, str]], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(token_endpoint, "_PATIENCE_AT_FIRST_S", 0.0)
    with pytest.raises(Unreachable, match=f"HTTP {status}: starting.*it answers again") as away:
        token_feed.make(dict, endpoint(AWAY % status))
    assert away.value.retriable
    assert "client.secret" not in str(away.value)


@pytest.mark.parametrize("status", [400, 401, 403])
def test_one_that_refuses_is_none(endpoint: Callable[[bytes], dict[str, str]], status: int) -> None:
    with pytest.raises(EnvironmentRefused, match=r"starting.*Check .*client\.secret") as refused:
        token_feed.make(dict, endpoint(AWAY % status))
    assert not refused.value.retriable


def test_one_that_has_given_a_token_is_waited_for_as_brokers_are(
    endpoint: Callable[[bytes], dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_directory, "_seen", set())
    monkeypatch.setattr(token_endpoint, "_PATIENCE_AT_FIRST_S", 0.0)
    monkeypatch.setattr(patience, "OUTAGE_S", 0.7)
    tells = endpoint(AWAY % 503)
    url = tells[f"{P}.token.endpoint.url"]
    seen: list[float] = []
    for _ in range(2):
        began = time.monotonic()
        with pytest.raises(token_endpoint.NoToken):
            token_endpoint.ask(url, ("me", "s3cret"), None, oauth._tls({}), patient=True)
        seen.append(time.monotonic() - began)
        patience.served(url)
    assert seen[0] < 0.5
    assert 0.7 <= seen[1] < 10


def test_threads_that_waited_for_another_one_hear_of_the_same_outage() -> None:
    asks, fails = threading.Event(), threading.Event()

    def source(_: bool) -> Token:
        asks.set()
        assert fails.wait(10)
        raise Unreachable("away")

    tokens, raised = Tokens(source), []

    def ask() -> None:
        try:
            tokens.current()
        except EnvironmentRefused as error:
            raised.append(type(error))

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(2)]
    threads[0].start()
    assert asks.wait(10)
    threads[1].start()
    time.sleep(0.2)  # it waits for its turn
    fails.set()
    for thread in threads:
        thread.join(10)
    assert raised == [Unreachable, Unreachable]


class Client:
    """Like one of confluent-kafka's."""


def test_a_feed_keeps_no_client_and_gives_each_the_newest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[tuple[object, str]] = []
    monkeypatch.setattr(token_feed, "_set", lambda one, token: given.append((id(one), token.text)))
    source = Source()
    tokens = Tokens(lambda _: replace(source(), expires=time.time() + 0.5))
    feed, client = token_feed._Feed(tokens), Client()
    before = tokens.current()
    tokens.renew_at = 0
    tokens.current()  # by another thread, after the client was given the one of before
    feed.add(client, before)
    assert given == [(id(client), "2")]
    deadline = time.monotonic() + 10
    while len(given) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    source.broken = True  # with an error of any kind the thread goes on
    seen = weakref.ref(client)
    del client
    assert seen() is None, "the thread sleeps with the client in its hands"
    while feed._thread is not None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert feed._thread is None


def test_authorities_that_cannot_be_read_are_told() -> None:
    given = {**WHOLE, "https.ca.location": "/no/such/file"}
    with pytest.raises(EnvironmentRefused, match="'kafka.https.ca.location' .* cannot be read"):
        token_feed.make(dict, given)
