"""What the checkers of `eo_kafka.testing` compare: nothing that differs passes for the same."""

from __future__ import annotations

from decimal import Decimal
from types import SimpleNamespace

import pytest

from eo_kafka.testing import Anomaly, CheckRefused, assert_deterministic, assert_sum, trial
from eo_kafka.testing.ids import expected_ids, found_ids
from eo_kafka.testing.records import Record


def is_expected(expected: object, value: bytes) -> bool:
    wanted, is_json, has_keys = expected_ids([expected])
    return list(wanted) == found_ids([Record(0, 0, None, value)], is_json, has_keys)


@pytest.mark.parametrize(
    ("read", "written"),
    [
        (b'{"t":12345678901234567.89}', b'{"t":12345678901234568.0}'),
        (b'{"t":0.1000000000000000055511}', b'{"t":0.1}'),
        (b'{"t":1e400}', b'{"t":Infinity}'),
        (b'{"t":1e400}', b'{"t":1e401}'),
        (b'{"t":1}', b'{"t":1.0}'),
        (b'{"t":"1.5"}', b'{"t":1.5}'),
        (b'{"t":0.0}', b'{"t":-0.0}'),
        (b'{"t":12345678}', b'{"t":1.2345678E7}'),
        (b'{"t":1.2345678901234567890123E9}', b'{"t":1.2345678901234567E9}'),
        (b'[{"a":1.5}]', b'[{"a":1.25}]'),
    ],
)
def test_two_numbers_are_not_the_same(read, written):
    expected = Record(0, 0, None, read).json
    assert not is_expected(expected, written)
    assert is_expected(expected, read)


@pytest.mark.parametrize(
    ("expected", "written"),
    [
        ({"b": 1, "a": 1.5}, b'{"a":15e-1,"b":1}'),
        ({"a": Decimal("1.10")}, b'{"a":1.1}'),
        ({"a": Decimal(5)}, b'{"a":5}'),
        ({"a": 12345678.0}, b'{"a":1.2345678E7}'),
        ({"a": 7.193800533714229e16}, b'{"a":7.1938005337142288E16}'),  # as Java 17 writes it
        ({"a": Decimal("0.12345678901234567")}, b'{"a":0.12345678901234567}'),
        ({"a": Decimal("5.0")}, b'{"a":5.00}'),
        ({"a": Decimal("10e500")}, b'{"a":1.0e501}'),
        ({"a": [True, None, "\u00e9"]}, '{"a":[true,null,"\u00e9"]}'.encode()),
        ({1: float("nan")}, b'{"1":NaN}'),
        ([], b" []"),
    ],
)
def test_json_is_the_same_however_it_is_written(expected, written):
    assert is_expected(expected, written)


@pytest.mark.parametrize(
    "written",
    [b'{"a":1,"a":2}', '{"a":2}'.encode("utf-16"), b'\xef\xbb\xbf{"a":2}'],
    ids=["a-name-twice", "UTF-16", "a-byte-order-mark"],
)
def test_what_readers_may_take_for_something_else_is_not_the_same(written):
    assert not is_expected({"a": 2}, written)
    with pytest.raises(ValueError, match=r"twice|decode|BOM"):
        _ = Record(0, 0, None, written).json


def test_a_number_that_a_float_would_round_is_a_decimal():
    found = Record(0, 0, None, b'{"a":0.1,"b":12345678901234567.89,"c":7}').json
    assert found == {"a": 0.1, "b": Decimal("12345678901234567.89"), "c": 7}
    assert isinstance(found["a"], float)
    found = Record(0, 0, None, b'{"a":7.1938005337142288E16}').json
    assert isinstance(found["a"], float)
    assert is_expected(found, b'{"a":7.1938005337142288E16}')


@pytest.fixture
def amounts():
    """A topic of this test, which has these amounts."""
    trial.begin(SimpleNamespace(find=lambda topic: topic, report=lambda: "..."))

    def topic(*values: bytes) -> SimpleNamespace:
        records = [Record(0, n, None, b'{"amount":%s}' % one) for n, one in enumerate(values)]
        return SimpleNamespace(name="paid", read=lambda: records)

    yield topic
    trial.end()


def test_fractions_add_up(amounts):
    for values in ((b"1.5", b"-1.5"), (b"1", b"-1"), (b'"1.5"', b"-1.50"), (b"1e-3", b"-0.001")):
        assert_sum(amounts(*values), amount="json:amount", equals=0)
    assert_sum(amounts(b"0.1", b"0.2"), amount="json:amount", equals=Decimal("0.3"))
    assert_sum(amounts(b"0.1"), amount=lambda one: one.json["amount"], equals=Decimal("0.1"))


def test_a_sum_is_not_rounded(amounts):
    large = b"10000000000000000000000000000"
    with pytest.raises(Anomaly, match=r"add up to 0\.4, and should to 0"):
        assert_sum(amounts(large, b"0.4", b"-" + large), amount="json:amount", equals=0)
    with pytest.raises(CheckRefused, match="has more than 10000 digits"):
        assert_sum(amounts(b"1e9999", b"1e-9999"), amount="json:amount", equals=0)


def test_what_is_no_number_is_no_amount(amounts):
    for odd in (b'"x"', b"[5]", b"true", b"NaN", b"Infinity"):
        with pytest.raises(CheckRefused, match="1 records of 'paid' have no amount: 0@1"):
            assert_sum(amounts(b"1", odd), amount="json:amount", equals=1)


def outputs(first: list[Record], second: list[Record]) -> SimpleNamespace:
    """A job that gave these in two runs."""
    again = SimpleNamespace(run=lambda: None, sink=SimpleNamespace(read=lambda: second))
    sink = SimpleNamespace(read=lambda: first)
    return SimpleNamespace(drained=True, sink=sink, again=lambda: again, build="x:y")


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (Record(0, 0, b"k", b"v", (("run", b"11:07"),)), "k: v in partition 0 with headers run="),
        (Record(1, 0, b"k", b"v", (("run", b"11:02"),)), "k: v in partition 1 with headers run="),
        (Record(0, 0, b"k", b"v"), "k: v in partition 0. Look"),
    ],
    ids=["header", "partition", "no-header"],
)
def test_headers_and_the_partitions_of_keys_are_output(amounts, other, told):
    first = [Record(0, 0, b"k", b"v", (("run", b"11:02"),))]
    assert_deterministic(outputs(first, [*first]))
    with pytest.raises(Anomaly, match=f"Only in the second: 1: {told}"):
        assert_deterministic(outputs(first, [other]))


def test_what_has_no_key_may_go_to_another_partition(amounts):
    assert_deterministic(outputs([Record(0, 0, None, b"v")], [Record(1, 0, None, b"v")]))
