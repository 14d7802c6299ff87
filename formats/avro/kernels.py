# mypy: ignore-errors
"""Compiled loop that runs a schema's program over Avro values and fills slots.

A slot's entry is a number (or where bytes begin), a size, and whether it is there at all. Nothing
is read outside a row's bytes. What is not quite as the specification has it, or as a column can
hold it, makes a row bad; the plain decoder is asked about that one.
"""

from __future__ import annotations

from ...core.compiled import I64, U64, part
from .program import (
    AGAIN,
    BOOLEAN,
    BYTES,
    DECIMAL,
    GOTO,
    LONG,
    OPTIONAL,
    RAW,
    RECORD,
    REPEATED,
    UNION,
)
from .slots import BAD, GOOD

_KEYS_MAX = 64  # of a map that is looked through for a key that comes twice


@part
def _long(data, at, end):
    """A zigzag number and the position behind it; -1 if it is none."""
    found, shift = U64(0), U64(0)
    while at < end and shift < 64:
        byte = U64(data[at])
        at += 1
        if shift == 63 and byte > 1:
            return I64(0), I64(-1)
        found |= (byte & U64(127)) << shift
        if byte < 128:
            return I64(found >> U64(1)) ^ -I64(found & U64(1)), I64(at)
        shift += U64(7)
    return I64(0), I64(-1)


@part
def _put(slots, base, counts, store, slot, number, size, there):
    values, sizes, valid = slots
    if store:
        at = base[slot] + counts[slot]
        values[at], sizes[at], valid[at] = number, size, there
    counts[slot] += 1


@part
def _nulls(code, start, stop, slots, base, counts, store):
    """Nothing, for all instructions between the two, but for those of repeated parts."""
    pc = start
    while pc < stop:
        if code[pc, 4] >= 0:
            _put(slots, base, counts, store, code[pc, 4], 0, 0, 0)
        pc = code[pc, 1] if code[pc, 0] == REPEATED else pc + 1


@part
def _is_repeated_key(data, slots, first, last):
    """Whether the last of a map's keys is one of those before it, or there are too many to say."""
    values, sizes, _ = slots
    if last - first >= _KEYS_MAX:
        return True
    for other in range(first, last):
        if sizes[other] == sizes[last]:
            same = True
            for i in range(sizes[last]):
                if data[values[other] + i] != data[values[last] + i]:
                    same = False
                    break
            if same:
                return True
    return False


@part
def _sized(code, pc, data, at, end):
    """Where a value's bytes begin, and how many they are; -1 if they are not all there."""
    size = code[pc, 2] if code[pc, 0] == DECIMAL else code[pc, 1]
    if code[pc, 0] == BYTES or size < 0:
        size, at = _long(data, at, end)
    if at < 0 or size < 0 or size > end - at:
        return I64(-1), I64(0)
    return at, size


@part
def _big_endian(data, at, size):
    """A signed number of up to eight bytes."""
    number = I64(-1) if size and data[at] > 127 else I64(0)
    for i in range(size):
        number = (number << 8) | I64(data[at + i])
    return number


@part
def _scalar(code, pc, data, at, end):
    """The number, the size, and the position behind it; -1 if there is none."""
    what, a, number = code[pc, 0], code[pc, 1], I64(0)
    if what == RECORD:
        return number, number, at
    if what == LONG:
        number, at = _long(data, at, end)
        return number, I64(0), at if at >= 0 and a <= number <= code[pc, 2] else I64(-1)
    if what == BOOLEAN:
        is_one = at < end and data[at] <= 1
        return I64(data[at]) if is_one else I64(0), I64(0), at + 1 if is_one else I64(-1)
    at, size = _sized(code, pc, data, at, end)
    if at < 0:
        return number, size, at
    if what == RAW:
        for i in range(size):
            number |= I64(data[at + i]) << (8 * i)
        size, at = I64(0), at + size
    elif what == DECIMAL:
        number = _big_endian(data, at, size) if size <= 8 else I64(0)
        size, at = I64(0), at + size if size <= 8 and -a <= number <= a else I64(-1)
    else:  # BYTES, FIXED
        number, at = at, at + size
    return number, size, at


@part
def _optional(code, pc, data, at, end, slots, base, counts, store):
    """The next instruction and the position; -1 if there is no such branch."""
    branch, at = _long(data, at, end)
    if branch == code[pc, 2]:
        return pc + 1, at
    if branch != code[pc, 1] or branch < 0:
        return pc, I64(-1)
    _nulls(code, pc + 1, code[pc, 3], slots, base, counts, store)
    return code[pc, 3], at


