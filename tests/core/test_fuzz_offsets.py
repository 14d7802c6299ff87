"""Offsets as JSON, from a checkpoint or an option: a position or a sentence, whatever it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.offsets import EARLIEST, OFFSET_MAX, PARTITION_MAX, decode, encode_text
from eo_kafka.errors import OptionsError
from eo_kafka.sources.settings.options import SourceOptions

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["0", "-1", "00", "9" * 5000, 2**63, 10**400, "x" * 100_000]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "0", "1", ""]) | st.text(max_size=3), inner)
    ),
    max_leaves=10,
)
NESTED = st.dictionaries(
    st.sampled_from(["a", "b"]) | st.text(max_size=3),
    st.dictionaries(st.sampled_from(["0", "1", "01"]) | st.text(max_size=3), JSON_VALUES),
)


def read(text: str) -> dict[Any, int] | None:
    """The position, or None when a sentence refuses it."""
    try:
        found = decode(text, lowest=EARLIEST)
    except ValueError as refused:
        assert len(str(refused)) < 1000
        str(refused).encode()
        return None
    for (topic, partition), offset in found.items():
        assert type(offset) is int and EARLIEST <= offset <= OFFSET_MAX
        assert type(partition) is int and 0 <= partition <= PARTITION_MAX
        assert topic.isascii() and topic.isprintable() and topic
    return found


@given(JSON_VALUES | NESTED, st.booleans())
def test_any_json_is_a_position_or_refused(value: Any, compact: bool) -> None:
    found = read(json.dumps(value, separators=(",", ":") if compact else None))

    if found:
        assert json.loads(encode_text(found)) == {
            topic: numbers for topic, numbers in value.items() if numbers
        }, "a position was read that does not stand there"


@given(st.binary(max_size=80).map(lambda value: value.decode("utf-8", "surrogateescape")))
def test_any_text_is_a_position_or_refused(text: str) -> None:
    read(text)


@given(st.data())
def test_changed_characters_are_refused_or_another_position(data: st.DataObject) -> None:
    good = '{"a":{"0":23,"1":7},"b":{"10":0}}'
    at = data.draw(st.integers(0, len(good)))
    inserted = data.draw(st.text('0123456789-+eE.{}[]",: ab\\u', max_size=3))
    text = good[:at] + inserted + good[at + data.draw(st.integers(0, 2)) :]

    found = read(text)

    if found is not None and found == decode(good):
        assert json.loads(text) == json.loads(good), "a changed text is read as the same position"


HARDENED = {
    "half a surrogate pair": r'{"\ud800":{"0":1}}',
    "a zero byte": r'{"a\u0000b":{"0":1}}',
    "no name": '{"":{"0":1}}',
    "a partition of 5000 digits": '{"a":{"' + "9" * 5000 + '":1}}',
    "an offset of 4000 digits": '{"a":{"0":' + "9" * 4000 + "}}",
    "an offset of 5000 digits": '{"a":{"0":' + "9" * 5000 + "}}",
    "a megabyte of offset": '{"a":{"0":"' + "x" * 1_000_000 + '"}}',
    "a megabyte of topic": '{"' + "x" * 1_000_000 + '":1}',
    "nesting just below the parser's limit": '{"a":{"0":' + "[" * 960 + "]" * 960 + "}}",
    "nesting": '{"a":{"0":' + "[" * 100_000 + "]" * 100_000 + "}}",
}


@pytest.mark.parametrize("text", HARDENED.values(), ids=HARDENED)
def test_what_no_partition_or_offset_can_be_is_refused_in_a_short_sentence(text: str) -> None:
    assert read(text) is None


def test_an_option_with_a_megabyte_in_it_is_refused_in_a_bounded_message() -> None:
    given_options = {
        "kafka.bootstrap.servers": "localhost:1",
        "subscribe": "a",
        "startingOffsets": '{"a":{"0":"' + "x" * 1_000_000 + '"}}',
    }
    with pytest.raises(OptionsError) as wrong:
        SourceOptions.parse(given_options, streaming=True)
    assert len(str(wrong.value)) < 5000
    assert "must give a whole number for a-0" in str(wrong.value)


def test_a_partition_of_5000_digits_is_said_to_be_none() -> None:
    with pytest.raises(ValueError, match=r"must name partitions of topic 'a' by number"):
        decode(HARDENED["a partition of 5000 digits"])
