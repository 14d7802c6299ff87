# mypy: ignore-errors
"""The digest of rows as a compiled loop, equal to `eo_kafka.core.digest.row_lanes`."""

from __future__ import annotations

from .compiled import I64, U64, high, part, sum_of_products, u8, u64
from .digest import INVERSES, PRIMES

_PRIME_A, _PRIME_B = PRIMES
_INVERSE_A, _INVERSE_B = INVERSES


def _block_of(words, prime):
    """The sum of a residue and some words, each times 2**-64 to the power of its place from behind,
    times 2**128: two reductions take that away again."""
    powers = [pow(2, 128 - 64 * place, prime) for place in range(words, 0, -1)]
    return sum_of_products([powers[0], *powers])


# Word by word, each waits for the one before. In a block their products do not: half the time for
# fields of 1000 bytes.
_LONG, _SHORT = 16, 4
_long_a, _long_b = (_block_of(_LONG, prime) for prime in PRIMES)
_short_a, _short_b = (_block_of(_SHORT, prime) for prime in PRIMES)


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
def _reduced(total, prime, inverse):
    """A sum of three words / 2**128 modulo prime, where the highest is at most `_LONG`."""
    taken = high(total[0] * inverse, prime)
    low = total[1] - taken
    upper = I64(total[2]) - (I64(1) if total[1] < taken else I64(0))
    taken = high(low * inverse, prime)
    if upper < 0 or taken > U64(upper):
        return U64(upper) - taken + prime
    return U64(upper) - taken


@part
def _reduced_pair(a, b):
    return (
        _reduced(a, U64(_PRIME_A), U64(_INVERSE_A)),
        _reduced(b, U64(_PRIME_B), U64(_INVERSE_B)),
    )


@part
def _fold_bytes(a, b, address, size):
    at, end = address, address + (size & ~7)
    while end - at >= 8 * _LONG:
        a, b = _reduced_pair(_long_a(a, at), _long_b(b, at))
        at += 8 * _LONG
    while end - at >= 8 * _SHORT:
        a, b = _reduced_pair(_short_a(a, at), _short_b(b, at))
        at += 8 * _SHORT
    while at < end:
        a, b = _fold_word(a, b, u64(at))
        at += 8
    if size & 7:
        word = U64(0)
        for i in range(size & 7):
            word |= U64(u8(end + i)) << U64(8 * i)
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
