"""Rows of a DataFrame as entries of a map."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from eo_kafka.connectors.maps.rows import Entries
from eo_kafka.errors import SinkError
from eo_kafka.sinks.maps.options import RowShape

TEXT = StructType().add("key", "string").add("value", "string")


def entries(columns: dict, json: bool = False, remove: str | None = None, schema=TEXT) -> list:
    made = Entries(RowShape(json, remove), schema)
    (found,) = made.of(iter([pa.record_batch(list(columns.values()), names=list(columns))]))
    assert found.schema.names == ["key", "value"]
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def texts(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


def test_a_null_value_removes_and_other_columns_are_left_behind() -> None:
    rows = {"partition": pa.array([7, 7], pa.int32()), "value": texts("v", None)}
    assert entries({**rows, "key": texts("a", "b")}) == [("a", "v"), ("b", None)]


def test_a_column_that_says_so_removes_whatever_the_value_is() -> None:
    rows = {"key": texts("a", "b", "c"), "value": texts("v", "w", None)}
    gone = {"gone": pa.array([False, True, True])}
    assert entries({**rows, **gone}, remove="gone") == [("a", "v"), ("b", None), ("c", None)]
    unknown = {"gone": pa.array([None, None, True])}
    assert entries({**rows, **unknown}, remove="gone")[:2] == [("a", "v"), ("b", "w")]


@pytest.mark.parametrize("gone", [False, None])
def test_a_null_value_that_is_not_to_be_removed_stops_the_task(gone) -> None:
    rows = {"key": texts("a"), "value": texts(None), "gone": pa.array([gone], pa.bool_())}
    with pytest.raises(SinkError, match="does not say that its key is to be removed"):
        entries(rows, remove="gone")


def test_a_null_key_stops_the_task() -> None:
    with pytest.raises(SinkError, match="key is null, and a map's entry needs one"):
        entries({"key": texts("a", None), "value": texts("v", "w")})


def test_json_is_made_of_structs_and_texts_are_json_already() -> None:
    rows = {"key": texts("a", "b"), "value": pa.array([{"n": 1}, None])}
    typed = StructType().add("key", "string").add("value", StructType().add("n", "long"))
    assert entries(rows, json=True, schema=typed) == [("a", b'{"n":1}'), ("b", None)]
    rows = {"key": texts("a"), "value": texts('{"n": 2}')}
    assert entries(rows, json=True) == [("a", '{"n": 2}')]
