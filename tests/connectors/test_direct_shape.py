"""Batches that a transform gives: what Arrow would change in silence is refused."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eo_kafka.connectors.direct.shape import in_shape
from eo_kafka.core.errors import SinkError

UTC, US = pa.timestamp("us", "UTC"), pa.timestamp("us")
CATEGORY = pa.dictionary(pa.int32(), pa.float64())
PAIR = pa.struct([("key", pa.string()), ("value", pa.float32())])
PAIRS = pa.list_(PAIR)


@pytest.mark.parametrize(
    ("found", "wanted", "why"),
    [
        (pa.struct([("cent", pa.int32())]), pa.struct([("cents", pa.int32())]), "no field"),
        (pa.struct([("a", US), ("b", US)]), pa.struct([("a", US)]), r"field \['b'\] that would be"),
        (pa.list_(PAIR), pa.list_(pa.struct([("key", pa.string())])), r"field \['value'\] that"),
        (pa.map_(pa.string(), PAIR), pa.map_(pa.string(), pa.struct([PAIR[1]])), r"\['key'\] that"),
        (pa.struct([("a", US), ("a", UTC)]), pa.struct([("a", US)]), r"two fields \['a'\]"),
        (pa.list_(pa.float64()), pa.list_(pa.decimal128(5, 2)), "rounded"),
        (pa.map_(pa.string(), US), pa.map_(pa.string(), UTC), "time zone"),
        (pa.date32(), UTC, "where the day begins"),
        (pa.float64(), pa.float32(), "infinite"),
        (pa.list_(pa.float64()), pa.list_(pa.float32()), "infinite"),
        (pa.large_string(), pa.float64(), "infinite"),
        (pa.binary(), pa.float64(), "infinite"),
        (US, pa.time64("us"), "date would be cut off"),
        (CATEGORY, pa.float32(), "infinite"),
        (CATEGORY, pa.decimal128(5, 2), "rounded"),
        (pa.dictionary(pa.int32(), UTC), US, "time zone"),
        (pa.dictionary(pa.int32(), US), pa.date32(), "time of day"),
        (pa.dictionary(pa.int32(), pa.int64()), pa.bool_(), "numbers would become true"),
        (pa.dictionary(pa.int32(), pa.string()), pa.float64(), "infinite"),
        (pa.struct([("a", CATEGORY)]), pa.struct([("a", pa.float32())]), "infinite"),
        (pa.list_(CATEGORY), pa.list_(pa.float32()), "infinite"),
        (pa.map_(pa.string(), CATEGORY), pa.map_(pa.string(), pa.float32()), "infinite"),
        (pa.run_end_encoded(pa.int32(), pa.float64()), pa.float32(), "infinite"),
        (pa.bool8(), pa.bool_(), "numbers would become true"),
        (pa.map_(pa.string(), pa.float64()), PAIRS, "infinite"),
        (pa.list_view(pa.string()), pa.list_(pa.string()), "loses elements of list views"),
        (pa.large_list_view(pa.string()), pa.list_(pa.string()), "loses elements"),
        (pa.list_(pa.list_view(US)), pa.list_(pa.list_(US)), "loses elements"),
    ],
)
def test_what_arrow_would_change_in_silence_is_refused_of_batches_too(found, wanted, why) -> None:
    batch = pa.record_batch([pa.nulls(1, found)], names=["c"])
    with pytest.raises(SinkError, match=why):
        in_shape(batch, pa.schema([("c", wanted)]))


@pytest.mark.parametrize("wanted", [pa.string(), pa.binary()])
def test_a_category_of_texts_is_written_as_texts(wanted) -> None:
    texts = pa.array(["b", None, "a", "b"])
    batch = pa.record_batch({"c": texts.dictionary_encode(), "l": texts})
    made = in_shape(batch, pa.schema([("c", wanted), ("l", pa.string())]))
    assert made["c"].equals(texts.cast(wanted))


def test_columns_that_the_schema_does_not_name_are_left_out() -> None:
    """And fields of structs may be in another order."""
    given = pa.array([{"a": 1, "b": 2}])
    batch = pa.record_batch({"other": [1], "c": given})
    turned = pa.struct([("b", pa.int64()), ("a", pa.int32())])
    made = in_shape(batch, pa.schema([("c", turned)]))
    assert made.to_pylist() == [{"c": {"b": 2, "a": 1}}]


INT = pa.field("a", pa.int32(), nullable=False)
ENTRIES = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))


@pytest.mark.parametrize(
    ("field", "given", "where"),
    [
        (pa.field("c", pa.string(), nullable=False), ["x", None], "c"),
        (pa.field("c", pa.struct([INT])), [None, {"a": 1}, {"a": None}], r"c\.a"),
        (
            pa.field("c", pa.list_(pa.field("element", pa.int64(), nullable=False))),
            [[1, None]],
            "c",
        ),
        (pa.field("c", pa.list_(pa.struct([INT]))), [[{"a": 1}, {"a": None}]], r"c\.\w+\.a"),
        (pa.field("c", ENTRIES), [[("x", 1)], [("y", None)]], r"c\.value"),
    ],
)
@pytest.mark.parametrize("is_cast", [True, False])
def test_a_null_where_the_schema_takes_none_is_refused(field, given, where, is_cast) -> None:
    kind = _nullable(field.type) if is_cast else field.type
    with pytest.raises(SinkError, match=f"'c'.*({where}|has nulls)"):
        in_shape(pa.record_batch([pa.array(given, kind)], names=["c"]), pa.schema([field]))
    good = [None if field.nullable else "x", *given[:-1]]
    made = in_shape(pa.record_batch([pa.array(good, kind)], names=["c"]), pa.schema([field]))
    assert made["c"].to_pylist() == good


@pytest.mark.parametrize("is_cast", [True, False])
def test_a_record_that_cannot_be_read_may_have_nulls(is_cast) -> None:
    """It goes to the dead letter topic as it came."""
    kind = pa.struct([INT])
    shape = pa.schema(
        [
            pa.field("key", pa.string(), nullable=False),
            pa.field("value", kind),
            pa.field("_bad_record", pa.string()),
        ]
    )
    rows = [{"key": "k", "value": {"a": 1}, "_bad_record": None}]
    bad = {"key": None, "value": None, "_bad_record": "it"}
    columns = ["key", "value", "_bad_record"]
    kinds = [pa.string(), _nullable(kind) if is_cast else kind, pa.string()]

    def batch_of(found: list[dict[str, object]]) -> pa.RecordBatch:
        arrays = [
            pa.array([row[n] for row in found], k) for n, k in zip(columns, kinds, strict=True)
        ]
        return pa.record_batch(arrays, names=columns)

    assert in_shape(batch_of([*rows, bad]), shape).to_pylist() == [*rows, bad]
    with pytest.raises(SinkError, match="'key' has a null"):
        in_shape(batch_of([*rows, {**bad, "_bad_record": None}]), shape)


def _nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _nullable(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_type)
    if pa.types.is_list(kind):
        return pa.list_(_nullable(kind.value_type))
    return kind
