# mypy: ignore-errors
"""The digest of rows as a compiled loop, equal to `eo_kafka.core.digest.row_lanes`."""

from __future__ import annotations

from .compiled import I64, U64, high, part, u8, u64
from .digest import INVERSES, PRIMES

_PRIME_A, _PRIME_B = PRIMES
_INVERSE_A, _INVERSE_B = INVERSES


@part
def _fold(residue, word, prime, inverse):
    """(residue + word) / 2**64 modulo prime."""
    low = residue + word
    carry = U64(1) if low < word else U64(0)
    upper = high(low * inverse, prime)
    if upper > carry:
        return carry - upper + prime
    return carry - upper


@part
def _fold_word(a, b, word):
    return (
        _fold(a, word, U64(_PRIME_A), U64(_INVERSE_A)),
        _fold(b, word, U64(_PRIME_B), U64(_INVERSE_B)),
    )


@part
def _fold_bytes(a, b, address, size):
    whole = size >> 3
    for i in range(whole):
        a, b = _fold_word(a, b, u64(address + 8 * i))
    if size & 7:
        word = U64(0)
        for i in range(size & 7):
            word |= U64(u8(address + 8 * whole + i)) << U64(8 * i)
        a, b = _fold_word(a, b, word)
    return a, b


@part
def _mix(word):
    word = (word ^ (word >> U64(30))) * U64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> U64(27))) * U64(0x94D049BB133111EB)
    return word ^ (word >> U64(31))


@part
def digest_rows(topic, partitions, key, value, first, number, name, content, lanes):
    """Add the fingerprints of rows to `lanes`; the framing is eo_kafka.core.digest's.

    Columns are (addresses, sizes) with size -1 for null; the headers of row i are
    first[i] .. first[i] + number[i] of `name` and `content`.
    """
    start_a, start_b = _fold_word(U64(0), U64(0), U64(topic.size))
    start_a, start_b = _fold_bytes(start_a, start_b, topic.ctypes.data, I64(topic.size))
    for i in range(partitions.size):
        a, b = _fold_word(start_a, start_b, U64(I64(partitions[i])))
        a, b = _fold_word(a, b, U64(key[1][i]))
        a, b = _fold_word(a, b, U64(value[1][i]))
        a, b = _fold_word(a, b, U64(number[i]))
        a, b = _fold_bytes(a, b, key[0][i], max(key[1][i], 0))
        a, b = _fold_bytes(a, b, value[0][i], max(value[1][i], 0))
        for j in range(first[i], first[i] + number[i]):
            a, b = _fold_word(a, b, U64(name[1][j]))
            a, b = _fold_word(a, b, U64(content[1][j]))
            a, b = _fold_bytes(a, b, name[0][j], name[1][j])
            a, b = _fold_bytes(a, b, content[0][j], max(content[1][j], 0))
        mixed = _mix(a ^ _mix(b))
        lanes[0] += mixed
        lanes[1] += _mix(b + _mix(mixed))
