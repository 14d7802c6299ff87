"""Writes a column of values as Avro at once: byte for byte what `codec.Encoder` makes of each.

Values are put together of pieces, which Arrow joins. A schema, a type of column or a value that is
not taken here is left to the encoder of single values, which writes it or refuses it
(tests/formats/test_avro_pieces.py). Runs on executors.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..shared import registry
from ..shared.decoding import merged
from ..shared.encoding import Encode, one_by_one
from . import codec
from .fitting import check_fields
from .scalars import Left, Pieces, Write, cut, of_sizes, scalar, zigzag
from .slots import Unsupported
from .types import full_name, is_one_column

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Numbers = npt.NDArray[np.int64]
    Part = Callable[[pa.Array], pa.Array]  # of an array's values those that are in use

_NAMED = ("record", "error", "enum", "fixed")
# Types that a union may have beside each other: one of each of these words, and records
_ALIKE = {
    **dict.fromkeys(("int", "long", "float", "double"), "number"),
    **dict.fromkeys(("bytes", "array"), "items"),
    **{kind: kind for kind in ("boolean", "string", "map")},
}
_SIMPLE = ("boolean", "int", "long", "float", "double", "string")


def encoder(schema: str, kind: pa.DataType, number: int | None = None) -> Encode:
    """What turns a column of an Arrow type into Avro of a schema (as JSON). With a `number`, which
    a registry has for the schema, each value is in Confluent's wire format. Raises what fastavro
    raises for a value that is none of the schema's."""
    single = codec.encoder(schema).encode
    head = b"" if number is None else registry.pack(number, b"")
    if number is not None and codec.is_bytes(schema):
        import pyarrow as pa

        return lambda column: one_by_one(
            column, lambda value: head + codec.without_length(single(value)), pa.binary()
        )
    write = _writer(schema, kind)

    def encode(column: pa.Array) -> pa.Array:
        import pyarrow as pa

        if write is not None:
            try:
                return _encoded(column, write, head)
            except (Left, pa.ArrowException):
                pass
        return one_by_one(column, lambda value: head + single(value), pa.binary())

    return encode


@functools.lru_cache(maxsize=64)
def _writer(schema: str, kind: pa.DataType) -> Write | None:
    try:
        return _Writers().of(codec.parsed(json.loads(schema)), kind)
    except Unsupported:
        return None


def _encoded(column: pa.Array, write: Write, head: bytes) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    there = column.drop_null()
    found = _joined([head, *write(there)], len(there))
    if len(there) == len(column):
        return found
    rows = np.flatnonzero(np.asarray(column.is_valid()))
    nulls = pa.nulls(len(column), pa.binary())
    return merged(len(column), [(np.arange(len(column)), nulls), (rows, found)])


def _joined(pieces: Pieces, count: int) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    needed = [piece for piece in pieces if not isinstance(piece, bytes) or piece]
    if all(isinstance(piece, bytes) for piece in needed):
        return pa.repeat(pa.scalar(b"".join(needed), pa.binary()), count)
    return needed[0] if len(needed) == 1 else pc.binary_join_element_wise(*needed, b"")


class _Writers:
    """Makes them for a (parsed) schema. All raise Unsupported."""

    def __init__(self) -> None:
        self._named: dict[str, Any] = {}

    def of(self, schema: Any, kind: pa.DataType) -> Write:
        """For a column of one type."""
        schema = self._defined(schema)
        if isinstance(schema, list):
            return self._union(schema, kind)
        what = schema["type"]
        nested = {"record": self._record, "error": self._record, "array": self._array}
        write = {**nested, "map": self._map}.get(what, scalar)(schema, kind)

        def required(column: pa.Array) -> Pieces:
            if column.null_count and what != "null":
                raise Left
            return write(column) if len(column) else [b""]

        return required

    def _defined(self, schema: Any) -> Any:
        """A schema as a list or a mapping, by its definition if it is a name."""
        if isinstance(schema, str):
            return self._named.get(schema, {"type": schema})
        if isinstance(schema, list):
            return schema
        if not isinstance(schema["type"], str):
            return self._defined(schema["type"])
        if schema["type"] in _NAMED:
            self._named[full_name(schema)] = schema
        return self._named.get(schema["type"], schema)

    def _record(self, schema: Any, kind: pa.DataType) -> Write:
        places, fields = _places(kind), schema["fields"]
        if places.keys() - {field["name"] for field in fields}:
            raise Unsupported("a column that is no field")

        def part(field: Any) -> Callable[[Sequence[pa.Array]], Pieces]:
            place = places.get(field["name"])
            if place is None:
                constant = _default(field)
                return lambda _: [constant]
            inner = self.of(field["type"], kind.field(place).type)
            return lambda columns: inner(columns[place])

        parts = [part(field) for field in fields]

        def write(column: pa.Array) -> Pieces:
            columns = column.flatten()
            return [piece for one in parts for piece in one(columns)]

        return write

    def _array(self, schema: Any, kind: pa.DataType) -> Write:
        import pyarrow as pa

        if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            raise Unsupported(f"{kind} as an array")
        inner = self.of(schema["items"], kind.value_type)
        return lambda column: _blocks(column, lambda part, _: inner(part(column.values)))

    def _map(self, schema: Any, kind: pa.DataType) -> Write:
        import pyarrow as pa

        if not pa.types.is_map(kind):
            raise Unsupported(f"{kind} as a map")
        of_keys = self.of("string", kind.key_type)
        of_items = self.of(schema["values"], kind.item_type)

        def write(column: pa.Array) -> Pieces:
            def entries(part: Callable[[pa.Array], pa.Array], sizes: Any) -> Pieces:
                keys = part(column.keys)
                _refuse_twins(keys, sizes)
                return [*of_keys(keys), *of_items(part(column.items))]

            return _blocks(column, entries)

        return write

    def _union(self, branches: Sequence[Any], kind: pa.DataType) -> Write:
        import pyarrow as pa

        null = [number for number, branch in enumerate(branches) if branch == "null"]
        present = [number for number, branch in enumerate(branches) if branch != "null"]
        if not present or len(null) > 1:
            raise Unsupported("a union of nulls")
        several, types = len(present) > 1, [branches[number] for number in present]
        if not is_one_column(types) and pa.types.is_struct(kind):
            check_fields([field.name for field in kind], codec.words(types))
        if several:
            self._check_distinct(types)
        places = _places(kind) if several else {}
        inner: list[tuple[int, bytes, Write]] = []
        for member, number in enumerate(present):
            place = places.get(f"member{member}", -1)
            if not several:
                inner.append((0, _long(number), self.of(branches[number], kind)))
            elif place >= 0:
                part = kind.field(place).type
                inner.append((place, _long(number), self.of(branches[number], part)))
        nothing = _long(null[0]) if null else None

        def write(column: pa.Array) -> Pieces:
            parts = column.flatten() if several else [column]
            return _chosen(len(column), parts, inner, nothing)

        return write

    def _check_distinct(self, present: Sequence[Any]) -> None:
        """fastavro looks at each value for the branch that it is of; two must not be alike."""
        kinds = [self._defined(branch) for branch in present]
        if any(kind.get("logicalType") == "date" for kind in kinds):
            raise Unsupported("a date among others")  # would be looked for in texts
        alike = [_ALIKE[kind["type"]] for kind in kinds if kind["type"] in _ALIKE]
        records = sum(kind["type"] == "record" for kind in kinds)
        if len(set(alike)) + records < len(kinds) or (records and "map" in alike):
            raise Unsupported("a union of types that are alike")


