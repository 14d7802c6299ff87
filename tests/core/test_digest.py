"""The digest: what it must tell apart, what it must not, and that both implementations agree."""

from __future__ import annotations

import random
import struct
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eo_kafka.core import librdkafka
from eo_kafka.core.digest import INVERSES, PRIMES, Digest, row_lanes
from eo_kafka.sinks.rows import fast, plain

field = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(max_size=9), field), max_size=3)
row = st.tuples(
    field, field, st.sampled_from("abc"), st.none() | st.integers(0, 2**31 - 1), st.none() | headers
)
SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def batch(rows):
    return pa.record_batch([list(column) for column in zip(*rows, strict=True)], schema=SCHEMA)


def plain_digest(record_batch, topic=None):
    digest = Digest()
    for name, partition, key, value, found in plain.batch_rows(record_batch, topic):
        digest.add(name.encode(), partition, key, value, found)
    return digest


def one(*args):
    digest = Digest()
    digest.add(*args)
    return digest.text()


@pytest.mark.skipif(librdkafka.available() is not None, reason=str(librdkafka.available()))
@settings(max_examples=200, deadline=None)
@given(st.lists(row, min_size=1, max_size=20), st.integers(0, 5), st.none() | st.just("given"))
def test_compiled_and_plain_agree_on_any_slice(rows, start, topic):
    sliced = batch(rows).slice(start)
    expected = plain_digest(sliced, topic)
    assert fast.row_digest([sliced], topic) == (expected.rows, expected.text())


EXTREME = [0, 1, 2**64 - 1, 2**63, *PRIMES, *(prime - 1 for prime in PRIMES)]


@pytest.mark.skipif(librdkafka.available() is not None, reason=str(librdkafka.available()))
@pytest.mark.parametrize("word", EXTREME)
def test_compiled_and_plain_agree_on_any_length(word):
    """The compiled loop takes several words at a time."""
    rng = random.Random(word)
    values = [
        b"".join(rng.choice([word, word, *EXTREME]).to_bytes(8, "little") for _ in range(40))
        for _ in range(320)
    ]
    rows = batch([(None, value[:size], "t", None, None) for size, value in enumerate(values)])
    expected = plain_digest(rows)
    assert fast.row_digest([rows], None) == (expected.rows, expected.text())


@settings(deadline=None)
@given(st.lists(row, min_size=1, max_size=20), st.randoms(), st.integers(0, 20))
def test_order_and_batches_do_not_matter(rows, rng, cut):
    shuffled = rng.sample(rows, len(rows))
    parts = [part for part in (shuffled[:cut], shuffled[cut:]) if part]
    merged = Digest()
    for part in parts:
        merged.merge(plain_digest(batch(part)))
    assert merged == plain_digest(batch(rows))


@settings(deadline=None)
@given(row, row)
def test_rows_that_differ_have_different_digests(a, b):
    def sent(r):
        return (r[0], r[1], r[2], -1 if r[3] is None else r[3], r[4] or [])

    same = plain_digest(batch([a])) == plain_digest(batch([b]))
    assert same == (sent(a) == sent(b))


def test_fields_are_framed():
    rows = [
        (b"t", -1, b"ab", b"c"),
        (b"t", -1, b"a", b"bc"),
        (b"ta", -1, b"b", b"c"),
        (b"t", -1, b"abc", None),
        (b"t", -1, b"abc", b""),
        (b"t", -1, None, b"abc"),
        (b"t", -1, b"", b"abc"),
        (b"t", 0, b"", b"abc"),
        (b"t", -1, b"", b"abc\0"),
        (b"t", -1, b"", b"abc", [(b"h", None)]),
        (b"t", -1, b"", b"abc", [(b"h", b"")]),
        (b"t", -1, b"", b"abc", [(b"", b"h")]),
        (b"t", -1, b"", b"abc", [(b"h", None), (b"i", None)]),
        (b"t", -1, b"", b"abc", [(b"i", None), (b"h", None)]),
    ]
    assert len({one(*row) for row in rows}) == len(rows)


def test_a_row_counts_as_often_as_it_occurs():
    once, twice = Digest(), Digest()
    once.add(b"t", 0, b"k", b"v")
    for _ in range(2):
        twice.add(b"t", 0, b"k", b"v")
    assert once.text() != twice.text() != Digest().text()


def test_each_bit_of_a_row_changes_half_of_the_digest():
    rng = random.Random(1)
    flips = []
    for _ in range(40):
        value = rng.randbytes(24)
        before = row_lanes(b"t", 0, b"k", value, None)
        for bit in range(0, 192, 7):
            changed = bytearray(value)
            changed[bit // 8] ^= 1 << bit % 8
            after = row_lanes(b"t", 0, b"k", bytes(changed), None)
            flips += [(x ^ y).bit_count() for x, y in zip(before, after, strict=True)]
    assert 31 < sum(flips) / len(flips) < 33
    assert min(flips) > 8


def test_structured_rows_do_not_collide():
    seen = {row_lanes(b"t", -1, None, struct.pack("<qq", a, b), None)
            for a in range(-150, 150) for b in range(-150, 150)}  # fmt: skip
    assert len(seen) == 300 * 300
    lane = sorted(first for first, _ in seen)
    assert all(x != y for x, y in pairwise(lane))


def test_the_text_is_stable():
    digest = Digest()
    digest.add(b"flights", 3, b"key", b"some value", [(b"h", b"x")])
    assert digest.text() == "m1:1fc5bf834a2e5e756aa046b7d250719d"


def test_the_constants_belong_together():
    assert all(p * i % 2**64 == 1 for p, i in zip(PRIMES, INVERSES, strict=True))
