"""Clients kept between batches: whose they are, how many, and what a fork does to them."""

from __future__ import annotations

import os
import threading
import time

from eo_kafka.core.process.kept import Kept

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


def test_the_idle_are_closed_after_a_time_and_no_others() -> None:
    closed: list[str] = []
    is_closed = threading.Event()
    kept: Kept[str] = Kept(4, lambda name: (closed.append(name), is_closed.set()), idle_s=0.2)
    for name in ("first", "second"):  # the second time there was none, and no thread, for a while
        is_closed.clear()
        kept.put(A, "used")
        kept.put(B, name)
        assert kept.take(A) == "used"
        assert is_closed.wait(10)
        assert kept.take(B) is None
    assert closed == ["first", "second"]


def test_one_that_cannot_be_closed_leaves_none_of_the_others_open() -> None:
    closed: list[str] = []
    is_closed = threading.Event()

    def close(name: str) -> None:
        if name == "broken":
            raise OSError
        closed.append(name)
        is_closed.set()

    kept: Kept[str] = Kept(4, close, idle_s=0.2)
    for _ in range(2):
        is_closed.clear()
        kept.put(A, "whole")
        kept.put(A, "broken")
        assert is_closed.wait(10)
    assert closed == ["whole", "whole"]


def test_one_that_is_used_again_and_again_stays_open() -> None:
    closed: list[str] = []
    kept: Kept[str] = Kept(4, closed.append, idle_s=3)
    until = time.monotonic() + 4
    kept.put(A, "a")
    while time.monotonic() < until:
        found = kept.take(A)
        assert found == "a", "the machine stood still for three seconds"
        kept.put(A, found)
        time.sleep(0.05)
    assert closed == []


def test_secrets_are_not_shown():
    kept: Kept[str] = Kept(2)
    kept.put(A, "a")
    assert "secret" not in repr(kept)


def test_a_forked_child_neither_uses_nor_closes_its_parents_clients():
    closed: list[str] = []
    kept: Kept[str] = Kept(1, closed.append, idle_s=3)
    kept.put(A, "parent's")
    child = os.fork()
    if not child:
        found = kept.take(A)
        kept.put(A, "child's")
        mine = kept.take(A)
        kept.put(A, "child's")
        is_right = (found, mine, closed) == (None, "child's", [])
        until = time.monotonic() + 10
        while "child's" not in closed and time.monotonic() < until:
            time.sleep(0.01)
        os._exit(0 if is_right and closed == ["child's"] else 1)
    assert kept.take(A) == "parent's"
    assert os.waitpid(child, 0)[1] == 0
