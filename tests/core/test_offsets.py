"""The checkpoint's JSON of offsets: one text for one position, and nothing guessed."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.offsets import (
    EARLIEST,
    OFFSET_MAX,
    PARTITION_MAX,
    Position,
    TopicPartition,
    decode,
    decode_position,
    encode,
    encode_position,
    encode_text,
    names,
)

positions = st.dictionaries(
    st.builds(TopicPartition, st.text("ab.-_1", min_size=1), st.integers(0, PARTITION_MAX)),
    st.integers(0, OFFSET_MAX),
)


def test_text_is_the_jvm_connectors() -> None:
    offsets = {TopicPartition("b", 0): 7, TopicPartition("a", 1): 23}

    assert encode_text(offsets) == '{"a":{"1":23},"b":{"0":7}}'


def test_partitions_are_in_numerical_order_topics_in_alphabetical() -> None:
    offsets = {TopicPartition(topic, n): n for topic in "ba" for n in (10, 9, 2, 0)}

    assert json.dumps(encode(offsets)) == (
        '{"a": {"0": 0, "2": 2, "9": 9, "10": 10}, "b": {"0": 0, "2": 2, "9": 9, "10": 10}}'
    )


@given(positions, st.randoms())
def test_one_position_has_one_text(offsets: dict[TopicPartition, int], random: object) -> None:
    shuffled = list(offsets.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert encode_text(dict(shuffled)) == encode_text(offsets)
    assert json.dumps(encode(dict(shuffled))) == json.dumps(encode(offsets))


@given(positions)
def test_decode_gives_back_what_was_encoded(offsets: dict[TopicPartition, int]) -> None:
    assert decode(encode_text(offsets)) == offsets
    assert decode(encode(offsets)) == offsets


_names = st.text("ab.-_1", min_size=1)


@given(
    positions,
    st.none() | _names,
    st.none() | st.integers(1, 9_999_999_999),
    st.dictionaries(_names, st.uuids().map(str)),
    st.randoms(),
)
def test_a_position_comes_back_with_its_marks(
    offsets: dict[TopicPartition, int],
    continues: str | None,
    most_tasks: int | None,
    ids: dict[str, str],
    random: Random,
) -> None:
    some = frozenset(sorted(ids)[::2])
    epochs = {at: random.randrange(1000) for at in offsets if random.random() < 0.7}
    begins = {at: random.randrange(OFFSET_MAX + 1) for at in offsets if random.random() < 0.7}
    position = Position(offsets, continues, most_tasks, ids, some, epochs, begins)

    assert decode_position(json.dumps(encode_position(position))) == position
    assert decode_position(encode_text(offsets)) == Position(offsets)


def test_offsets_that_a_user_copies_from_a_report_may_have_marks() -> None:
    marks = '"@tasks 8":{},"@anew a 1b-c":{},"@id b 2":{},"@epochs a 7":{},"@from a 0":{}'
    copied = f'{{"a":{{"1":23}},{marks}}}'
    assert decode(copied) == {TopicPartition("a", 1): 23}


@pytest.mark.parametrize(
    "name",
    [
        "@tasks 0",
        "@tasks x",
        "@tasks 08",
        "@tasks ",
        "@task 8",
        "@tasks 8 ",
        "@anew a",
        "@id a b c",
        "@epochs a",
        "@epochs a 1,",
        "@epochs a -2",
        "@from a",
        "@from a -2",
        "@x",
    ],
)
def test_what_another_version_may_say_is_refused_and_not_guessed(name: str) -> None:
    with pytest.raises(ValueError, match="must name topics; .* is none"):
        decode_position({"a": {"1": 23}, name: {}})
    with pytest.raises(ValueError, match="must name topics; .* is none"):
        decode_position({"@tasks 8": {"0": 1}})


@pytest.mark.parametrize("mark", ["epochs", "from"])
def test_epochs_and_beginnings_are_of_all_partitions_of_a_topic(mark: str) -> None:
    with pytest.raises(ValueError, match=f"numbers in '@{mark}' as partitions of topic 'a'"):
        decode_position({"a": {"0": 23, "1": 5}, f"@{mark} a 7": {}})


def test_earliest_and_latest_only_where_they_are_allowed() -> None:
    text = '{"a":{"0":-2,"1":-1}}'

    assert decode(text, lowest=EARLIEST) == {
        TopicPartition("a", 0): -2,
        TopicPartition("a", 1): -1,
    }
    with pytest.raises(ValueError, match=r"from 0 to .* for a-0 it gives -2"):
        decode(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "must be a JSON object"),
        ("[]", "must be a JSON object"),
        ('{"a":{"0":1},"a":{"0":2}}', "names a key twice"),
        ('{"a":{"0":1,"0":2}}', "names a key twice"),
        ('{"a":{"0":1,"00":2}}', "must name partitions of topic 'a' by number; '00' is none"),
        ('{"a":{"x":1}}', "'x' is none"),
        ('{"a":{"-1":1}}', "'-1' is none"),
        ('{"a":{"2147483648":1}}', "'2147483648' is none"),
        ('{"a":{"\u0663":1}}', "is none"),
        ('{"a":[0,1]}', "must map topic 'a' to offsets by partition"),
        ('{"a":{"0":"5"}}', 'must give a whole number for a-0, .* it gives "5"'),
        ('{"a":{"0":1.5}}', "must give a whole number for a-0"),
        ('{"a":{"0":true}}', "must give a whole number for a-0"),
        ('{"a":{"0":null}}', "must give a whole number for a-0"),
        ('{"a":{"0":-3}}', "for a-0 it gives -3"),
        ('{"a":{"0":9223372036854775808}}', "must give offsets from 0 to"),
    ],
)
def test_refuses_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        decode(text, lowest=EARLIEST)


def test_names_are_sorted() -> None:
    assert names({TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)}) == (
        "a-9, a-10, b-0"
    )
