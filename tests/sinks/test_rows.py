"""The columns of a sink, by the JVM connector's rules."""

from __future__ import annotations

import pytest

from eo_kafka.sinks.rows.columns_needed import column_problems

VALUE = ("value", "binary")
HEADERS = "array<struct<key:string,value:binary>>"


@pytest.mark.parametrize(
    "columns",
    [
        [VALUE],
        [("value", "string")],
        [("value", "string collate UTF8_LCASE")],
        [("key", "string"), VALUE, ("partition", "int"), ("headers", HEADERS)],
        [VALUE, ("other", "map<string,int>"), ("KEY", "int")],
    ],
)
def test_accepts(columns: list[tuple[str, str]]) -> None:
    assert column_problems(columns, topic_option=True) == []


def test_a_topic_column_stands_in_for_the_option() -> None:
    assert column_problems([VALUE, ("topic", "string")], topic_option=False) == []
    assert column_problems([VALUE], topic_option=False) == [
        "topic option required when no 'topic' attribute is present. "
        "Use the topic option for setting a topic."
    ]


@pytest.mark.parametrize(
    ("name", "kind", "must"),
    [
        ("key", "int", "a string or binary"),
        ("value", "array<string>", "a string or binary"),
        ("topic", "binary", "a string"),
        ("partition", "bigint", "an int"),
        ("partition", "string", "an int"),
        ("headers", "map<string,binary>", f"an {HEADERS}"),
        ("headers", "array<struct<key:string,value:string>>", f"an {HEADERS}"),
    ],
)
def test_refuses_a_type_with_one_sentence(name: str, kind: str, must: str) -> None:
    columns = dict([VALUE, ("topic", "string"), (name, kind)])
    hint = (
        f" Cast it, or set option '{name}.format' to 'json', 'avro' or 'protobuf'."
        if name in ("key", "value")
        else ""
    )

    assert column_problems(list(columns.items()), topic_option=False) == [
        f"{name} attribute unsupported type {kind}. {name} must be {must}.{hint}"
    ]


def test_an_interval_is_no_int() -> None:
    assert column_problems([VALUE, ("partition", "interval day to second")], topic_option=True)


def test_a_missing_value_names_the_columns_there_are() -> None:
    (found,) = column_problems([("id", "int"), ("name", "string")], topic_option=True)
    assert "'value' not found" in found
    assert "(the columns are id, name)" in found
    assert "(the columns are none)" in column_problems([], topic_option=True)[0]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    assert len(column_problems([("key", "int"), ("partition", "string")], topic_option=False)) == 4
