"""Reads what Debezium tells of a table's rows."""

from __future__ import annotations

import base64
import uuid
from hashlib import md5

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streams import Job, read

ROW = "STRUCT<id BIGINT NOT NULL, name STRING, email STRING>"
KEYS = ("id",)  # of the row: the primary key, and the key of Debezium's messages
ENVELOPE = f"op STRING NOT NULL, before {ROW}, after {ROW}"
UNTOLD = b"__debezium_unavailable_value"  # stands for a large value that an update did not touch
WRITTEN = ("c", "u", "r")  # created, updated, read in the first snapshot; deleted is `d`


def changes(spark: SparkSession, job: Job) -> DataFrame:
    """Columns `row`, as it is or was when it was deleted, and `operation`: `upsert` or `delete`.

    A row's changes stay in their order: they stand in one partition, which one task reads and
    writes. So nothing may be added that shuffles the rows.
    """
    told = read(spark, job, job.source, ENVELOPE).where("value IS NOT NULL")  # no tombstones
    op, before, after = (F.col(f"value.{name}") for name in ("op", "before", "after"))
    unknown = F.concat(F.lit("Debezium tells an operation that is not known: "), op)
    half = (
        "Debezium does not tell the whole row: 'ALTER TABLE ... REPLICA IDENTITY FULL' in "
        "PostgreSQL, and a new snapshot. It tells: "
    )
    moved = (
        "An update gives a row another key, and Debezium tells of no deletion: the row's key must "
        "be its messages' key (no 'message.key.columns'), and a new snapshot. It tells: "
    )
    is_deleted, is_moved = op == "d", before.isNotNull() & (_key_of(before) != _key_of(after))
    row = F.when(is_deleted, before).otherwise(after)
    operation = (
        F.when(~op.isin(*WRITTEN, "d"), F.raise_error(unknown))
        .when(row.isNull() | F.to_json(after).rlike(_untold()), _refused(half))
        .when(is_deleted, "delete")
        .when(is_moved, _refused(moved))
        .otherwise("upsert")
    )
    return told.select(row.alias("row"), operation.alias("operation"))


def _key_of(row: Column) -> Column:
    return F.struct(*(row[name] for name in KEYS))


def _refused(why: str) -> Column:
    return F.raise_error(F.concat(F.lit(why), F.to_json("value")))


def _untold() -> str:
    """How `UNTOLD` looks in JSON, as a regular expression: in a column of text, of bytes
    (`binary.handling.mode`), of numbers, of UUIDs."""
    numbers = ",".join(rf"{byte}(\.0)?" for byte in UNTOLD)
    of_java = uuid.UUID(bytes=md5(UNTOLD).digest(), version=3)  # noqa: S324 - nameUUIDFromBytes
    told = (UNTOLD.decode(), base64.b64encode(UNTOLD).decode(), UNTOLD.hex(), numbers, of_java)
    return "|".join(map(str, told))
