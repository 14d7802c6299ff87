"""Values that change their type: each one stays what it was, or the batch is refused with a row."""

from __future__ import annotations

from decimal import Context, Decimal, Inexact, InvalidOperation

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings

from eo_kafka.connectors.direct.exact_cast import exact_cast
from eo_kafka.connectors.direct.shape import in_shape
from eo_kafka.core.errors import SinkError

FAR = "1E-99999999"  # Arrow crashes there
UNLIMITED = str(2**256 - 1)  # of tokens, as contracts say it; -1 to Arrow
ZONED_S = pa.timestamp("s", "UTC")
WHOLE, TOKENS = pa.decimal128(38, 0), pa.decimal128(38, 18)


def written(column: pa.Array, kind: pa.DataType | pa.Field) -> list[object]:
    field = kind if isinstance(kind, pa.Field) else pa.field("c", kind)
    made = in_shape(pa.record_batch([column], names=["c"]), pa.schema([field]))
    made.validate(full=True)
    return made["c"].to_pylist()


@pytest.mark.parametrize(
    ("value", "found", "wanted"),
    [
        (UNLIMITED, pa.string(), WHOLE),
        (str(2**128 + 5), pa.large_string(), WHOLE),
        (UNLIMITED.encode(), pa.binary_view(), WHOLE),
        ("341150000000000000000", pa.string(), TOKENS),
        (FAR, pa.string_view(), pa.decimal128(10, 2)),
        ("1e-77", pa.string(), pa.decimal128(38, 2)),
        ("1e99999999999999999999", pa.string(), WHOLE),
        *((word, pa.string(), WHOLE) for word in ("", ".", "1_0", " 1", "NaN", "Infinity", "0x1")),
        (Decimal("341150000000000000000"), WHOLE, TOKENS),
        (Decimal("-341150000000000000000"), WHOLE, TOKENS),
        (Decimal("69854665997410620245692271834166045.54"), pa.decimal128(38, 2), (38, 4)),
        (Decimal(2**128 + 5), pa.decimal256(76, 0), WHOLE),
        (Decimal("0.125"), pa.decimal128(4, 3), pa.decimal128(4, 2)),
        ("0xFFFFFFFF", pa.string(), pa.int32()),
        (pa.scalar(2**30, pa.int32()).cast(pa.date32()), pa.date32(), pa.string()),
        (pa.scalar(2**62).cast(pa.timestamp("us")), pa.timestamp("us"), pa.string()),
        (pa.scalar(2**62).cast(pa.timestamp("s")), pa.timestamp("s"), pa.timestamp("us")),
        (pa.scalar(10**12).cast(ZONED_S), ZONED_S, pa.string()),
        (pa.scalar(-(10**12)).cast(ZONED_S), ZONED_S, pa.string()),
        (2**53 + 1, pa.int64(), pa.float64()),
        (2.0**63, pa.float64(), pa.int64()),
    ],
)
@pytest.mark.parametrize("way", ["plain", "struct", "list", "map", "runs"])
def test_no_value_changes_without_a_word(value, found, wanted, way) -> None:
    """And the row is named."""
    wanted = pa.decimal128(*wanted) if isinstance(wanted, tuple) else wanted
    column, kind = pa.array([None, None, None, value, None], found), wanted
    if way == "struct":
        column, kind = pa.StructArray.from_arrays([column], ["a"]), pa.struct([("a", wanted)])
    elif way == "list":
        column = pa.LargeListArray.from_arrays(pa.array(range(6), pa.int64()), column)
        kind = pa.list_(wanted)
    elif way == "map":
        column = pa.MapArray.from_arrays(list(range(6)), pa.array("abcde"), column)
        kind = pa.map_(pa.string(), wanted)
    elif way == "runs" and "view" not in str(found):  # Arrow makes none of those
        column = pc.run_end_encode(column)
    with pytest.raises(SinkError, match=r"column 'c' is .*\(row 3 of a batch, counted from 0: "):
        written(column, kind)


DIGITS = st.integers(-(10**45), 10**45) | st.integers(-(10**76) + 1, 10**76 - 1)
SIZES = st.integers(1, 38).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size)))


def expected(value: Decimal, kind: pa.DataType) -> Decimal | None:
    """None where the type does not hold it."""
    context = Context(prec=kind.precision, traps=[InvalidOperation, Inexact])
    try:
        return value.quantize(Decimal((0, (1,), -kind.scale)), context=context)
    except (InvalidOperation, Inexact):
        return None


