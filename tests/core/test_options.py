"""Reading options: one sentence for each that is wrong, all of them at once."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eo_kafka.core.options import (
    KafkaSettings,
    Option,
    OptionReader,
    boolean,
    json_object,
    one_of,
    text,
    whole_number,
)
from eo_kafka.errors import OptionsError

SIZE = Option("maxSize", whole_number(1, 9), 5, "A size.")
SERVERS = {"kafka.bootstrap.servers": "host:9092"}


@pytest.mark.parametrize("name", ["maxSize", "maxsize", "MAXSIZE"])
def test_names_in_any_case(name: str) -> None:
    reader = OptionReader({name: " 7 "})

    assert reader.get(SIZE) == 7
    assert "MaxSize" in reader
    reader.finish()


def test_an_absent_option_has_its_default() -> None:
    assert OptionReader({}).get(SIZE) == 5


def test_a_wrong_option_is_a_sentence_and_its_default() -> None:
    reader = OptionReader({"maxsize": "many", "other": "1"})

    assert reader.get(SIZE) == 5
    with pytest.raises(OptionsError) as refused:
        reader.finish()
    assert refused.value.problems == (
        "Option 'maxSize' must be a whole number of at least 1; it is 'many'.",
    )


def test_problems_are_collected_and_survive_pickling() -> None:
    reader = OptionReader({"maxsize": "0", "kafka.acks": "0"})
    reader.get(SIZE)
    reader.kafka({"acks": "reasons"})
    reader.refuse({"maxSize": "it is for others", "absent": "x"})
    with pytest.raises(OptionsError) as refused:
        reader.finish()

    assert len(refused.value.problems) == 4
    assert "Kafka option 'acks' is not supported: reasons." in refused.value.problems
    assert pickle.loads(pickle.dumps(refused.value)).problems == refused.value.problems


@pytest.mark.parametrize("servers", [{}, {"kafka.bootstrap.servers": "  "}])
def test_servers_are_needed(servers: dict[str, str]) -> None:
    reader = OptionReader(servers)
    reader.kafka({})

    assert "'kafka.bootstrap.servers' must be specified" in reader.problems[0]


def test_close_names_are_typing_errors_and_others_are_let_be() -> None:
    reader = OptionReader({"maxsise": "1", "path": "x", "kafka.maxsize": "1", "maxsize": "1"})
    reader.check_names(["maxSize"])

    assert reader.problems == ["Unknown option 'maxsise': did you mean 'maxSize'?"]


def test_values_of_settings_stay_out_of_reprs() -> None:
    settings = OptionReader({**SERVERS, "kafka.sasl.password": "hunter2"}).kafka({})

    assert settings["sasl.password"] == "hunter2"
    assert len(settings) == 2
    assert "hunter2" not in f"{settings!r} {settings!s} {[settings]}"
    assert "sasl.password" in repr(settings)


def test_merging_makes_a_copy() -> None:
    settings = KafkaSettings({"acks": "1"})

    assert dict(settings.merged(acks="all", linger_ms="5")) == {"acks": "all", "linger.ms": "5"}
    assert dict(settings) == {"acks": "1"}


@pytest.mark.parametrize("value", ["", "x", "1.5", "0", "10", "-1", "1e1"])
def test_whole_numbers_refuse(value: str) -> None:
    with pytest.raises(ValueError, match="must be a whole number"):
        whole_number(1, 9)(value)


@given(st.integers(1, 9))
def test_whole_numbers_accept(number: int) -> None:
    assert whole_number(1, 9)(f" {number}\n") == number


def test_words() -> None:
    assert text(" a ") == "a"
    assert one_of("one", "two")(" ONE ") == "one"
    assert boolean(" True ")
    assert not boolean("FALSE")
    with pytest.raises(ValueError, match="must not be empty"):
        text("  ")
    with pytest.raises(ValueError, match="must be one of one, two"):
        one_of("one", "two")("three")
    with pytest.raises(ValueError, match="must be true or false"):
        boolean("1")


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("{", "must be a JSON object"),
        ("[]", "must be a JSON object"),
        ('{"a":1,"a":2}', "names a key twice"),
        ('{"a":{"b":1,"b":2}}', "names a key twice"),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_json_objects_refuse(value: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        json_object(value)


def test_json_objects_accept() -> None:
    assert json_object('{"a":{"0":1}}') == {"a": {"0": 1}}
