# mypy: ignore-errors
"""Compiled loops for JSON strings: their end, their escapes, dates and times.

Only what all Pythons read alike is taken; -1 is the answer to the rest. Nothing is read from `end`
on, and all that is passed over is looked at: UTF-8, control characters, escapes.
"""

from __future__ import annotations

from ...core.compiled import I64, U8, U64, part, put8, trailing_zeros, u8, u64

_ONES, _TOPS = U64(0x0101010101010101), U64(0x8080808080808080)
_QUOTES, _SLASHES, _BLANKS = _ONES * U64(34), _ONES * U64(92), _ONES * U64(32)
_QUOTE, _SLASH, _BLANK = 34, 92, 32
_DAY_S, _SECOND_US = 86_400, 1_000_000
_FRACTION_MAX = 9


@part
def _special(word):
    """The top bit of the first of eight bytes that is no plain letter, and of some behind it."""
    quotes, slashes = word ^ _QUOTES, word ^ _SLASHES
    found = (quotes - _ONES) & ~quotes | (slashes - _ONES) & ~slashes
    return (found | (word - _BLANKS) & ~word | word) & _TOPS


@part
def _behind_letter(text, at, end):
    """Behind a character of two to four bytes, if it is one as UTF-8 has it."""
    first = I64(u8(text + at))
    size = 2 if 0xC2 <= first < 0xE0 else 3 if 0xE0 <= first < 0xF0 else 4
    if first < 0xC2 or first > 0xF4 or size > end - at:
        return I64(-1)
    second = I64(u8(text + at + 1))
    low = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
    top = 0x9F if first == 0xED else 0x8F if first == 0xF4 else 0xBF
    if second < low or second > top:
        return I64(-1)
    for i in range(2, size):
        if u8(text + at + i) & 0xC0 != 0x80:
            return I64(-1)
    return at + size


@part
def _hex(text, at, end):
    """Four digits' number."""
    if end - at < 4:
        return I64(-1)
    found = I64(0)
    for i in range(4):
        byte = I64(u8(text + at + i))
        letter = (byte | 32) - 97
        if 48 <= byte <= 57:
            found = found << 4 | (byte - 48)
        elif 0 <= letter <= 5:
            found = found << 4 | (letter + 10)
        else:
            return I64(-1)
    return found


@part
def _escaped(text, at, end):
    """The character of an escape, from behind its backslash, and the position behind it."""
    bad = (I64(0), I64(-1))
    if at >= end:
        return bad
    byte = I64(u8(text + at))
    if byte == 117:  # u
        unit = _hex(text, at + 1, end)
        if unit < 0 or 0xDC00 <= unit < 0xE000:
            return bad
        if not 0xD800 <= unit < 0xDC00:
            return unit, at + 5
        if end - at < 7 or u8(text + at + 5) != _SLASH or u8(text + at + 6) != 117:
            return bad
        low = _hex(text, at + 7, end)
        if not 0xDC00 <= low < 0xE000:
            return bad
        return (unit - 0xD800 << 10) + (low - 0xDC00) + 0x10000, at + 11
    if byte == _QUOTE or byte == _SLASH or byte == 47:
        return byte, at + 1
    if byte == 98:
        return I64(8), at + 1
    if byte == 102:
        return I64(12), at + 1
    if byte == 110:
        return I64(10), at + 1
    if byte == 114:
        return I64(13), at + 1
    if byte == 116:
        return I64(9), at + 1
    return bad


@part
def closing(text, at, end):
    """The position of the quote that ends a string, and whether there are escapes before it."""
    has_escapes = False
    while at < end:
        if end - at >= 8:
            special = _special(u64(text + at))
            if special == U64(0):
                at += 8
                continue
            at += I64(trailing_zeros(special) >> U64(3))
        byte = u8(text + at)
        if byte == _QUOTE:
            return at, has_escapes
        if byte == _SLASH:
            has_escapes = True
            _, at = _escaped(text, at + 1, end)
        elif byte >= 128:
            at = _behind_letter(text, at, end)
        else:
            at = at + 1 if byte >= _BLANK else I64(-1)
        if at < 0:
            return at, False
    return I64(-1), False


