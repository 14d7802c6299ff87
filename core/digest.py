"""Digest of a multiset of rows: equal for equal rows, in any order and any batches.

Each row becomes one row fingerprint of 128 bits; a digest is the sum of them, in two lanes modulo
2**64, so it can be built in parts and merged. Rows count as often as they occur.

A row is framed as 64-bit little-endian words: topic length, topic; partition (-1 when the
partitioner chooses), key length (-1 for null), value length (-1 for null), number of headers, key,
value; and for each header name length, value length (-1 for null), name, value. Each field is
filled up with zero bytes to a whole word. The words are one big number X of n words; its lanes are
X * 2**(-64 n) modulo two fixed 64-bit primes, then mixed. A compiled loop gets there word by word
(Montgomery's reduction, eo_kafka.core.digest_kernel), Python with one big division: both give the
same value.
Rows that differ within one stretch of 15 bytes never share a fingerprint; others do with a
probability near 2**-126. It is no defence against somebody who looks for collisions.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

VERSION = "m1"
_MASK = 2**64 - 1
# The first primes from the fractional bits of the square roots of 3 and 5 on.
PRIMES = (0xBB67AE8584CAA753, 0xA54FF53A5F1D3753)
INVERSES = tuple(pow(prime, -1, 2**64) for prime in PRIMES)

Headers = Sequence[tuple[bytes, bytes | None]]


class Digest:
    """The digest of the rows added so far. Not safe for threads."""

    def __init__(self) -> None:
        self.rows = 0
        self._lanes = (0, 0)

    @classmethod
    def of(cls, rows: int, text: str) -> Digest:
        """The digest of so many rows from what `text()` gave. Raises ValueError."""
        version, _, digits = text.partition(":")
        if version != VERSION or len(digits) != 32:
            raise ValueError(f"'{text}' is no digest of version {VERSION}")
        found = cls()
        found.add_lanes(rows, int(digits[:16], 16), int(digits[16:], 16))
        return found

    def add(
        self,
        topic: bytes,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None = None,
    ) -> None:
        """Add one row as sent; `partition` is -1 when the partitioner chooses."""
        a, b = row_lanes(topic, partition, key, value, headers)
        self.add_lanes(1, a, b)

    def add_lanes(self, rows: int, a: int, b: int) -> None:
        """Add the summed fingerprints of `rows` rows."""
        self.rows += rows
        self._lanes = ((self._lanes[0] + a) & _MASK, (self._lanes[1] + b) & _MASK)

    def merge(self, other: Digest) -> None:
        """Add all rows of `other`."""
        self.add_lanes(other.rows, *other._lanes)

    def beside(self, other: Digest) -> Digest:
        """Of the same rows, each with what `other` has of it."""
        found = Digest()
        found.merge(self)
        found.add_lanes(0, *other._lanes)
        return found

    def text(self) -> str:
        """The digest with its version: `m1:` and 32 hexadecimal digits."""
        return f"{VERSION}:{self._lanes[0]:016x}{self._lanes[1]:016x}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Digest):
            return NotImplemented
        return (self.rows, self._lanes) == (other.rows, other._lanes)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Digest({self.rows} rows, {self.text()})"


def row_lanes(
    topic: bytes, partition: int, key: bytes | None, value: bytes | None, headers: Headers | None
) -> tuple[int, int]:
    """The fingerprint of one row."""
    headers = headers or ()
    sizes = struct.pack("<qqqq", partition, _size(key), _size(value), len(headers))
    frame = [struct.pack("<q", len(topic)), _words(topic), sizes, _words(key), _words(value)]
    for name, content in headers:
        frame += (struct.pack("<qq", len(name), _size(content)), _words(name), _words(content))
    framed = b"".join(frame)
    number, words = int.from_bytes(framed, "little"), len(framed) // 8
    a, b = (number % prime * _shift(words, prime) % prime for prime in PRIMES)
    first = _mix(a ^ _mix(b))
    return first, _mix((b + _mix(first)) & _MASK)


def _size(field: bytes | None) -> int:
    return -1 if field is None else len(field)


def _words(field: bytes | None) -> bytes:
    return field + b"\0" * (-len(field) % 8) if field else b""


@functools.lru_cache(maxsize=4096)
def _shift(words: int, prime: int) -> int:
    return pow(2, -64 * words, prime)


def _mix(word: int) -> int:
    """The finalizer of splitmix64: a bijection in which each bit reaches all others."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & _MASK
    return word ^ (word >> 31)
