"""Login by OAuth: what is asked of its settings, and how long a token is used."""

from __future__ import annotations

import base64
import json
import time

import pytest

from eo_kafka.clients.kafka import oauth, token_feed
from eo_kafka.clients.kafka.oauth import Token, Tokens
from eo_kafka.errors import EnvironmentRefused

P = "sasl.oauthbearer"
SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
WHOLE = {
    **SASL,
    f"{P}.token.endpoint.url": "https://id.example/token",
    f"{P}.client.id": "me",
    f"{P}.client.secret": "s3cret",
}
FUNCTION = {**SASL, "oauth_cb": "tests.test_oauth:by_function", f"{P}.config": "given"}


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
        ({**SASL, "oauth_cb": "no.such:f"}, ["cannot be imported by the driver"]),
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
        token_feed.make(dict, {**SASL, "oauth_cb": "tests.test_oauth:nothing"})


class Source:
    """Gives numbered tokens of ten seconds, or fails."""

    def __init__(self) -> None:
        self.given, self.broken, self.asked = 0, False, 0

    def __call__(self) -> Token:
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
    assert oauth._expiry(f"head.{claims}.signature") == 12
    for text in ("opaque", "a.b.c", "a.e30.c"):
        assert oauth._expiry(text) == 0