def _places(kind: pa.DataType) -> dict[str, int]:
    """Of a struct's fields, by their names."""
    import pyarrow as pa

    names = [field.name for field in kind] if pa.types.is_struct(kind) else []
    if not pa.types.is_struct(kind) or len(set(names)) < len(names):
        raise Unsupported(f"{kind} as fields")
    return {name: place for place, name in enumerate(names)}


def _default(field: Any) -> bytes:
    """What is written for a field that no column is for."""
    kind, value = field["type"], field.get("default", ...)
    is_simple = isinstance(kind, list) if value is None else kind in _SIMPLE
    if value is ... or not is_simple:
        raise Unsupported("a field without a column and a simple default")
    record = {"type": "record", "name": "of_defaults", "fields": [field]}
    try:
        return codec.Encoder(codec.parsed(record)).encode({})
    except Exception:  # of fastavro's many kinds; one is a name that is defined elsewhere
        raise Unsupported("a default that cannot be written alone") from None


def _blocks(column: pa.Array, entries: Callable[[Part, Numbers], Pieces]) -> Pieces:
    """Lists or maps: a count and `entries`, if there are any, and an end."""
    import numpy as np

    offsets = np.asarray(column.offsets).astype(np.int64)
    first, count = int(offsets[0]), int(offsets[-1] - offsets[0])
    sizes = np.diff(offsets)
    end = of_sizes(np.zeros(len(sizes), np.uint8), sizes > 0)
    if not count:
        return [b"\0"]
    found = _joined(entries(lambda values: values.slice(first, count), sizes), count)
    begins = np.frombuffer(found.buffers()[1], np.int32)[found.offset : found.offset + count + 1]
    return [zigzag(sizes), cut(found.buffers()[2] or b"", begins[offsets - first]), end]


def _refuse_twins(keys: pa.Array, sizes: Numbers) -> None:
    """A map keeps the last one of equal keys."""
    import numpy as np

    codes = np.asarray(keys.dictionary_encode().indices).astype(np.int64)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    if len(np.unique(rows * len(keys) + codes)) < len(keys):
        raise Left


def _chosen(
    count: int,
    parts: Sequence[pa.Array],
    inner: Sequence[tuple[int, bytes, Write]],
    nothing: bytes | None,
) -> Pieces:
    """Each row by the one of a union's parts that is not null there; `nothing` if none is."""
    import numpy as np
    import pyarrow as pa

    there = [np.asarray(parts[place].is_valid()) for place, _, _ in inner]
    members = np.sum(there, axis=0) if there else np.zeros(count, np.int64)
    if np.any(members > 1):
        raise Left
    found = []
    for (place, head, write), is_there in zip(inner, there, strict=True):
        part, rows = parts[place], np.flatnonzero(is_there)
        if len(rows) == count:
            return [head, *write(part)]
        if len(rows):
            found.append((rows, _joined([head, *write(part.take(pa.array(rows)))], len(rows))))
    rows = np.flatnonzero(members == 0)
    if len(rows):
        if nothing is None:
            raise Left
        found.append((rows, _joined([nothing], len(rows))))
    return [merged(count, found)] if count else [b""]


def _long(number: int) -> bytes:
    import numpy as np

    found: bytes = zigzag(np.array([number]))[0].as_py()
    return found
