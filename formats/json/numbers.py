# mypy: ignore-errors
"""Compiled loops for JSON numbers: digits, and the nearest double.

Exact or not at all: a double is the nearest one by Lemire's method (Number Parsing at a Gigabyte
per Second, 2021), which says itself where it cannot tell; what is longer than 64 bits hold is left
to Python. Nothing is read from `end` on.
"""

from __future__ import annotations

import numpy as np

from ...core.compiled import I64, U64, high, leading_zeros, part, u8

_DIGITS_MAX = 19  # that surely fit into 64 bits
_EXPONENT_MAX = 4  # digits
_LOWEST, _HIGHEST = -342, 308  # powers of ten that the table has
_MINUS, _POINT, _ZERO = 45, 46, 48


def _power_of_five(exponent: int) -> int:
    """Its 128 highest bits; of an inverse, rounded up as the method wants it."""
    power = 5 ** abs(exponent)
    if exponent >= 0:
        shift = 128 - power.bit_length()
        return power << shift if shift >= 0 else power >> -shift
    bits = (power - 1).bit_length()
    found = (1 << (bits + 127 if exponent >= -27 else 2 * bits + 128)) // power + 1
    return found >> max(found.bit_length() - 128, 0)


_POWERS = [_power_of_five(exponent) for exponent in range(_LOWEST, _HIGHEST + 1)]
_UPPER = np.array([power >> 64 for power in _POWERS], np.uint64)
_LOWER = np.array([power & (2**64 - 1) for power in _POWERS], np.uint64)


@part
def _digits(text, at, end, number):
    """`number` with the digits appended, and the position behind them."""
    while at < end:
        digit = U64(u8(text + at)) - U64(_ZERO)
        if digit > U64(9):
            break
        number = number * U64(10) + digit
        at += 1
    return number, at


@part
def _exponent(text, at, end):
    """The number behind an e, and the position; -1 if there is none or a large one."""
    sign = I64(u8(text + at)) if at < end else I64(0)
    if sign == _MINUS or sign == 43:
        at += 1
    size, number = at, U64(0)
    number, at = _digits(text, at, min(end, at + _EXPONENT_MAX + 1), number)
    if at == size or at - size > _EXPONENT_MAX:
        return I64(0), I64(-1)
    return -I64(number) if sign == _MINUS else I64(number), at


@part
def number(text, at, end):
    """Digits, the power of ten they count, whether negative, whether an integer is written, and
    the position behind it; -1 if it is no number, or too long a one."""
    bad = (U64(0), I64(0), False, False, I64(-1))
    negative = at < end and u8(text + at) == _MINUS
    at += negative
    first, found, ten, whole = at, U64(0), I64(0), True
    found, at = _digits(text, at, end, found)
    size = at - first
    if size == 0 or (size > 1 and u8(text + first) == _ZERO):
        return bad
    if at < end and u8(text + at) == _POINT:
        point, whole = at + 1, False
        found, at = _digits(text, point, end, found)
        ten = point - at
        if ten == 0:
            return bad
        size -= ten
    if size > _DIGITS_MAX:
        zero = first
        while zero < at and (u8(text + zero) == _ZERO or u8(text + zero) == _POINT):
            size -= u8(text + zero) == _ZERO
            zero += 1
        if size > _DIGITS_MAX:
            return bad
    if at < end and (u8(text + at) | 32) == 101:  # e
        power, at = _exponent(text, at + 1, end)
        ten, whole = ten + power, False
    return found, ten, negative, whole, at


@part
def nearest(digits, ten, negative):
    """The bits of the double that is nearest to digits * 10**ten; whether that is known."""
    sign = U64(negative) << U64(63)
    if digits == U64(0):
        return I64(sign), True
    if ten < _LOWEST or ten > _HIGHEST:
        return I64(0), False
    zeros = leading_zeros(digits)
    scaled, row = digits << zeros, U64(ten - _LOWEST)
    upper, lower = high(scaled, _UPPER[row]), scaled * _UPPER[row]
    if upper & U64(0x1FF) == U64(0x1FF):
        more = high(scaled, _LOWER[row])
        lower += more
        upper += U64(lower < more)
    if lower == U64(0xFFFFFFFFFFFFFFFF):
        return I64(0), False
    top = upper >> U64(63)
    mantissa = upper >> (top + U64(9))
    power = ((I64(217706) * ten) >> I64(16)) + I64(63 + 1023) + I64(top) - I64(zeros)
    if power <= 0:
        return I64(0), False
    # Halfway between two: to the even one.
    is_half = lower <= U64(1) and -4 <= ten <= 23 and mantissa & U64(3) == U64(1)
    if is_half and mantissa << (top + U64(9)) == upper:
        mantissa &= ~U64(1)
    mantissa = (mantissa + (mantissa & U64(1))) >> U64(1)
    if mantissa >= U64(1 << 53):
        mantissa, power = U64(1 << 52), power + 1
    if power >= 2047:
        return I64(0), False
    return I64(sign | U64(power) << U64(52) | mantissa & U64((1 << 52) - 1)), True
