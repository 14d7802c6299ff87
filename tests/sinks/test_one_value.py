"""What stands for a row in a digest: the same on every machine, and there for every value."""

from __future__ import annotations

import pyarrow as pa
import pytest

from eo_kafka.connectors.tables.rows import _encoded
from eo_kafka.errors import SinkError
from eo_kafka.sinks.rows.fast import row_digest
from eo_kafka.sinks.rows.one_value import sent

NOW, LAST = 1_700_000_000_000_000, 253_402_300_799_000_000  # 9999-12-31T23:59:59Z


def nested(form: str, times: pa.Array) -> pa.Array:
    if form == "struct":
        return pa.StructArray.from_arrays([times], names=["at"])
    if form == "map":
        return pa.MapArray.from_arrays([0, 1, 2], times, nested("struct", times))
    return pa.ListArray.from_arrays([0, 1, 2], nested("struct", times))


def digest(form: str, zone: str | None, *moments: int, unit: str = "us") -> tuple[int, str]:
    times = pa.array(moments, pa.int64()).cast(pa.timestamp(unit, zone))
    batch = pa.record_batch([nested(form, times)], names=["column"])
    return row_digest([sent(batch, ["column"])], "target")


@pytest.mark.parametrize("form", ["struct", "list", "map"])
def test_a_nested_moment_is_the_same_in_every_zone(form: str) -> None:
    here = digest(form, "UTC", NOW, LAST)
    assert here == digest(form, "Europe/Berlin", NOW, LAST)
    assert here != digest(form, "UTC", NOW, LAST - 1)
    assert digest(form, "Asia/Tokyo", NOW, LAST * 20)[0] == 2  # years that Python has not
    assert digest(form, None, NOW, LAST * 20)[0] == 2


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.duration("us")]
)
def test_other_times_are_told_apart(kind: pa.DataType) -> None:
    def of(number: int) -> pa.RecordBatch:
        times = pa.array([number], pa.int64() if kind.bit_width == 64 else pa.int32()).cast(kind)
        column = pa.StructArray.from_arrays([times], names=["at"])
        return sent(pa.record_batch([column], names=["column"]), ["column"])

    day = 86_400_000 if kind == pa.date64() else 1
    assert of(day) == of(day)
    assert of(day) != of(2 * day)


def test_a_moment_that_json_has_no_words_for_is_refused_in_a_sentence() -> None:
    times = pa.array([LAST * 20]).cast(pa.timestamp("us", "UTC"))
    with pytest.raises(SinkError, match="A value of column 'column' cannot be written as JSON"):
        _encoded(nested("struct", times), "column")
