"""Which columns files of a format can hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .formats import CSV, JSON
from .manifest import COLUMN, shown

_PLAIN = (
    *("boolean", "byte", "short", "integer", "long", "float", "double", "string"),
    *("date", "timestamp", "timestamp_ntz", "binary"),
)


def column_problems(file_format: str, schema: str) -> list[str]:
    """What is wrong with the rows' columns (`schema`: as Spark writes one in JSON): sentences."""
    found = []
    seen: dict[str, str] = {}
    for field in json.loads(schema)["fields"] if schema else ():
        name, lower = field["name"], field["name"].lower()
        if lower == COLUMN:
            found.append(
                f"Column '{name}': readers of directories call the number of a batch '{COLUMN}', "
                "by the folder that it is in. Give the column another name."
            )
        if lower in seen and seen[lower] != name:
            found.append(
                f"Columns '{seen[lower]}' and '{name}' are one to readers. Rename one of them."
            )
        seen[lower] = name
        for kind in sorted({shown(one) for one in _refused(file_format, field["type"])}):
            found.append(
                f"Column '{name}' has type {kind}, which {file_format} files do not keep: cast it"
                + (" (to_json makes text of it)." if kind.startswith("{") else ".")
            )
    return found


def _refused(file_format: str, kind: Any) -> Iterator[Any]:
    if isinstance(kind, str):
        known = kind in _PLAIN or kind.startswith(("decimal(", "char(", "varchar("))
        if not known or (file_format == CSV and kind == "binary"):
            yield kind
    elif file_format == CSV or kind["type"] == "udt":
        yield kind
    elif kind["type"] == "struct":
        if len({field["name"].lower() for field in kind["fields"]}) < len(kind["fields"]):
            yield kind  # Spark's readers take fields in any case, so they refuse two of a name
        for field in kind["fields"]:
            yield from _refused(file_format, field["type"])
    elif kind["type"] == "array":
        yield from _refused(file_format, kind["elementType"])
    else:
        if file_format == JSON and kind["keyType"] != "string":
            yield kind  # JSON's maps have strings for keys
        yield from _refused(file_format, kind["keyType"])
        yield from _refused(file_format, kind["valueType"])
