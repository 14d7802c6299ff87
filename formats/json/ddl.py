"""Finds what is wrong with columns that are written as SQL (`id BIGINT, name STRING`). No I/O.

Spark parses them, and says of a mistake anywhere in them that the first column is wrong.
"""

from __future__ import annotations

import difflib
import re

_TOKEN = re.compile(r"\s*(`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|\w+|\S)")
_NESTED = ("array", "map", "struct")
_TYPES = (
    *("boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"),
    *("float", "real", "double", "decimal", "dec", "numeric", "string", "char", "character"),
    *("varchar", "binary", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz"),
    *("interval", "void", "variant", "geometry", "geography"),
    *_NESTED,
)


def ddl_problem(columns: str) -> str | None:
    """The end of a sentence on the first type that is none of Spark's or is missing; None if there
    is no such. All else that may be wrong is left to Spark."""
    if "/*" in columns or "--" in columns:  # with comments in them
        return None
    left = _TOKEN.findall(columns)[::-1]
    problem = _fields(left)
    if problem is None and left:
        return f"has a '{left[-1]}' too many"
    return problem


def _fields(left: list[str]) -> str | None:
    """Names with their types, up to the end or a `>`."""
    while left and left[-1] != ">":
        name = left.pop()
        if left and left[-1] == ":":
            left.pop()
        if problem := _type(left, f"column '{name.strip('`')}'"):
            return problem
        if left and left[-1] == ",":
            left.pop()
    return None


def _type(left: list[str], of: str) -> str | None:
    """A type and what follows it (`NOT NULL`, `COMMENT 'text'`), up to a `,` or `>`."""
    word = left.pop() if left and left[-1] not in ",>" else ""
    if not word:
        return f"gives {of} no type"
    if word.lower() not in _TYPES:
        close = difflib.get_close_matches(word.lower(), _TYPES, n=1)
        hint = f" ({close[0].upper()} is one)" if close else ""
        return f"gives {of} the type '{word}', which is none of Spark's{hint}"
    if word.lower() in _NESTED and (problem := _inner(word.lower(), left, of)):
        return problem
    depth = 0
    while left and (depth or left[-1] not in (",", ">")):
        depth += {"(": 1, ")": -1}.get(left.pop(), 0)
    return None


def _inner(kind: str, left: list[str], of: str) -> str | None:
    if not left or left.pop() != "<":
        return f"gives {of} the type {kind.upper()} without '<...>'"
    if kind == "struct":
        problem = _fields(left)
    else:
        problem = _type(left, of)
        if problem is None and kind == "map" and left and left[-1] == ",":
            left.pop()
            problem = _type(left, of)
    if problem is None and (not left or left.pop() != ">"):
        return f"lacks a '>' behind the type of {of}"
    return problem