@part
def _put_letter(letter, target):
    """One character as UTF-8; how many bytes."""
    if letter < 0x80:
        put8(target, U8(letter))
        return 1
    size = 2 if letter < 0x800 else 3 if letter < 0x10000 else 4
    for i in range(size - 1, 0, -1):
        put8(target + i, U8(0x80 | (letter & 0x3F)))
        letter >>= 6
    put8(target, U8((0xF00 >> size) & 0xFF | letter))
    return size


@part
def unescape(text, at, stop, target):
    """What a string that `closing` found means, which is no longer than it; how many bytes."""
    size = I64(0)
    while at < stop:
        byte = u8(text + at)
        if byte == _SLASH:
            letter, at = _escaped(text, at + 1, stop)
            size += _put_letter(letter, target + size)
        else:
            put8(target + size, byte)
            size, at = size + 1, at + 1
    return size


@part
def _two(text, at, highest):
    """A number of two digits, up to `highest`."""
    ten, one = I64(u8(text + at)) - 48, I64(u8(text + at + 1)) - 48
    found = 10 * ten + one
    if not (0 <= ten <= 9 and 0 <= one <= 9) or found > highest:
        return I64(-1)
    return found


@part
def day(text, at, stop):
    """Days since 1970 of the YYYY-MM-DD that a text begins with, and whether it does."""
    if stop - at < 10 or u8(text + at + 4) != 45 or u8(text + at + 7) != 45:
        return I64(0), False
    century, rest = _two(text, at, 29), _two(text, at + 2, 99)
    month, number = _two(text, at + 5, 12), _two(text, at + 8, 31)
    if century < 10 or rest < 0 or month < 1 or number < 1:
        return I64(0), False
    year = 100 * century + rest
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if number > (29 if is_leap else 28) and month == 2:
        return I64(0), False
    if number > 30 and (month == 4 or month == 6 or month == 9 or month == 11):
        return I64(0), False
    # Years that begin in March, so that a leap day is the last.
    since = year - (month <= 2)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + number - 1
    return since * 365 + since // 4 - since // 100 + since // 400 + of_year - 719_468, True


@part
def _zone(text, at, stop):
    """Seconds east of UTC: nothing, Z or +hh:mm, and whether it is one."""
    if at == stop or (stop - at == 1 and u8(text + at) == 90):
        return I64(0), True
    sign = I64(u8(text + at))
    if stop - at != 6 or (sign != 43 and sign != 45) or u8(text + at + 3) != 58:
        return I64(0), False
    hours, minutes = _two(text, at + 1, 23), _two(text, at + 4, 59)
    east = 3600 * hours + 60 * minutes
    return east if sign == 43 else -east, hours >= 0 and minutes >= 0


@part
def instant(text, at, stop, has_zone):
    """Microseconds since 1970 of YYYY-MM-DD hh:mm:ss with a fraction and a zone, and whether it is
    one."""
    days, is_day = day(text, at, stop)
    if not is_day or stop - at < 19:
        return I64(0), False
    between = u8(text + at + 10)
    if (
        (between != 84 and between != _BLANK)
        or u8(text + at + 13) != 58
        or u8(text + at + 16) != 58
    ):
        return I64(0), False
    hour, minute = _two(text, at + 11, 23), _two(text, at + 14, 59)
    second = _two(text, at + 17, 59)
    if hour < 0 or minute < 0 or second < 0:
        return I64(0), False
    at, micros = at + 19, I64(0)
    if at < stop and u8(text + at) == 46:
        at, unit, first = at + 1, I64(_SECOND_US), at + 1
        while at < stop and 48 <= u8(text + at) <= 57:
            unit //= 10
            micros += unit * (I64(u8(text + at)) - 48)
            at += 1
        if at == first or at - first > _FRACTION_MAX:
            return I64(0), False
    if at < stop and not has_zone:
        return I64(0), False
    east, is_zone = _zone(text, at, stop)
    seconds = days * _DAY_S + hour * 3600 + minute * 60 + second - east
    return seconds * _SECOND_US + micros, is_zone
