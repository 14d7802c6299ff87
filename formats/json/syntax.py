# mypy: ignore-errors
"""Compiled loops for JSON's grammar: blanks, words, values to skip.

They are looked at all the same: what Python would not take makes a row a bad one. Nothing is read
from `end` on.
"""

from __future__ import annotations

from ...core.compiled import I64, part, u8, u32
from .numbers import number
from .strings import closing

_DEPTH_MAX = 63  # of what is passed over
_QUOTE, _COMMA, _COLON = 34, 44, 58
NULL_WORD, TRUE_WORD, ALSE_WORD = 0x6C6C756E, 0x65757274, 0x65736C61  # as four bytes are read


@part
def blank(text, at, end):
    """Behind blanks."""
    while at < end:
        byte = u8(text + at)
        if byte > 32 or (byte != 32 and byte != 10 and byte != 13 and byte != 9):
            break
        at += 1
    return at


@part
def is_word(text, at, end, word):
    return end - at >= 4 and u32(text + at) == word


@part
def _name(text, at, end):
    """Behind a field's name and its colon; -1 if there is none."""
    at = blank(text, at, end)
    if at >= end or u8(text + at) != _QUOTE:
        return I64(-1)
    at, _ = closing(text, at + 1, end)
    if at < 0:
        return at
    at = blank(text, at + 1, end)
    return at + 1 if at < end and u8(text + at) == _COLON else I64(-1)


@part
def _single(text, at, end):
    """Behind a value that has no parts."""
    byte = u8(text + at)
    if byte == _QUOTE:
        at, _ = closing(text, at + 1, end)
        return at + 1 if at >= 0 else at
    if is_word(text, at, end, NULL_WORD) or is_word(text, at, end, TRUE_WORD):
        return at + 4
    if byte == 102 and is_word(text, at + 1, end, ALSE_WORD):
        return at + 5
    return number(text, at, end)[4]


@part
def skip(text, at, end):
    """Behind a value of any kind; -1 if it is none, or too deep."""
    depth, objects = I64(0), I64(0)  # a bit for each level: whether it is one
    while True:
        at = blank(text, at, end)
        if at >= end:
            return I64(-1)
        byte = u8(text + at)
        if byte == 123 or byte == 91:
            if depth == _DEPTH_MAX:
                return I64(-1)
            depth, objects, at = depth + 1, objects << 1 | (byte == 123), blank(text, at + 1, end)
            if at >= end or u8(text + at) != byte + 2:
                at = _name(text, at, end) if objects & 1 else at
                if at < 0:
                    return at
                continue
        else:
            at = _single(text, at, end)
            if at < 0 or depth == 0:
                return at
            at = blank(text, at, end)
        while at < end and u8(text + at) == (125 if objects & 1 else 93):
            depth, objects, at = depth - 1, objects >> 1, at + 1
            if depth == 0:
                return at
            at = blank(text, at, end)
        if at >= end or u8(text + at) != _COMMA:
            return I64(-1)
        at = _name(text, at + 1, end) if objects & 1 else at + 1
        if at < 0:
            return at
