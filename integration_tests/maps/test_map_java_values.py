"""Compact and Portable values of every kind of field that Java's own client has written."""

from __future__ import annotations

import datetime
import shutil
import subprocess
from decimal import Decimal
from pathlib import Path

import pytest

from eo_kafka.broker.jars import hazelcast_jars
from eo_kafka.broker.java import find_java
from eo_kafka.formats.hazelcast.columns import CompactColumn, PortableColumn
from grid_fixtures import new_map
from test_map_serialized import entries

SOURCE = Path(__file__).with_name("JavaWriter.java")
JAVAC = shutil.which("javac", path=str(find_java().parent)) or shutil.which("javac")
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(JAVAC is None, reason="needs a JDK's javac"),
]
WHEN = datetime.datetime(2024, 2, 29, 12, 30, 0, 5)
BOTH = {
    "yes BOOLEAN": True,
    "int8 TINYINT": -8,
    "int16 SMALLINT": -16,
    "int32 INT": -32,
    "int64 BIGINT": -(2**63),
    "float32 FLOAT": 1.5,
    "float64 DOUBLE": -0.1,
    "string STRING": "é😀",
    "nothing STRING": None,
    "decimal DECIMAL(10, 2)": Decimal("-123.45"),
    "time STRING": "01:02:03.000004",
    "date DATE": WHEN.date(),
    "timestamp TIMESTAMP_NTZ": WHEN,
    "zoned TIMESTAMP": WHEN.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=2))),
    "numbers ARRAY<INT>": [1, -2],
    "inner STRUCT<number INT>": {"number": 7},
}
COMPACT = BOTH | {
    "no BOOLEAN": False,
    "null32 INT": None,
    "maybe BOOLEAN": True,
    "bytes BINARY": b"\x01\xff",
    "bits ARRAY<BOOLEAN>": [True, False, True, True, False, False, True, False, True],
    "holes ARRAY<BIGINT>": [1, None, 3],
    "texts ARRAY<STRING>": ["a", None, ""],
    "inners ARRAY<STRUCT<number INT>>": [{"number": 8}, None],
    "`～` INT": 1,  # noqa: RUF001 - before the next in Unicode, behind it in UTF-16
    "`😀` INT": 2,
}
PORTABLE = BOTH | {
    "char STRING": "é",
    "texts ARRAY<STRING>": ["a", ""],
    "inners ARRAY<STRUCT<number INT>>": [{"number": 7}],
}


def named(expected: dict[str, object]) -> dict[str, object]:
    return {field.split(" ")[0].strip("`"): value for field, value in expected.items()}


@pytest.fixture(scope="module")
def written(grid, hazelcast_client, tmp_path_factory):
    """A map of Compact values and one with a Portable."""
    maps = new_map(hazelcast_client, "plain"), new_map(hazelcast_client, "plain")
    folder, jars = tmp_path_factory.mktemp("java"), f"{hazelcast_jars()}/*"
    build = [JAVAC, "-encoding", "UTF-8", "-cp", jars, "-d", str(folder), str(SOURCE)]
    subprocess.run(build, check=True, timeout=120)
    names = (one.name for one in maps)
    run = [str(find_java()), "-cp", f"{folder}:{jars}", "JavaWriter", grid.cluster_name, *names]
    subprocess.run([*run, grid.addresses[0]], check=True, timeout=120, capture_output=True)
    return maps


def test_compact_values_of_java_are_what_java_wrote(spark, grid, written) -> None:
    compact, _ = written
    schema = ", ".join([*COMPACT, "pad STRING"])
    rows = entries(grid, compact, CompactColumn, "compact", schema, spark)
    found = {row["key"]: row["value"] for row in rows}
    assert {key: len(value.pop("pad")) for key, value in found.items()} == {
        f"size-{size}": size for size in (1, 300, 70_000)
    }
    assert list(found.values()) == [named(COMPACT)] * 3


def test_portable_values_of_java_are_what_java_wrote(spark, grid, written) -> None:
    _, portable = written
    (row,) = entries(grid, portable, PortableColumn, "portable", ", ".join(PORTABLE), spark)
    assert row["value"] == named(PORTABLE)
