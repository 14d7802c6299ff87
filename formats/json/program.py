"""Compiles a type to a program for the loop in formats/json/kernels.py. No I/O.

Every type is a row, its parts' rows come behind it (a list's items; a map's keys, then its values;
a struct's fields). A row is what to read, two arguments, and where the rows of its parts end.

| what | arguments | reads |
|---|---|---|
| STRUCT | its first place among the fields, how many | an object |
| LIST | | an array |
| MAP | | an object, its keys as values |
| LONG | lowest, highest | a number without fraction and exponent |
| REAL | whether it is to be a single one | any number |
| DECIMAL | digits behind the point, highest | a number without exponent, or a string of one |
| BOOLEAN | | true, false |
| STRING | | a string |
| DATE | | a string |
| TIMESTAMP | 1 with a zone (UTC's without), 0 never | a string |

`null` is read as any of them. A struct has a place among the fields for what comes before its
first field, and then one for each field: the field's row, where its name begins, the name's size,
which place came next the last time, and the last object that had it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..shared.slots import Node, Unsupported

if TYPE_CHECKING:
    import pyarrow as pa

STRUCT, LIST, MAP, LONG, REAL, DECIMAL, BOOLEAN, STRING, DATE, TIMESTAMP = range(10)
ROW_WORDS, FIELD_WORDS = 4, 5

_DECIMAL_DIGITS_MAX = 18  # of a 64-bit number
_PRECISION_MAX = 38


@dataclass
class Program:
    """Rows, places of fields, names one behind the other, and the depth of parts in each other.
    `repeated` are the rows that are read any number of times."""

    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    fields: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    names: bytes = b""
    depth: int = 0
    repeated: list[bool] = field(default_factory=list)


def compiled_type(kind: pa.DataType) -> tuple[Program, Node]:
    """The program of an Arrow type. Raises Unsupported."""
    program = Program()
    return program, _Compiler(program).type(kind, 1, False)


class _Compiler:
    """Walks over a type; `depth` is the number of types around and including one."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def type(self, kind: pa.DataType, depth: int, repeated: bool) -> Node:
        import pyarrow as pa

        of, program = pa.types, self._program
        program.depth = max(program.depth, depth)
        at = len(program.rows)
        program.rows.append((0, 0, 0, 0))
        program.repeated.append(repeated)
        what, a, b = STRUCT, 0, 0
        if of.is_struct(kind):
            a, b = len(program.fields), kind.num_fields
            node = Node("struct", at, self._fields(kind, depth, repeated))
        elif of.is_list(kind):
            what, node = LIST, Node("list", at, (self.type(kind.value_type, depth + 1, True),))
        elif of.is_map(kind):
            keys = self.type(kind.key_type, depth + 1, True)
            what, node = MAP, Node("map", at, (keys, self.type(kind.item_type, depth + 1, True)))
        else:
            what, a, b, name = _scalar(kind)
            node = Node(name, at)
        program.rows[at] = (what, a, b, len(program.rows))
        return node

    def _fields(self, kind: pa.DataType, depth: int, repeated: bool) -> tuple[Node, ...]:
        program, first = self._program, len(self._program.fields)
        names = [one.name for one in kind]
        if len(set(names)) < len(names):
            raise Unsupported("two fields of one name")
        program.fields.append((-1, 0, 0, first + 1, 0))
        for place, name in enumerate(names, first + 1):
            if any(letter in '"\\' or letter < " " for letter in name):
                raise Unsupported("a name that JSON escapes")
            data = name.encode()
            start = len(program.names)
            following = place + 1 if place < first + len(names) else first + 1
            program.fields.append((0, start, len(data), following, 0))
            program.names += data
        parts = []
        for place, one in enumerate(kind, first + 1):
            row = len(program.rows)
            program.fields[place] = (row, *program.fields[place][1:])
            parts.append(self.type(one.type, depth + 1, repeated))
        return tuple(parts)


def _scalar(kind: pa.DataType) -> tuple[int, int, int, str]:
    """What to read with which arguments, and how a column is made of that."""
    import pyarrow as pa

    of = pa.types
    if of.is_signed_integer(kind):
        highest = 2 ** (kind.bit_width - 1) - 1
        return LONG, -highest - 1, highest, "number"
    if of.is_timestamp(kind) and kind.unit == "us":
        return TIMESTAMP, int(kind.tz is not None), 0, "number"
    if of.is_decimal128(kind) and kind.scale >= 0:
        digits = min(kind.precision, _DECIMAL_DIGITS_MAX)
        return DECIMAL, kind.scale, 10**digits - 1, "decimal"
    plain = {
        pa.float64(): (REAL, 0, 0, "number"),
        pa.float32(): (REAL, 1, 0, "rounded"),
        pa.bool_(): (BOOLEAN, 0, 0, "boolean"),
        pa.string(): (STRING, 0, 0, "bytes"),
        pa.date32(): (DATE, 0, 0, "number"),
    }
    if kind not in plain:
        raise Unsupported(f"values of {kind}")
    return plain[kind]
