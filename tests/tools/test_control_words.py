"""The records of a job's control topic: what holds, and what is not obeyed."""

from __future__ import annotations

import json

import pytest

from eo_kafka.tools.control.words import (
    Do,
    Stands,
    Told,
    UnknownWords,
    Wish,
    decode_told,
    decode_wish,
    encode,
    printable,
    stands,
)

WISH = Wish("suspend", "ann@host", "before-upgrade")


def answer(wish: Wish, holds: Stands, done: bool = True) -> Told:
    return Told("running", holds.value, wish.id, done=done)


def test_records_are_read_as_they_were_written():
    told = Told("running", "run", WISH.id, True, False, printable("a\nb\x1b[2J"), "host", 7)
    assert decode_wish(encode(WISH)) == WISH
    assert decode_told(encode(told)) == told and told.said == "a b [2J"


@pytest.mark.parametrize(
    "changed",
    [
        {"v": 2},
        {"do": "explode"},
        {"by": 7},
        {"by": "a\x1b[2J"},
        {"by": "a" * 5000},
        {"at_ms": True},
        {"at_ms": 10**30},
        {"at_ms": 10**400},
        {"at_ms": -1},
        {"at_ms": 253_402_300_800_000},
        {"more": "than we know"},
    ],
    ids=str,
)
def test_what_is_not_understood_is_not_obeyed(changed):
    value = json.dumps({**json.loads(encode(WISH)), **changed}).encode()
    with pytest.raises(UnknownWords, match="It is not obeyed: ask again with this version"):
        decode_wish(value)


@pytest.mark.parametrize("value", [b"", b"[]", b"\xff", b"null", b"{" * 5000])
def test_what_is_no_record_is_not_obeyed(value):
    for decode in (decode_wish, decode_told):
        with pytest.raises(UnknownWords):
            decode(value)


@pytest.mark.parametrize(
    ("do", "holds"),
    [
        (Do.SUSPEND, Stands.SUSPENDED),
        (Do.RESUME, Stands.RUN),
        (Do.RESTART, Stands.RUN),
        (Do.CANCEL, Stands.CANCELLED),
    ],
)
def test_a_wish_holds_until_it_was_answered_otherwise(do, holds):
    wish = Wish(do.value, "ann")
    assert stands(None, None) is Stands.RUN
    assert stands(wish, None) is holds
    assert stands(wish, answer(WISH, Stands.CANCELLED)) is holds, "the answer is another's"
    assert stands(wish, answer(wish, Stands.CANCELLED, done=False)) is holds
    for refused in Stands:
        assert stands(wish, answer(wish, refused)) is refused
