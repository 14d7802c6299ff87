# mypy: ignore-errors
"""Compiled loops for JSON values: give what `JsonDecoder` gives, or nothing.

Each is the number and the size of a slot's entry, and the position behind it; -1 if there is none.
"""

from __future__ import annotations

from ...core.compiled import I64, U64, i64, part, put64, u8
from .numbers import nearest, number
from .program import BOOLEAN, DATE, DECIMAL, LONG, REAL, ROW_WORDS, STRING
from .strings import closing, day, instant, unescape
from .syntax import ALSE_WORD, TRUE_WORD, is_word

_ROW = 8 * ROW_WORDS
_SINGLE_MAX = 0x47EFFFFFC0000000  # bits of a double below the highest single number
_POINT_MAX = 40  # powers of ten that a decimal is moved by
_MAGNITUDE = 0x7FFFFFFFFFFFFFFF
_QUOTE = 34


@part
def _decimal(scale, highest, text, at, end):
    """A number without rounding, also in quotes; as `scalar`."""
    bad = (I64(0), I64(0), I64(-1))
    quoted = u8(text + at) == _QUOTE
    digits, ten, negative, _, at = number(text, at + quoted, end)
    if at < 0 or ten > _POINT_MAX:
        return bad
    if quoted:
        if at >= end or u8(text + at) != _QUOTE:
            return bad
        at += 1
    shift = scale + ten
    if shift < 0 or digits > U64(highest):
        return bad
    found = I64(digits)
    for _ in range(shift):
        if found > highest // 10:  # and not found * 10, which may be more than 64 bits
            return bad
        found *= 10
    return -found if negative else found, I64(0), at


@part
def _number(what, a, b, text, at, end):
    """As `scalar`."""
    digits, ten, negative, whole, at = number(text, at, end)
    bad = (I64(0), I64(0), I64(-1))
    if at < 0:
        return bad
    if what == LONG:
        if not whole or digits > U64(_MAGNITUDE):
            return bad
        found = -I64(digits) if negative else I64(digits)
        return (found, I64(0), at) if a <= found <= b else bad
    bits, is_known = nearest(digits, ten, negative and (digits != U64(0) or not whole))
    if not is_known or (a and bits & _MAGNITUDE > _SINGLE_MAX):
        return bad
    return bits, I64(0), at


@part
def _string(what, a, text, at, end, spare):
    """As `scalar`."""
    bad = (I64(0), I64(0), I64(-1))
    if u8(text + at) != _QUOTE:
        return bad
    at += 1
    stop, has_escapes = closing(text, at, end)
    if stop < 0:
        return bad
    if what == STRING:
        if not has_escapes:
            return at, stop - at, stop + 1
        used = i64(spare)
        if stop - at > i64(spare + 8) - used:
            return bad
        size = unescape(text, at, stop, i64(spare + 16) + used)
        put64(spare, used + size)
        return -1 - used, size, stop + 1
    if what == DATE:
        found, is_one = day(text, at, stop)
        is_one = is_one and stop - at == 10
    else:
        found, is_one = instant(text, at, stop, a != 0)
    return found, I64(0), stop + 1 if is_one else I64(-1)


@part
def scalar(code, row, text, at, end, spare):
    """A value of the type that a row of the program says."""
    what, a, b = i64(code + _ROW * row), i64(code + _ROW * row + 8), i64(code + _ROW * row + 16)
    if what == LONG or what == REAL:
        return _number(what, a, b, text, at, end)
    if what == DECIMAL:
        return _decimal(a, b, text, at, end)
    if what == BOOLEAN:
        is_true = is_word(text, at, end, TRUE_WORD)
        is_false = u8(text + at) == 102 and is_word(text, at + 1, end, ALSE_WORD)
        stop = at + 4 if is_true else at + 5 if is_false else I64(-1)
        return I64(is_true), I64(0), stop
    return _string(what, a, text, at, end, spare)
