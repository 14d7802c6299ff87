# mypy: ignore-errors
"""Compiled loop that runs a type's program over JSON texts and fills slots.

A row is read to its last byte, as strictly as Python reads it; one that is not quite plain is BAD,
and left to the plain decoder. A text is read between its start and its end, each byte after a look
at where that is, and a slot is written to below its limit only: the caller is told when there was
one that was full, and comes again with more room.

A struct, list or map that was begun has a frame on the stack: its row, the place of its last field
(or its entry), how many fields were found, and which object it is (or its first part).
"""

from __future__ import annotations

from ...core.compiled import I64, U8, compiled, i64, part, put8, put64, same, u8
from ..shared.slots import BAD, GOOD
from .program import FIELD_WORDS, LIST, MAP, ROW_WORDS, STRUCT
from .slots import SLOT, back, entries, is_full, is_repeated_key, nulls, put
from .strings import closing
from .syntax import NULL_WORD, blank, is_word, skip
from .values import scalar

_ROW, _FIELD, _FRAME = 8 * ROW_WORDS, 8 * FIELD_WORDS, 40
_QUOTE, _COMMA, _COLON = 34, 44, 58


@part
def _open(code, row, frame, slots, cells):
    what = i64(code + _ROW * row)
    put64(frame, row)
    if what == STRUCT:
        put64(frame + 8, i64(code + _ROW * row + 8))
        put64(frame + 16, 0)
        put64(cells, i64(cells) + 1)
        put64(frame + 24, i64(cells))
    else:
        put64(frame + 8, entries(slots, row))
        put64(frame + 24, entries(slots, row + 1))
    put(slots, row, 0, 0, 1)


@part
def _close(code, fields, frame, slots):
    row = i64(frame)
    if i64(code + _ROW * row) != STRUCT:
        slot, entry = slots[0] + SLOT * row, i64(frame + 8)
        if entry < i64(slot + 16):
            put64(slots[2] + 8 * (i64(slot) + entry), entries(slots, row + 1) - i64(frame + 24))
        return
    first, count = i64(code + _ROW * row + 8), i64(code + _ROW * row + 16)
    if i64(frame + 16) < count:
        for place in range(first + 1, first + count + 1):
            if i64(fields + _FIELD * place + 32) != i64(frame + 24):
                nulls(code, i64(fields + _FIELD * place), slots)


@part
def _place(code, fields, names, frame, text, at, end):
    """The field whose name begins at `at`, and the position behind its quote: 0 for one that
    nobody asked for, -1 if it is no name or one with escapes."""
    last = fields + _FIELD * i64(frame + 8)
    place = i64(last + 24)
    row = i64(frame)
    first, count = i64(code + _ROW * row + 8), i64(code + _ROW * row + 16)
    if count > 0:
        field = fields + _FIELD * place
        size = i64(field + 16)
        if end - at > size and u8(text + at + size) == _QUOTE:
            if same(text + at, names + i64(field + 8), size):
                return place, at + size + 1
    stop, has_escapes = closing(text, at, end)
    if stop < 0 or has_escapes:
        return I64(0), I64(-1)
    for place in range(first + 1, first + count + 1):
        field = fields + _FIELD * place
        size = i64(field + 16)
        if size == stop - at and same(text + at, names + i64(field + 8), size):
            put64(last + 24, place)
            return place, stop + 1
    return I64(0), stop + 1


@part
def _field(program, frame, text, at, end):
    """The row to read next and where, from a field's name on; -1 where none is asked for."""
    code, fields, names, _ = program
    bad = (I64(-1), I64(-1))
    if at >= end or u8(text + at) != _QUOTE:
        return bad
    place, at = _place(code, fields, names, frame, text, at + 1, end)
    if at < 0:
        return bad
    at = blank(text, at, end)
    if at >= end or u8(text + at) != _COLON:
        return bad
    if place == 0:
        return I64(-1), skip(text, at + 1, end)
    field = fields + _FIELD * place
    if i64(field + 32) == i64(frame + 24):  # a second time
        return bad
    put64(field + 32, i64(frame + 24))
    put64(frame + 8, place)
    put64(frame + 16, i64(frame + 16) + 1)
    return i64(field), at + 1


