"""Columns as SQL: which of them are not, and that Spark's own are left alone."""

from __future__ import annotations

import pytest

from eo_kafka.errors import OptionsError
from eo_kafka.formats.json.column import spark_schema
from eo_kafka.formats.json.ddl import ddl_problem
from eo_kafka.formats.options import FormatOptions


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (
            "id BIGNT, name STRING",
            "gives column 'id' the type 'BIGNT', which is none of Spark's (B",
        ),
        ("id BIGINT, name STRNG", "gives column 'name' the type 'STRNG'"),
        ("id BIGINT, x xyz", "gives column 'x' the type 'xyz', which is none of Spark's"),
        ("id, name STRING", "gives column 'id' no type"),
        ("id", "gives column 'id' no type"),
        ("s STRUCT<a: INT, b: ARRAY<STRNG>>", "gives column 'b' the type 'STRNG'"),
        ("m MAP<STRING, BIGNT>, b INT", "gives column 'm' the type 'BIGNT'"),
        ("a ARRAY<INT", "lacks a '>' behind the type of column 'a'"),
        ("a ARRAY, b INT", "gives column 'a' the type ARRAY without '<...>'"),
        ("a INT>, b INT", "has a '>' too many"),
    ],
)
def test_what_is_no_type_is_named(columns: str, problem: str) -> None:
    assert str(ddl_problem(columns)).startswith(problem)
    with pytest.raises(OptionsError, match="^Option 'value.schema' ") as refused:
        spark_schema("value.schema", columns)
    assert columns in str(refused.value)


@pytest.mark.parametrize(
    "columns",
    [
        "id BIGINT, name STRING",
        "id: bigint, s: struct<x:int,y:struct<z:array<map<string,double>>>>",
        "a DECIMAL(10, 2) NOT NULL COMMENT 'one, two>', `odd,``name` CHAR(3) COLLATE UTF8_LCASE",
        "i INTERVAL DAY TO SECOND, t TIMESTAMP_NTZ, v VARIANT",
        "größe INT, _x FLOAT,",
        "a INT /* how many */, b INT -- and this",
        "",
    ],
)
def test_what_spark_reads_is_left_to_it(columns: str) -> None:
    assert ddl_problem(columns) is None


@pytest.mark.parametrize("schema", ["lng", '{"type": "record"', '{"type": "strng"}'])
def test_what_is_no_avro_schema_is_told_with_its_option(schema: str) -> None:
    given = {"subscribe": "t", "topic": "t", "value.format": "avro", "value.schema": schema}
    for read in (FormatOptions.of_reader, FormatOptions.of_writer):
        with pytest.raises(OptionsError, match="Option 'value.schema' is no Avro schema: "):
            read(given)