def same_or_refused(column: pa.Array, value: Decimal, kind: pa.DataType) -> None:
    found = expected(value, kind)
    if found is None:
        with pytest.raises(pa.ArrowException):
            exact_cast(column, kind)
    else:
        assert exact_cast(column, kind).to_pylist() == [None, found]


@settings(max_examples=400, deadline=None)
@given(digits=DIGITS, zeros=st.integers(0, 30), size=SIZES, more=st.integers(-38, 38))
def test_decimals_are_what_python_makes_of_them(digits, zeros, size, more) -> None:
    kind = pa.decimal128(*size)
    digits *= 10**zeros
    exponent = min(more - size[1], 0)  # Arrow compares none that are above
    value = Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), exponent))
    for make, most in ((pa.decimal128, 38), (pa.decimal256, 76)):
        if max(len(str(abs(digits))), -exponent) <= most:  # Arrow takes no others
            column = pa.array([None, value], make(most, -exponent))
            same_or_refused(column, value, kind)


@settings(max_examples=400, deadline=None)
@given(
    text=st.from_regex(r"[+-]?([0-9]{1,45}(\.[0-9]{0,40})?|\.[0-9]{1,40})", fullmatch=True)
    | st.from_regex(r"-?[0-9]{1,3}(\.[0-9]{0,3})?[eE][+-]?[0-9]{1,2}", fullmatch=True)
    | st.from_regex(r"[0-9][eE]-[0-9]{1,30}", fullmatch=True),
    size=SIZES,
)
def test_texts_are_the_decimals_that_python_reads(text, size) -> None:
    try:
        value = Decimal(text)
    except InvalidOperation:  # its exponent has more digits than Python's
        value = Decimal("NaN")
    kind = pa.decimal128(*size)
    if value.is_nan():
        with pytest.raises(pa.ArrowException):
            exact_cast(pa.array([text]), kind)
    else:
        same_or_refused(pa.array([None, text]), value, kind)


STREET = pa.struct([pa.field("street", pa.string(), nullable=False)])
VIEWS = pa.struct([("street", pa.string_view())])
CATEGORY = pa.struct([("street", pa.dictionary(pa.int8(), pa.string()))])
ROWS = [None, {"street": "x"}, None]


@pytest.mark.parametrize("given", [VIEWS, CATEGORY, pa.struct([("street", pa.large_string())])])
def test_nulls_below_a_null_are_none(given) -> None:
    """As deep as the null may be."""
    for rows in (ROWS, [None, None]):
        entries = [("k", one) for one in rows]
        for value, before, after in (
            (rows, given, STREET),
            ([{"a": one} for one in rows], pa.struct([("a", given)]), pa.struct([("a", STREET)])),
            ([rows, None, []], pa.large_list(given), pa.list_(STREET)),
            ([rows[:2]], pa.list_(given, 2), pa.list_(STREET)),
            ([None, entries], pa.map_(pa.string(), given), pa.map_(pa.string(), STREET)),
        ):
            assert written(pa.array(value, before), after) == value


def test_a_map_with_names_of_its_own_becomes_a_list_of_entries() -> None:
    given = pa.map_(pa.field("k", pa.string(), nullable=False), pa.field("v", pa.int32()))
    entry = pa.struct([("key", pa.string()), ("value", pa.int64())])
    made = written(pa.array([[("a", 1)], None], given), pa.list_(entry))
    assert made == [[{"key": "a", "value": 1}], None]


@pytest.mark.parametrize("is_cast", [True, False])
def test_what_is_not_of_a_slice_is_not_looked_at(is_cast) -> None:
    """Neither what its own rows hold no more, nor a null in it."""
    value = pa.field("value", pa.int64(), nullable=False)
    kind = pa.map_(pa.string(), value)
    given = pa.map_(pa.string(), pa.int64()) if is_cast else kind
    column = pa.array([[("a", None)], None, [("b", 2)]], given)
    assert written(column.slice(1), kind) == [None, [("b", 2)]]
    with pytest.raises(SinkError, match=r"c\.value, which is NOT NULL"):
        written(column, kind)
    lists = pa.array([["x"], None, ["1", None], ["y"]])
    assert written(lists.slice(1, 2), pa.list_(pa.int32())) == [None, [1, None]]