@part
def _key(row, frame, text, at, end, slots):
    """As `_field`, of a map."""
    bad = (I64(-1), I64(-1))
    if at >= end or u8(text + at) != _QUOTE:
        return bad
    stop, has_escapes = closing(text, at + 1, end)
    if stop < 0 or has_escapes:
        return bad
    put(slots, row + 1, at + 1, stop - at - 1, 1)
    if is_repeated_key(text, slots, row + 1, i64(frame + 24)):
        return bad
    at = blank(text, stop + 1, end)
    if at >= end or u8(text + at) != _COLON:
        return bad
    return row + 2, at + 1


@part
def _next(program, frame, is_new, text, at, end, slots):
    """The row to read next, or -1 behind the end of what the frame is of, and the position; -1 if
    it does not go on as it must."""
    code = program[0]
    row = i64(frame)
    what = i64(code + _ROW * row)
    while True:
        at = blank(text, at, end)
        if at >= end:
            return I64(-1), I64(-1)
        byte = u8(text + at)
        if byte == (93 if what == LIST else 125):
            _close(code, program[1], frame, slots)
            return I64(-1), at + 1
        if not is_new:
            if byte != _COMMA:
                return I64(-1), I64(-1)
            at = blank(text, at + 1, end)
        if what == LIST:
            return row + 1, at
        if what == MAP:
            return _key(row, frame, text, at, end, slots)
        found, at = _field(program, frame, text, at, end)
        if found >= 0 or at < 0:
            return found, at
        is_new = False


@part
def _row(program, text, at, end, slots, spare, cells):
    """Whether the text is exactly one value."""
    code, stack = program[0], program[3]
    row, depth = I64(0), I64(-1)
    while True:
        at = blank(text, at, end)
        if at >= end:
            return False
        byte, is_new = u8(text + at), False
        if byte == 110:  # n
            if not is_word(text, at, end, NULL_WORD):
                return False
            nulls(code, row, slots)
            at += 4
        elif i64(code + _ROW * row) <= MAP:
            if byte != (91 if i64(code + _ROW * row) == LIST else 123):
                return False
            depth, at, is_new = depth + 1, at + 1, True
            _open(code, row, stack + _FRAME * depth, slots, cells)
        else:
            found, size, at = scalar(code, row, text, at, end, spare)
            if at < 0:
                return False
            put(slots, row, found, size, 1)
        row = I64(-1)
        while depth >= 0:
            row, at = _next(program, stack + _FRAME * depth, is_new, text, at, end, slots)
            if at < 0:
                return False
            if row >= 0:
                break
            depth, is_new = depth - 1, False
        if depth < 0:
            return blank(text, at, end) == end


@compiled
def decode(first, program, rows, text, ranges, slots, spare, cells):
    """Rows from `first` on, until all are read or a slot is full; returns the row to go on with.

    `program` is (code, fields, names, stack), `ranges` (starts, ends, state), `slots` (table,
    values, sizes, valid): addresses. `rows` is the number of types, `text` where positions count
    from, `spare` a place for what was unescaped (used, size, address). `cells` is scratch space:
    the objects that were read, and then a word for each type.
    """
    starts, ends, state, last = ranges
    table = slots[0]
    for at in range(first, last):
        for row in range(rows):
            put64(cells + 8 + 8 * row, i64(table + SLOT * row + 8))
        used = i64(spare)
        is_good = u8(state + at) == GOOD
        if is_good:
            start, end = i64(starts + 8 * at), i64(ends + 8 * at)
            is_good = _row(program, text, start, end, slots, spare, cells)
            if not is_good:
                put8(state + at, U8(BAD))
                back(table, rows, spare, used, cells)
        if not is_good:
            nulls(program[0], 0, slots)
        if is_full(table, rows):
            back(table, rows, spare, used, cells)
            return at
    return last
