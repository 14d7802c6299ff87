"""Reads what Debezium tells of a table's rows."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streams import Job, read

ROW = "STRUCT<id BIGINT NOT NULL, name STRING, email STRING>"
ENVELOPE = f"op STRING NOT NULL, before {ROW}, after {ROW}"
UNTOLD = "__debezium_unavailable_value"  # stands for a large value that an update did not touch
WRITTEN = ("c", "u", "r")  # created, updated, read in the first snapshot; deleted is `d`


def changes(spark: SparkSession, job: Job) -> DataFrame:
    """Columns `row`, as it is or was when it was deleted, and `operation`: `upsert` or `delete`.

    A row's changes stay in their order: they stand in one partition, which one task reads and
    writes. So nothing may be added that shuffles the rows.
    """
    told = read(spark, job, job.source, ENVELOPE).where("value IS NOT NULL")  # no tombstones
    op = F.col("value.op")
    unknown = F.concat(F.lit("Debezium tells an operation that is not known: "), op)
    half = F.concat(
        F.lit("Debezium does not tell the whole row: 'ALTER TABLE ... REPLICA IDENTITY FULL' in "),
        F.lit("PostgreSQL, and a new snapshot. It tells: "),
        F.to_json("value"),
    )
    operation = (
        F.when(F.to_json("value.after").contains(UNTOLD), F.raise_error(half))
        .when(op.isin(*WRITTEN), "upsert")
        .when(op == "d", "delete")
        .otherwise(F.raise_error(unknown))
    )
    row = F.coalesce("value.after", "value.before")
    return told.select(row.alias("row"), operation.alias("operation"))
