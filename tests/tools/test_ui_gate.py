"""Who may see the page of `eo-kafka ui`, and who may act: what a browser could be made to send."""

from __future__ import annotations

import argparse
import re
import sys
from types import SimpleNamespace

import pytest
from ui_world import NASTY, OWN_NAMES, SECRET, TOKEN, World, job

from eo_kafka.core.errors import OptionsError
from eo_kafka.tools.ui import command, gate, pages

WORD = re.compile(r'name="csrf" value="([0-9a-f]{64})"')
ONCE = re.compile(r'name="once" value="([^"]+)"')


@pytest.fixture
def world(monkeypatch):
    monkeypatch.setattr(pages, "WRONG_TOKEN_S", 0.0)
    return World(monkeypatch, job())


def form(client, path: str) -> dict[str, str]:
    text = client.get(path).text
    once = ONCE.search(text)
    return {"csrf": WORD.search(text)[1], "once": once[1] if once else ""}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8360", "127.0.0.1.evil.example", ""]
)
def test_a_name_that_was_made_to_lead_here_is_told_nothing(world, host):
    answer = world.client().get("/", headers={"host": host})
    assert answer.status_code == 421 and "shout" not in answer.text
    assert world.asked == 0


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST"])
def test_this_machines_own_names_are_answered_on_any_port(world, host):
    for port in ("", ":8360", ":9999"):
        assert world.client().get("/", headers={"host": f"{host}{port}"}).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1/login?", "127.0.0.1/login#", "127.0.0.1/static/?", "a@b", "[::1", "::1", "x y"],
)
def test_a_host_that_is_no_name_is_refused_whatever_names_are_answered(world, host):
    """Before Starlette 1.0.1 it became a part of the address that a request seems to ask for."""
    assert gate._host_of(host) == ""
    for hosts in (OWN_NAMES, None):
        client = world.client(token=TOKEN, hosts=hosts)
        for path in ("/jobs/shout", "/login"):
            answer = client.get(path, headers={"host": host})
            assert answer.status_code == 421 and "shout" not in answer.text
    assert world.asked == 0


@pytest.mark.parametrize("path", ["/login/x", "/loginx", "/staticx", "/static"])
def test_what_is_shown_without_the_token_is_named_exactly(world, path):
    answer = world.client(token=TOKEN).get(path)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/login?to={path}")


def test_who_may_see_is_asked_of_the_path_that_is_answered(world, monkeypatch):
    """As an older Starlette has it, should another header lead there."""
    monkeypatch.setattr(gate, "_host_of", lambda _: "localhost")
    elsewhere = property(lambda _: SimpleNamespace(path="/login"))
    monkeypatch.setattr(gate.Request, "url", elsewhere)
    assert world.client(token=TOKEN).get("/jobs/shout").status_code == 303


def test_every_answer_forbids_what_is_from_elsewhere(world):
    client = world.client(act=True)
    for path in (
        "/",
        "/jobs/shout",
        "/jobs/nobody",
        "/static/ui.css",
        "/nowhere",
        "/topics/orders",
    ):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'self'; ")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"


