"""Clients kept between batches: whose they are, how many, and what a fork does to them."""

from __future__ import annotations

import os

from eo_kafka.core.kept import Kept

A, B = {"servers": "a", "password": "secret"}, {"servers": "b"}


def test_what_is_kept_is_found_by_equal_settings_and_by_no_others():
    kept: Kept[str] = Kept(4)
    kept.put(A, "a")
    assert kept.take(B) is None
    assert kept.take({**A, "x": "1"}) is None
    assert kept.take(dict(reversed(A.items()))) == "a"


def test_no_two_users_share_one():
    kept: Kept[str] = Kept(4)
    kept.put(A, "a")
    assert (kept.take(A), kept.take(A)) == ("a", None)


def test_the_one_that_waited_longest_makes_room_and_is_closed():
    closed: list[str] = []
    kept: Kept[str] = Kept(2, closed.append)
    for name in ("first", "second", "third"):
        kept.put(A, name)
    assert closed == ["first"]
    assert (kept.take(A), kept.take(A), kept.take(A)) == ("third", "second", None)


def test_settings_that_change_afterwards_do_not_change_what_it_was_made_of():
    kept: Kept[str] = Kept(2)
    settings = dict(A)
    kept.put(settings, "a")
    settings["password"] = "another"
    assert kept.take(settings) is None
    assert kept.take(A) == "a"


def test_close_closes_all():
    closed: list[str] = []
    kept: Kept[str] = Kept(2, closed.append)
    kept.put(A, "a")
    kept.close()
    assert closed == ["a"]
    assert len(kept) == 0


def test_secrets_are_not_shown():
    kept: Kept[str] = Kept(2)
    kept.put(A, "a")
    assert "secret" not in repr(kept)


def test_a_forked_child_neither_uses_nor_closes_its_parents_clients():
    closed: list[str] = []
    kept: Kept[str] = Kept(1, closed.append)
    kept.put(A, "parent's")
    child = os.fork()
    if not child:
        found = kept.take(A)
        kept.put(A, "child's")
        mine = kept.take(A)
        os._exit(0 if (found, mine, closed) == (None, "child's", []) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert kept.take(A) == "parent's"