@part
def _union(code, jumps, pc, data, at, end, slots, base, counts, store):
    """As `_optional`."""
    branch, at = _long(data, at, end)
    if at < 0 or branch < 0 or branch >= code[pc, 2]:
        return pc, I64(-1)
    stop, goal = code[pc, 3], jumps[code[pc, 1] + branch]
    if goal < 0:
        _nulls(code, pc, stop, slots, base, counts, store)
        return stop, at
    _put(slots, base, counts, store, code[pc, 4], 0, 0, 1)
    following = stop  # the branch's own slots are those before the next one's
    for other in range(code[pc, 2]):
        start = jumps[code[pc, 1] + other]
        if goal < start < following:
            following = start
    _nulls(code, pc + 1, goal, slots, base, counts, store)
    _nulls(code, following, stop, slots, base, counts, store)
    return goal, at


@part
def _again(code, pc, data, at, end, slots, base, counts, store, inside):
    """As `_optional`; `inside` is what is known of the array or map: items that are left of the
    block, its entry, that of its first key, and where the block must end (-1: not known)."""
    start = code[pc, 1]
    slot = code[start, 4]
    if store and code[start, 2]:
        newest = base[slot + 1] + counts[slot + 1] - 1
        if newest > inside[2] and _is_repeated_key(data, slots, inside[2], newest):
            return pc, I64(-1)
    if inside[0] == 0:
        if inside[3] >= 0 and inside[3] != at:
            return pc, I64(-1)
        count, at = _long(data, at, end)
        inside[3] = -1
        if at >= 0 and count < 0:
            size, at = _long(data, at, end)  # the block's, for who skips it
            if at < 0 or size < 0 or size > end - at:
                return pc, I64(-1)
            inside[3] = at + size
        # Every item has a byte; those that have none are left to the plain decoder.
        if at < 0 or count > end - at or count < at - end:
            return pc, I64(-1)
        inside[0] = abs(count)
        if store:
            slots[1][inside[1]] += inside[0]
        if count == 0:
            return pc + 1, at
    inside[0] -= 1
    return start + 1, at


@part
def _row(code, jumps, data, at, end, slots, base, counts, store, stack):
    """Whether the row's bytes are exactly one value."""
    pc, depth, last = I64(0), I64(-1), I64(len(code))
    while pc < last and at >= 0:
        what, slot = code[pc, 0], code[pc, 4]
        if what == OPTIONAL:
            pc, at = _optional(code, pc, data, at, end, slots, base, counts, store)
        elif what == UNION:
            pc, at = _union(code, jumps, pc, data, at, end, slots, base, counts, store)
        elif what == GOTO:
            pc = code[pc, 1]
        elif what == REPEATED:
            depth += 1
            stack[depth, 0], stack[depth, 3] = 0, -1
            stack[depth, 1] = base[slot] + counts[slot]
            if code[pc, 2]:
                stack[depth, 2] = base[slot + 1] + counts[slot + 1]
            _put(slots, base, counts, store, slot, 0, 0, 1)
            pc = code[pc, 1] - 1  # its AGAIN
        elif what == AGAIN:
            again = pc + 1
            pc, at = _again(code, pc, data, at, end, slots, base, counts, store, stack[depth])
            depth -= pc == again
        else:
            number, size, at = _scalar(code, pc, data, at, end)
            if at >= 0:
                _put(slots, base, counts, store, slot, number, size, 1)
            pc += 1
    return at == end


@part
def _copy(source, target):
    for i in range(source.size):
        target[i] = source[i]


@part
def decode(code, jumps, data, starts, ends, state, slots, base, counts, before, stack, store):
    """Every row of `data`; rows that are no value become BAD in `state`, and have nulls.

    Not `store`, it only counts the entries of each slot, for whoever makes room for them. `before`
    (as large as `counts`) and `stack` (four words for each level of arrays and maps) are scratch.
    """
    for row in range(len(starts)):
        _copy(counts, before)
        if state[row] == GOOD:
            at, end = starts[row], ends[row]
            if not _row(code, jumps, data, at, end, slots, base, counts, store, stack):
                state[row] = BAD
                _copy(before, counts)
        if state[row] != GOOD:
            _nulls(code, 0, len(code), slots, base, counts, store)
