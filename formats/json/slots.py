# mypy: ignore-errors
"""The slots that the compiled JSON reader fills.

A table says where each slot begins, how many entries it has and its limit: three words a type.
Nothing is written at or above a limit, but entries are still counted.
"""

from __future__ import annotations

from ...core.compiled import U8, i64, part, put8, put64, same
from .program import LIST, MAP, ROW_WORDS

_ROW, SLOT = 8 * ROW_WORDS, 24
_KEYS_MAX = 64  # of a map that is looked through for a key that comes twice


@part
def put(slots, row, number, size, there):
    table, values, sizes, valid = slots
    slot = table + SLOT * row
    count = i64(slot + 8)
    put64(slot + 8, count + 1)
    if count < i64(slot + 16):
        entry = i64(slot) + count
        put64(values + 8 * entry, number)
        put64(sizes + 8 * entry, size)
        put8(valid + entry, U8(there))


@part
def entries(slots, row):
    return i64(slots[0] + SLOT * row + 8)


@part
def nulls(code, row, slots):
    """Nothing, for a type and its parts but for those that are repeated."""
    stop = i64(code + _ROW * row + 24)
    while row < stop:
        put(slots, row, 0, 0, 0)
        at = code + _ROW * row
        what = i64(at)
        row = i64(at + 24) if what == LIST or what == MAP else row + 1


@part
def is_repeated_key(text, slots, row, first):
    """Whether the last of a map's keys is one of those before it, or there are too many to say."""
    table, values, sizes, _ = slots
    slot = table + SLOT * row
    base, last = i64(slot), i64(slot + 8) - 1
    if last - first >= _KEYS_MAX:
        return True
    if last >= i64(slot + 16):  # it is full: this row comes again
        return False
    at, size = i64(values + 8 * (base + last)), i64(sizes + 8 * (base + last))
    for other in range(base + first, base + last):
        if i64(sizes + 8 * other) == size and same(text + i64(values + 8 * other), text + at, size):
            return True
    return False


@part
def is_full(table, rows):
    for row in range(rows):
        if i64(table + SLOT * row + 8) > i64(table + SLOT * row + 16):
            return True
    return False


@part
def back(table, rows, spare, used, cells):
    """As it was before the row."""
    put64(spare, used)
    for row in range(rows):
        put64(table + SLOT * row + 8, i64(cells + 8 + 8 * row))
