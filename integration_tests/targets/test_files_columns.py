"""What `eo-files` makes of columns whose place, case or type changes."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from eo_kafka.errors import OptionsError
from eo_kafka.targets.files.target import FilesTarget

LONG, TEXT = (StructType().add("x", kind()).json() for kind in (LongType, StringType))


def test_csv_is_refused_where_plain_readers_would_take_one_column_for_another(
    spark, broker, tmp_path
):
    path = str(tmp_path / "t")

    def save(batch: int, *columns: str) -> None:
        rows = spark.sql("SELECT 'i' AS id, 'w' AS word, 'n' AS new").select(*columns)
        given = {"jobName": f"job-{tmp_path.name}", "batchId": str(batch), "fileFormat": "csv"}
        given["kafka.bootstrap.servers"] = broker.bootstrap_servers
        rows.write.format("eo-files").mode("append").options(**given).save(path)

    save(1, "id", "word")
    for columns in (("word", "id"), ("id", "new", "word"), ("word",)):
        with pytest.raises(Exception, match="Readers of CSV go by the place of a column"):
            save(2, *columns)
    save(2, "id", "word", "new")
    plain = spark.read.schema("id string, word string, new string")
    plain = plain.options(header=True, multiLine=True, escape='"').csv(path)
    honest = spark.read.format("eo-files").load(path)
    wanted = [("i", "w", None), ("i", "w", "n")]
    assert sorted(plain.drop("batch").collect(), key=str) == sorted(wanted, key=str)
    assert sorted(honest.collect(), key=str) == sorted(wanted, key=str)
    # As Spark's own readers do not tell cases apart, null without a word would be a loss
    with pytest.raises(Exception, match="Column 'WORD' is 'word' in the files"):
        spark.read.format("eo-files").schema("WORD string").load(path).collect()


def test_of_two_jobs_that_begin_at_once_one_names_the_type_of_a_column(tmp_path):
    one, other = (FilesTarget({"path": str(tmp_path), "schema": of}) for of in (LONG, TEXT))
    one.check()
    other.check()
    one.apply("eo-a", {}, None, b"1")
    other.apply("eo-b", {}, None, b"1")
    one.show_columns("eo-a")
    with pytest.raises(OptionsError, match="'x' of the rows is string, and long in the files"):
        other.show_columns("eo-b")
