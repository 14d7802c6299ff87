"""Compiles an Avro schema to a program for the loop in formats/avro/kernels.py. No I/O.

Values are read as they were written, and kept as another schema wants them, if there is another:
fields that it does not have are read and dropped, those it has besides are its defaults, numbers
widen. What is rarer than that is left to the plain decoder (`Unsupported`).

Every type is one instruction, or one in front of those of its parts; every type that a column is
made of has a slot, where its values go. An instruction is a row of five numbers: what to do, three
arguments, the slot (-1: none).

| what | arguments | reads |
|---|---|---|
| LONG | lowest, highest | a zigzag number |
| RAW | size | 4 or 8 bytes, as they are |
| BOOLEAN | | one byte, 0 or 1 |
| BYTES | | a length and as many bytes |
| FIXED | size | as many bytes |
| DECIMAL | highest, size or -1 | bytes (up to 8), big-endian |
| RECORD | | nothing: its fields follow |
| OPTIONAL | branch of null, the other, where it ends | which branch |
| UNION | its jumps, how many, where it ends | which branch; null's jump is -1 |
| GOTO | where to | nothing: the end of a union's branch |
| REPEATED | where it ends, whether a map | the first block's length |
| AGAIN | its REPEATED | the next block's length, where one ends |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from .slots import Node, Unsupported
from .types import BARE_ITEMS, Schema, full_name, has_bare_items, is_one_column

LONG, RAW, BOOLEAN, BYTES, FIXED, DECIMAL, RECORD = range(7)
OPTIONAL, UNION, GOTO, REPEATED, AGAIN = range(7, 12)

_EPOCH = date(1970, 1, 1).toordinal()
_DAYS = (date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH)
_DAY_US = 86_400_000_000
_MICROS = (_DAYS[0] * _DAY_US, (_DAYS[1] + 1) * _DAY_US - 1)  # what a datetime holds
_MILLIS = (_MICROS[0] // 1000, _MICROS[1] // 1000)
INT32 = (-(2**31), 2**31 - 1)
INT64 = (-(2**63), 2**63 - 1)
_LOGICAL = {
    ("int", "date"): _DAYS,
    ("long", "timestamp-millis"): _MILLIS,
    ("long", "local-timestamp-millis"): _MILLIS,
    ("long", "timestamp-micros"): _MICROS,
    ("long", "local-timestamp-micros"): _MICROS,
}
_MILLISECONDS = ("timestamp-millis", "local-timestamp-millis")
_DIGITS_OF_INT64 = 18


@dataclass
class Program:
    """Instructions, the jumps of unions, and what the slots are."""

    code: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    jumps: list[int] = field(default_factory=list)
    slots: int = 0
    depth: int = 0  # of repeated parts in each other

    def add(self, what: int, a: int = 0, b: int = 0, c: int = 0, slot: int = -1) -> int:
        """Where the new instruction is."""
        self.code.append((what, a, b, c, slot))
        return len(self.code) - 1

    def valued(self, kind: str, what: int, a: int = 0, b: int = 0, **rest: Any) -> Node:
        """An instruction with a slot of its own."""
        self.slots += 1
        self.add(what, a, b, 0, self.slots - 1)
        return Node(kind, self.slots - 1, **rest)

    def end(self, at: int, argument: int) -> None:
        """Tell the instruction `at`, in its `argument`, that it ends here."""
        row = list(self.code[at])
        row[argument] = len(self.code)
        self.code[at] = (row[0], row[1], row[2], row[3], row[4])


# What a number may become that was written as another type: the kind of the column's node.
PROMOTED = {
    ("int", "long"): "number",
    ("int", "float"): "widened",
    ("int", "double"): "widened",
    ("long", "float"): "widened",
    ("long", "double"): "widened",
    ("float", "double"): "single",
    ("string", "bytes"): "bytes",
    ("bytes", "string"): "bytes",
}
_SIMPLE = {
    "boolean": ("boolean", BOOLEAN, 0),
    "bytes": ("bytes", BYTES, 0),
    "double": ("number", RAW, 8),
    "float": ("number", RAW, 4),
    "string": ("bytes", BYTES, 0),
}
_NAMED = ("record", "error", "enum", "fixed")
_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_SAME = ("logicalType", "precision", "scale", "size", "symbols")


def compiled_schema(written: Schema, wanted: Schema | None = None) -> tuple[Program, Node]:
    """The program of a (parsed) schema, whose values become what `wanted` says. Raises
    Unsupported."""
    if has_bare_items(written):
        raise Unsupported(BARE_ITEMS)
    program = Program()
    compiler = _Compiler(program, is_same=wanted is None)
    return program, compiler.type(written, written if wanted is None else wanted, 0)


class _Compiler:
    """Walks over what was written and what is wanted, side by side."""

    def __init__(self, program: Program, is_same: bool) -> None:
        self._program = program
        self._is_same = is_same
        self._named: tuple[dict[str, Any], dict[str, Any]] = ({}, {})

    def type(self, written: Any, wanted: Any, depth: int) -> Node:
        """The node of one type, at `depth` repeated parts."""
        written, wanted = self._defined(written, 0), self._defined(wanted, 1)
        if isinstance(written, list):
            return self._union(written, wanted, depth)
        if isinstance(wanted, list):
            present = [branch for branch in wanted if branch != "null"]
            if len(present) != 1:
                raise Unsupported("a union where none was written")
            wanted = self._defined(present[0], 1)
        if _head(written) != _head(wanted):
            return self._promoted(written["type"], wanted["type"], written, wanted)
        kind = written["type"]
        if kind in ("record", "error"):
            return self._record(written, wanted, depth)
        if kind in ("array", "map"):
            return self._repeated(written, wanted, depth + 1)
        return self._scalar(kind, written)

    def _defined(self, schema: Any, side: int) -> Any:
        """A schema as a list or a mapping, by its definition if it is a name."""
        names = self._named[side]
        if isinstance(schema, str):
            return names.get(schema, {"type": schema})
        if isinstance(schema, list):
            return schema
        if not isinstance(schema["type"], str):
            return self._defined(schema["type"], side)
        if schema["type"] in _NAMED:
            names[full_name(schema)] = schema
        elif schema["type"] in names:
            return names[schema["type"]]
        return schema

    def _promoted(self, kind: str, into: str, written: Any, wanted: Any) -> Node:
        node = PROMOTED.get((kind, into))
        if node is None or "logicalType" in written or "logicalType" in wanted:
            raise Unsupported(f"{kind} that is read as {into}")
        return replace(self._scalar(kind, written), kind=node)

    def _scalar(self, kind: str, schema: Any) -> Node:
        valued, logical = self._program.valued, schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            digits = int(schema["precision"])
            highest = 10**digits - 1 if digits <= _DIGITS_OF_INT64 else INT64[1]
            return valued("decimal", DECIMAL, highest, int(schema.get("size", -1)))
        if kind in ("int", "long"):
            bounds = _LOGICAL.get((kind, str(logical)), INT32 if kind == "int" else INT64)
            is_millis = kind == "long" and logical in _MILLISECONDS
            return valued("millis" if is_millis else "number", LONG, *bounds)
        if kind == "enum":
            symbols = tuple(schema["symbols"])
            return valued("enum", LONG, 0, len(symbols) - 1, symbols=symbols)
        if kind == "fixed":
            return valued("bytes", FIXED, int(schema["size"]))
        if kind not in _SIMPLE:
            raise Unsupported(f"type '{kind}' outside a union")
        return valued(*_SIMPLE[kind])

    def _record(self, written: Any, wanted: Any, depth: int) -> Node:
        node = self._program.valued("struct", RECORD)
        names = {one["name"]: one for one in wanted["fields"]}
        parts: dict[str, Node] = {}
        for one in written["fields"]:
            name = one["name"]
            into = names[name]["type"] if name in names else one["type"]
            if name not in names and not _is_primitive(one["type"]):
                raise Unsupported("a dropped field of a type that may have names in it")
            parts[name] = self.type(one["type"], into, depth)
        for name, one in names.items():
            if not self._is_same and "aliases" in one:
                raise Unsupported("aliases")
            if name not in parts:
                parts[name] = Node("constant", node.slot, constant=_default(one))
        return replace(node, parts=tuple(parts[name] for name in names))

    def _repeated(self, written: Any, wanted: Any, depth: int) -> Node:
        is_map = written["type"] == "map"
        inner = "values" if is_map else "items"
        program, at = self._program, len(self._program.code)
        node = program.valued("map" if is_map else "list", REPEATED, 0, int(is_map))
        program.depth = max(program.depth, depth)
        parts = [program.valued("bytes", BYTES)] if is_map else []
        parts.append(self.type(written[inner], wanted[inner], depth))
        program.add(AGAIN, at)
        program.end(at, 1)
        return replace(node, parts=tuple(parts))

    def _union(self, written: list[Any], wanted: Any, depth: int) -> Node:
        present = [number for number, branch in enumerate(written) if branch != "null"]
        if not present or len(written) - len(present) > 1:
            raise Unsupported("a union of nulls")
        if len(present) > 1:
            return self._several(written, present, wanted, depth)
        into = [one for one in wanted if one != "null"] if isinstance(wanted, list) else []
        null = next((number for number, branch in enumerate(written) if branch == "null"), -1)
        if len(into) != 1 or (null >= 0 and "null" not in wanted):
            raise Unsupported("a union that is read as none")
        at = self._program.add(OPTIONAL, null, present[0])
        node = self.type(written[present[0]], into[0], depth)
        self._program.end(at, 3)
        return node

    def _several(self, written: list[Any], present: Sequence[int], wanted: Any, depth: int) -> Node:
        if not self._is_same:
            raise Unsupported("a union of several types that has changed")
        kinds = [written[number] for number in present]
        if is_one_column(kinds):
            raise Unsupported("a union of a number and a wider one")
        program, at, first = self._program, len(self._program.code), len(self._program.jumps)
        program.jumps += [-1] * len(written)
        node = program.valued("struct", UNION, first, len(written))
        parts, ends = [], []
        for number in present:
            program.jumps[first + number] = len(program.code)
            parts.append(self.type(written[number], wanted[number], depth))
            ends.append(program.add(GOTO))
        for end in ends:
            program.end(end, 1)
        program.end(at, 3)
        return replace(node, parts=tuple(parts))


def _head(schema: Any) -> tuple[Any, ...]:
    """What must be the same for a value to be read as it was written."""
    kind = schema["type"]
    name = full_name(schema) if kind in _NAMED else None
    return (kind, name, *(schema.get(what) for what in _SAME))


def _is_primitive(schema: Any) -> bool:
    """Whether it is made of Avro's own names only."""
    if isinstance(schema, list):
        return all(_is_primitive(branch) for branch in schema)
    if isinstance(schema, str):
        return schema in _PRIMITIVES
    return schema["type"] in _PRIMITIVES


def _default(field: Any) -> Any:
    """What a field has that was not written. Raises Unsupported for what is no plain value."""
    kind, found = field["type"], field.get("default", ...)
    if isinstance(kind, list):
        if found is not None and not is_one_column([branch for branch in kind if branch != "null"]):
            raise Unsupported("a default of one of several types")
        kind = kind[0]
    if kind not in ("null", "boolean", "int", "long", "float", "double", "string"):
        raise Unsupported("a default that is no plain value")
    if found is not None and not isinstance(found, (bool, int, float, str)):
        raise Unsupported("a field that was not written and has no default")
    return found
