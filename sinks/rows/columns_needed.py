"""Checks the columns of a sink's rows by the JVM connector's rules."""

from __future__ import annotations

from collections.abc import Collection, Sequence

_TEXT_OR_BYTES = ("string", "binary")  # "string collate ..." too
ENCODABLE = ("key", "value")  # by options such as `value.format`
_HEADERS = "array<struct<key:string,value:binary>>"
# name -> (types, as a sentence)
_TYPES = {
    "key": (_TEXT_OR_BYTES, "a string or binary"),
    "value": (_TEXT_OR_BYTES, "a string or binary"),
    "topic": (("string",), "a string"),
    "partition": (("int",), "an int"),
    "headers": ((_HEADERS,), f"an {_HEADERS}"),
}


def column_problems(
    columns: Sequence[tuple[str, str]], topic_option: bool, encoded: Collection[str] = ()
) -> list[str]:
    """What is wrong with the columns, as sentences. `columns` are (name, Spark's type string);
    those that are `encoded` may be of any type."""
    types = dict(columns)
    problems = []
    if "value" not in types:
        problems.append(
            "Required attribute 'value' not found: name the column to send 'value' (the columns "
            f"are {', '.join(name for name, _ in columns) or 'none'})."
        )
    if "topic" not in types and not topic_option:
        problems.append(
            "topic option required when no 'topic' attribute is present. "
            "Use the topic option for setting a topic."
        )
    for name, (allowed, sentence) in _TYPES.items():
        if name in encoded:
            continue
        if name in types and types[name].partition(" collate ")[0] not in allowed:
            problem = f"{name} attribute unsupported type {types[name]}. {name} must be {sentence}."
            if name in ENCODABLE:
                problem += (
                    f" Cast it, or set option '{name}.format' to 'json', 'avro' or 'protobuf'."
                )
            problems.append(problem)
    return problems