def test_no_page_has_a_style_or_a_script_or_an_address_of_its_own(world):
    """The policy would stop them; and nothing is loaded from elsewhere."""
    for path in pages.HERE.glob("html/*.html"):
        text = path.read_text()
        assert not re.search(r"\sstyle=|\son\w+=|javascript:|<style|\|\s*safe", text), path
        assert re.findall(r"<script[^>]*>", text) in ([], ['<script src="/static/ui.js" defer>'])
        assert not re.search(r'(?:src|href|action)="(?:https?:)?//', text), path
    for path in pages.HERE.glob("static/*"):
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http" not in text and "@import" not in text and "url(" not in text, path


def test_without_the_token_nothing_is_shown_and_with_it_all_is(world):
    client = world.client(token=TOKEN)
    sent = client.get("/jobs/shout")
    assert (sent.status_code, sent.headers["location"]) == (303, "/login?to=/jobs/shout")
    assert client.get("/", headers={"x-live": "1"}).status_code == 401
    assert client.get("/static/ui.css").status_code == 200
    assert client.post("/logout").status_code == 401
    before = client.cookies["eo_kafka_ui_8360"]
    assert client.get("/login").status_code == 200 and world.asked == 0
    fields = form(client, "/login")
    wrong = client.post("/login", data={**fields, "token": TOKEN[:-1]})
    assert wrong.status_code == 403 and "That is not the token" in wrong.text
    assert client.get("/").status_code == 303
    answer = client.post("/login?to=/jobs/shout", data={**fields, "token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/jobs/shout")
    cookie = answer.headers["set-cookie"]
    assert "; HttpOnly" in cookie and "; SameSite=Strict" in cookie and TOKEN not in cookie
    assert client.cookies["eo_kafka_ui_8360"] != before  # whoever planted that, knows nothing
    assert client.get("/").status_code == 200
    assert world.client(token=TOKEN).get("/").status_code == 303
    fields = form(client, "/")
    assert client.post("/logout", data=fields).status_code == 303
    assert client.get("/").status_code == 303


def test_a_cookie_that_was_made_up_is_nobody(world):
    client = world.client(token=TOKEN)
    for made_up in ("a" * 43, TOKEN, NASTY, ""):
        headers = {"cookie": f"eo_kafka_ui_8360={made_up}"}
        assert client.get("/", headers=headers).status_code == 303


@pytest.mark.parametrize("to", ["//evil.example", "https://evil.example", "/\\evil.example", "x"])
def test_a_login_leads_nowhere_else(world, to):
    assert gate.local_path(to) == "/"
    client = world.client(token=TOKEN)
    fields = {**form(client, "/login"), "token": TOKEN}
    answer = client.post("/login", params={"to": to}, data=fields)
    assert answer.headers["location"] == "/"


def test_it_only_reads_unless_actions_are_allowed(world):
    client = world.client()
    page = client.get("/jobs/shout").text
    assert "read only" in page and "Suspend" not in page
    for path in ("/jobs/shout/suspend", "/jobs/shout/export", "/transactions/a/abort"):
        assert client.get(path).status_code == 404
        assert client.post(path, data={"csrf": "0" * 64}).status_code == 404
    assert world.ran == []


def test_an_action_says_what_it_will_do_and_is_done_once(world):
    client = world.client(act=True)
    asked = client.get("/jobs/shout/suspend")
    assert "end the job&#39;s driver in order, and start none until" in asked.text
    assert "eo-kafka job suspend shout --config client.properties" in asked.text
    assert world.ran == []
    fields = form(client, "/jobs/shout/suspend")
    first = client.post("/jobs/shout/suspend", data=fields)
    again = client.post("/jobs/shout/suspend", data=fields)
    assert first.status_code == 303 and first.headers["location"] == again.headers["location"]
    shown = client.get(first.headers["location"]).text
    assert "Done." in shown and "there: Suspended." in shown
    assert world.ran == ["suspend shout"]
    assert client.get("/jobs/nobody/suspend").status_code == 404
    assert client.get("/jobs/shout/cancel").status_code == 404


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_sites_page_may_lead_here_and_load_nothing(world, site):
    client = world.client()
    for mode, dest in (
        ("no-cors", "image"),
        ("cors", "empty"),
        ("navigate", "iframe"),
        ("navigate", "object"),
        ("", ""),
    ):
        sent = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": dest}
        for path in ("/topics/x1", "/jobs/shout", "/static/ui.css"):
            assert client.get(path, headers=sent).status_code == 403
    assert world.asked == 0
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert client.get("/jobs/shout", headers=link).status_code == 200
    assert client.post("/logout", headers=link).status_code == 403
    for own in ("same-origin", "none"):
        assert client.get("/", headers={"sec-fetch-site": own}).status_code == 200


def test_before_the_login_nobody_is_told_which_cluster_it_is(world):
    client = world.client(token=TOKEN)
    fields = form(client, "/login")
    shown = [
        client.get("/login").text,
        client.get("/static/none").text,
        client.post("/login", data={**fields, "token": "wrong"}).text,
    ]
    for text in shown:
        assert "kafka:9092" not in text and "read only" not in text
    client.post("/login", data={**fields, "token": TOKEN})
    for told in (client.get("/").text, world.client().get("/").text):
        assert "kafka:9092" in told and "read only" in told


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_a_form_from_another_site_does_nothing(world, headers):
    client = world.client(act=True)
    fields = form(client, "/jobs/shout/suspend")
    answer = client.post("/jobs/shout/suspend", data=fields, headers=headers)
    assert answer.status_code == 403 and world.ran == []


def test_a_form_without_this_sessions_word_does_nothing(world):
    client, other = world.client(act=True), world.client(act=True)
    mine, others = form(client, "/jobs/shout/suspend"), form(other, "/jobs/shout/suspend")
    for word in ("", "0" * 64, others["csrf"]):
        answer = client.post("/jobs/shout/suspend", data={**mine, "csrf": word})
        assert answer.status_code == 403 and "Nothing was done" in answer.text
    for once in ("", "made-up", others["once"], NASTY):
        answer = client.post("/jobs/shout/suspend", data={**mine, "once": once})
        assert answer.status_code == 403 and "Nothing was done" in answer.text
    assert client.post("/jobs/shout/suspend", content=b"x" * 20_000).status_code == 403
    assert client.post("/jobs/shout/suspend", content=b"\xff=\xfe").status_code == 403
    assert world.ran == []


def refused(*words: str) -> str:
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    with pytest.raises(OptionsError) as error:
        command.run(parser.parse_args([*words, "--bootstrap-servers", "localhost:1"]))
    return str(error.value)


def test_it_is_not_opened_to_others_without_a_token(monkeypatch, tmp_path):
    monkeypatch.delenv(command.VARIABLE, raising=False)
    assert "--token-file" in refused("--bind", "0.0.0.0:8360")
    assert "--token-file" in refused("--bind", "[::]:8360")
    monkeypatch.setenv(command.VARIABLE, SECRET[:8])
    said = refused("--bind", "0.0.0.0:8360")
    assert "too short" in said and SECRET[:8] not in said
    missing = refused("--token-file", str(tmp_path / "none"), "--ledger", "shout", "--bind", "x")
    assert "cannot be read" in missing and "JOB=TOPIC" in missing and "--bind takes" in missing


def test_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "starlette", None)
    assert "pip install 'eo-kafka[ui]'" in refused()
