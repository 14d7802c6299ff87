"""Ids of records and offset ranges, as `eo-kafka verify` reads them."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from eo_kafka.core.offsets import OffsetRange, TopicPartition
from eo_kafka.errors import OptionsError
from eo_kafka.tools.verify.command import _range
from eo_kafka.tools.verify.topic_diff import How

AT = TopicPartition("orders", 3)
WHOLE = {AT: OffsetRange(AT, 50, 200)}


def ids(how: str, key: bytes | None, value: bytes | None, headers=()) -> bytes | None:
    batch = pa.RecordBatch.from_pydict(
        {"key": [key], "value": [value], "headers": [list(headers)]},
        schema=pa.schema(
            [
                ("key", pa.binary()),
                ("value", pa.binary()),
                ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
            ]
        ),
    )
    (found,) = How.parse(how).ids(batch)
    return found


def test_a_record_is_key_and_value_and_neither_runs_into_the_other():
    different = {
        ids("record", key, value)
        for key, value in (
            (b"ab", b"c"),
            (b"a", b"bc"),
            (None, b"abc"),
            (b"", b"abc"),
            (b"abc", b""),
        )
    }
    assert len(different) == 5


def test_ids_in_headers_and_json():
    headers = [{"key": "id", "value": b"1"}, {"key": "x", "value": b"?"}]
    assert ids("header:id", None, None, headers) == b"1"
    assert ids("header:none", None, None, headers) is None
    value = json.dumps({"a": {"b": 7}, "c": None}).encode()
    assert ids("json:a.b", None, value) == b"7"
    assert ids("json:a", None, b'{"a": {"y": 1, "x": 2}}') == ids(
        "json:a", None, b'{"a":{"x":2,"y":1}}'
    )
    assert ids("json:c", None, value) is ids("json:a.b.c", None, value) is None
    assert ids("json:a", None, None) is None
    long, other, again = (
        ids("json:a", None, b'{"a": %s}' % number)
        for number in (b"12345678901234567.81", b"12345678901234567.82", b"12345678901234567.810")
    )
    assert long == again != other


@pytest.mark.parametrize("wrong", ["", "values", "header", "json:", "key:x"])
def test_a_wrong_id_is_refused(wrong):
    with pytest.raises(OptionsError, match="--by is"):
        How.parse(wrong)


@pytest.mark.parametrize(
    ("text", "start", "end"), [("3", 50, 200), ("3:100-150", 100, 150), ("3:-150", 50, 150)]
)
def test_a_range_is_what_it_says(text, start, end):
    assert _range("--input-range", text, "orders", WHOLE) == OffsetRange(AT, start, end)


@pytest.mark.parametrize("text", ["3:0-100", "3:100-900", "3:300-", "3:150-100"])
def test_a_range_of_what_is_not_there_is_refused(text):
    """Cut to what is there it would compare less than was asked for, or nothing, and say equal."""
    with pytest.raises(OptionsError, match="not within what can be read.*: 50-200"):
        _range("--input-range", text, "orders", WHOLE)
