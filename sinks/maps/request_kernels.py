# mypy: ignore-errors
"""Compiled loops that write put requests for an IMap; sinks/maps/requests.py has the layout.

A loop reads inside columns that sinks/rows/columns.py has checked; `fill` writes what `place`
counted.
"""

from __future__ import annotations

from numba import types

from ...core.compiled import I32, I64, copy, i32, part, put32, same, u8

U32 = types.uint32
FRAME = 6  # of each key and value: length i32, which counts this head too, and flags u16
HEAD = 12  # of text, JSON and byte arrays: hash i32, type i32, size i32
OF_ENTRY = 2 * (FRAME + HEAD)


@part
def _swapped(number):
    """The other byte order."""
    word = U32(number)
    return (
        (word << U32(24))
        | ((word << U32(8)) & U32(0xFF0000))
        | ((word >> U32(8)) & U32(0xFF00))
        | (word >> U32(24))
    )


@part
def _mixed(word):
    word = U32(word * U32(0xCC9E2D51))
    word = U32((word << U32(15)) | (word >> U32(17)))
    return U32(word * U32(0x1B873593))


@part
def _folded(found, word):
    found = U32(found ^ _mixed(word))
    found = U32((found << U32(13)) | (found >> U32(19)))
    return U32(found * U32(5) + U32(0xE6546B64))


@part
def _hash(address, size):
    """MurmurHash3 of a serialized key from its size on, as the members have it."""
    found = _folded(U32(0x01000193), _swapped(size))
    whole = size >> 2
    for i in range(whole):
        found = _folded(found, U32(i32(address + 4 * i)))
    if size & 3:
        word = U32(0)
        for i in range(size & 3):
            word |= U32(u8(address + 4 * whole + i)) << U32(8 * i)
        found = U32(found ^ _mixed(word))
    found = U32(found ^ U32(size + 4))
    found = U32((found ^ (found >> U32(16))) * U32(0x85EBCA6B))
    found = U32((found ^ (found >> U32(13))) * U32(0xC2B2AE35))
    return U32(found ^ (found >> U32(16)))


@part
def partition_of(found, partitions):
    """Of a hash, as the members have it: the lowest number has no absolute value."""
    signed = I64(I32(found))
    return I64(0) if signed == -0x80000000 else abs(signed) % partitions


@part
def place(key, value, table, chosen, partitions, sizes):
    """Of each key's first row: `chosen`, the row that counts, which is its last, and its partition;
    -1 for all others. `table` (its size a power of two, more than there are rows) begins as -1
    everywhere; `sizes` (one for each partition) gets the bytes of its entries.
    """
    mask = table.size - 1
    for i in range(key[1].size):
        found = _hash(key[0][i], key[1][i])
        at = I64(found) & mask
        while table[at] >= 0:
            first = table[at]
            if key[1][first] == key[1][i] and same(key[0][first], key[0][i], key[1][i]):
                break
            at = (at + 1) & mask
        chosen[i] = partitions[i] = -1
        if table[at] < 0:
            table[at] = i
            partitions[i] = partition_of(found, sizes.size)
        chosen[table[at]] = i
    for i in range(key[1].size):
        if chosen[i] >= 0 and value[1][chosen[i]] >= 0:
            sizes[partitions[i]] += OF_ENTRY + key[1][i] + value[1][chosen[i]]


@part
def _put(at, kind, address, size):
    put32(at, I32(FRAME + HEAD + size))
    put32(at + 4, I32(0))  # flags, and half of the hash, which is 0: nobody has set another one
    put32(at + 8, I32(0))
    put32(at + FRAME + 4, I32(_swapped(kind)))
    put32(at + FRAME + 8, I32(_swapped(size)))
    copy(at + FRAME + HEAD, address, size)
    return at + FRAME + HEAD + size


@part
def fill(key, value, kinds, chosen, partitions, at):
    """Write each entry where its partition's next one goes: the addresses `at`, which move on."""
    for i in range(chosen.size):
        row = chosen[i]
        if row >= 0 and value[1][row] >= 0:
            end = _put(at[partitions[i]], kinds[0], key[0][i], key[1][i])
            at[partitions[i]] = _put(end, kinds[1], value[0][row], value[1][row])
