"""How far values are looked at before fastavro reads them, also those of types that contain
themselves, which it passes over by recursion in C."""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from eo_kafka.formats.avro.codec import Decoder, parsed
from eo_kafka.formats.avro.fitting import SchemaMismatch
from eo_kafka.formats.avro.reader import AvroReader
from eo_kafka.formats.avro.strict import Strict
from eo_kafka.formats.shared.decoding import typed
from eo_kafka.formats.shared.registry import pack

DEEP = 50_000
KIND = pa.struct([("a", pa.int64())])
WANTED = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "long"}]}


def with_field(kind: Any) -> Any:
    return {**WANTED, "fields": [*WANTED["fields"], {"name": "t", "type": kind}]}


def node(*kinds: Any) -> Any:
    fields = [{"name": f"f{at}", "type": kind} for at, kind in enumerate(kinds)]
    return {"type": "record", "name": "N", "fields": fields}


# A schema, what begins a level, what ends one, and what is in the innermost
WRITTEN = {
    "list": (["null", node(["null", "N"])], b"\x02", b"", b"\x00"),
    "tree": (node({"type": "array", "items": "N"}), b"\x02", b"\x00", b"\x00"),
    "map": (node({"type": "map", "values": "N"}), b"\x02\x00", b"\x00", b"\x00"),
    "beside": (node("string", ["N", "null"]), b"\x02x\x00", b"", b"\x02x\x02"),
}


def nested(name: str, levels: int) -> bytes:
    _, begin, end, inner = WRITTEN[name]
    return b"\x02" + begin * levels + inner + end * levels


class Registry:
    def __init__(self, schema: Any) -> None:
        self._schema = json.dumps(schema)

    def schema(self, *_: object) -> str:
        return self._schema


def read(name: str, levels: int) -> tuple[list[Any], list[str]]:
    values = [pack(7, nested(name, one)) for one in (1, levels, 2)]
    reader = AvroReader(json.dumps(WANTED), Registry(with_field(WRITTEN[name][0])))  # type: ignore[arg-type]
    bad: list[str] = []
    found = typed(pa.array(values), reader, KIND, lambda row, error: bad.append(f"{row}: {error}"))
    return found.to_pylist(), bad


@pytest.mark.parametrize("name", WRITTEN)
def test_a_record_that_is_nested_too_deep_is_one_bad_record(name) -> None:
    """In a process of its own, which it would end."""
    code = f"from test_avro_strict import *; print(read({name!r}, DEEP))"
    folder = __file__.rpartition("/")[0]
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        check=False,
    )
    assert run.returncode == 0, (run.returncode, run.stderr)
    rows, bad = eval(run.stdout)  # what it printed itself
    assert rows == [{"a": 1}, None, {"a": 1}]
    assert len(bad) == 1
    assert bad[0].startswith("1: it is nested more than 10000 levels deep")


@pytest.mark.parametrize("name", WRITTEN)
def test_one_that_is_deep_is_read(name) -> None:
    assert read(name, 4000) == ([{"a": 1}] * 3, [])


KINDS: list[Any] = [
    *("null", "boolean", "int", "long", "float", "double", "bytes", "string"),
    {"type": "enum", "name": "E", "symbols": ["A", "B"]},
    {"type": "fixed", "name": "F", "size": 3},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "map", "values": ["null", "long", "N"]},
    {"type": "array", "items": ["null", "N"]},
    *(["null", "N"], ["string", "null", "N"]),
]


def value_of(kind: Any, draw: random.Random, left: int) -> Any:
    """Of one of the types above."""
    if isinstance(kind, list):
        branches = [one for one in kind if one != "N" or left] if left else ["null"]
        return value_of(draw.choice(branches), draw, left)
    name = kind if isinstance(kind, str) else kind["type"]
    numbers = {"int": 2**30, "long": 2**60, "float": 8, "double": 8}
    if name in numbers:
        return draw.randint(-numbers[name], numbers[name])
    size = draw.choice((0, 1, 3)) if left else 0
    if name == "array":
        return [value_of(kind["items"], draw, left - 1) for _ in range(size)]
    if name == "map":
        return {str(at): value_of(kind["values"], draw, left - 1) for at in range(size)}
    if name == "N":
        return {f"f{at}": value_of(one, draw, left - 1) for at, one in enumerate(KINDS)}
    plain = {"null": None, "boolean": True, "enum": "B", "fixed": b"abc"}
    return plain.get(name, b"\xff" * 70 if name == "bytes" else "t" * 70)


def test_it_walks_as_fastavro_does() -> None:
    """What is whole passes, and what is cut off is cut off in its eyes, too."""
    draw = random.Random(3)
    schema = fastavro.parse_schema(node(*KINDS))
    strict = Strict(schema)
    for _ in range(60):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, value_of("N", draw, 3))
        data = stream.getvalue()
        strict.check(data)
        with pytest.raises(EOFError):
            strict.check(data[:-1])


@pytest.mark.parametrize("wanted", [WANTED, with_field(node())], ids=["passed over", "read"])
def test_blocks_that_say_their_size_end_there(wanted) -> None:
    decoder = Decoder(parsed(with_field(WRITTEN["tree"][0])), parsed(wanted))
    inner = b"\x02\x00\x00"
    whole = b"\x02" + b"\x03" + b"\x08" + inner + b"\x00" + b"\x00"  # two values in four bytes
    assert decoder.decode(whole)["a"] == 1
    for size in (b"\x06", b"\x0a", b"\x01"):
        with pytest.raises(SchemaMismatch, match="another size"):
            decoder.decode(whole.replace(b"\x08", size))


def test_what_is_no_value_at_all_is_refused() -> None:
    decoder = Decoder(parsed(with_field(WRITTEN["list"][0])), parsed(WANTED))
    many = b"\x02" * 4500
    with pytest.raises(SchemaMismatch, match="no type 3"):
        decoder.decode(many + b"\x06")
    with pytest.raises(EOFError):
        decoder.decode(many)
