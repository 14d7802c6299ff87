"""Avro values that are cut off or garbage, where fields of the writer's are passed over."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from eo_kafka.errors import SourceError
from eo_kafka.formats.avro import columns as avro_columns
from eo_kafka.formats.avro.codec import Decoder, Encoder, parsed
from eo_kafka.formats.avro.reader import AvroReader
from eo_kafka.formats.avro.types import spark_type
from eo_kafka.formats.shared.arrow_types import arrow_type
from eo_kafka.formats.shared.decoding import typed
from eo_kafka.formats.shared.registry import pack

HUGE = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"  # 2**62 - 1 items, and then nothing
EMPTY = {"type": "record", "name": "E", "fields": []}


def record(*fields: tuple[str, Any]) -> Any:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind} for name, kind in fields],
    }


def array(items: Any) -> Any:
    return {"type": "array", "items": items}


KEPT = (("id", "long"), ("name", "string"))
PAIR = {"type": "record", "name": "Pair", "fields": [{"name": "x", "type": "double"}]}


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("bytes", b"as long as it gets"),
        ("float", 1.5),
        ("double", 1.5),
        ("boolean", True),
        (["null", "string"], "note"),
        ({"type": "fixed", "name": "F", "size": 6}, b"123456"),
        (array("double"), [1.5, 2.5]),
        ({"type": "map", "values": "float"}, [("a", 1.5)]),
        (array(PAIR), [{"x": 1.5}]),
    ],
    ids=str,
)
def test_a_value_that_is_cut_off_is_bad_also_in_what_is_passed_over(kind: Any, value: Any) -> None:
    written, wanted = parsed(record(*KEPT, ("gone", kind))), parsed(record(*KEPT))
    whole = Encoder(written).encode({"id": 1, "name": "a", "gone": value})
    decoder = Decoder(written, wanted)
    assert decoder.decode(whole) == {"id": 1, "name": "a"}
    accepted = []
    for size in range(len(whole)):
        try:
            decoder.decode(whole[:size])
        except Exception:  # of fastavro's many kinds
            continue
        accepted.append(size)
    assert accepted == []


def test_a_length_below_zero_does_not_swallow_the_rest() -> None:
    decoder = Decoder(parsed(record(*KEPT, ("gone", "string"))), parsed(record(*KEPT)))
    with pytest.raises(EOFError):
        decoder.decode(b"\x02\x02a" + b"\x01" + b"anything at all")


@pytest.mark.parametrize("items", ["double", "float", "boolean", PAIR], ids=str)
def test_a_count_that_is_damaged_ends_at_once(items: Any) -> None:
    decoder = Decoder(parsed(record(*KEPT, ("gone", array(items)))), parsed(record(*KEPT)))
    with pytest.raises(EOFError):
        decoder.decode(b"\x02\x02a" + HUGE)


@pytest.mark.parametrize(
    "items",
    ["null", EMPTY, {"type": "fixed", "name": "F", "size": 0}, record(("e", EMPTY))],
    ids=str,
)
def test_an_array_of_what_has_no_bytes_is_refused(items: Any) -> None:
    """Nine bytes could be any number of them."""
    written = {
        "type": "record",
        "name": "Whole",
        "fields": [{"name": "id", "type": "long"}, {"name": "xs", "type": array(items)}],
    }
    text = json.dumps(written)
    with pytest.raises(SourceError, match="items have no bytes"):
        spark_type(parsed(written))
    kept = {**written, "fields": written["fields"][:1]}
    kind = arrow_type(spark_type(parsed(kept))[0])
    assert avro_columns.decoded(pa.array([b"\x02" + HUGE]), text, json.dumps(kept), kind) is None

    class Registry:
        def schema(self, _: int) -> str:
            return text

    found: list[str] = []
    values = pa.array([pack(7, b"\x02\x00"), pack(7, b"\x02" + HUGE)])
    reader: Any = AvroReader(json.dumps(kept), Registry())  # type: ignore[arg-type]
    typed(values, reader, kind, lambda _, error: found.append(str(error)))
    assert len(found) == 2
    assert "items have no bytes" in found[0]


def test_a_type_that_contains_itself_has_bytes() -> None:
    tree = {"type": "record", "name": "Tree", "fields": [{"name": "below", "type": array("Tree")}]}
    decode = Decoder(parsed(record(("id", "long"), ("gone", tree))), parsed(record(("id", "long"))))
    assert decode.decode(b"\x02\x02\x00\x00") == {"id": 1}
