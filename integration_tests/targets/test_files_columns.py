"""What `eo-files` makes of columns whose place, case or type changes."""

from __future__ import annotations

from shutil import rmtree

import pytest
from pyspark.sql.types import LongType, StringType, StructType

from eo_kafka.errors import OptionsError
from eo_kafka.targets.files.target import FilesTarget
from eo_kafka.tools.run.verdict import Way, last_error

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
    with pytest.raises(Exception, match="Column 'wrod' is in no file: .* 'id', 'word', 'new'"):
        spark.read.format("eo-files").schema("id string, wrod string").load(path).collect()


def test_of_two_jobs_that_begin_at_once_one_names_the_type_of_a_column(tmp_path):
    one, other = (FilesTarget({"path": str(tmp_path), "schema": of}) for of in (LONG, TEXT))
    one.check()
    other.check()
    one.apply("eo-a", {}, None, b"1")
    other.apply("eo-b", {}, None, b"1")
    one.show_columns("eo-a")
    with pytest.raises(OptionsError, match="'x' of the rows is string, and long in the files"):
        other.show_columns("eo-b")


def test_what_is_read_by_another_type_is_refused_and_not_rounded(spark, broker, tmp_path):
    path = str(tmp_path / "t")
    rows = spark.sql(
        "SELECT 0.1234567890123D AS d, 1.2345 AS m, timestamp_ntz'2024-01-01 23:00:00' AS n, "
        "array(named_struct('x', 1.2345)) AS a"
    )
    given = {"jobName": f"job-{tmp_path.name}", "batchId": "1", "fileFormat": "json"}
    given["kafka.bootstrap.servers"] = broker.bootstrap_servers
    rows.write.format("eo-files").mode("append").options(**given).save(path)
    for asked in ("d float", "m decimal(5,1)", "n timestamp", "a array<struct<x:decimal(5,1)>>"):
        with pytest.raises(Exception, match=f"Column '{asked[0]}' is .* in the files: read it so"):
            spark.read.format("eo-files").schema(asked).load(path).collect()
    some = spark.read.format("eo-files").schema("m decimal(5,4) not null, d double").load(path)
    assert some.collect() == rows.select("m", "d").collect()


@pytest.mark.parametrize("file_format", ["json", "csv"])
def test_a_file_that_was_cut_and_a_path_without_a_batch_are_told(
    spark, broker, tmp_path, file_format
):
    path = tmp_path / "t"
    given = {"jobName": f"job-{tmp_path.name}", "batchId": "1", "fileFormat": file_format}
    given["kafka.bootstrap.servers"] = broker.bootstrap_servers
    spark.range(50).coalesce(1).write.format("eo-files").mode("append").options(**given).save(
        str(path)
    )
    read = spark.read.format("eo-files").schema("id long")
    assert read.load(str(path)).count() == 50
    (file,) = path.glob("batch=*/eo-*")
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(Exception, match=r"has \d+ rows of 50: somebody changed it"):
        read.load(str(path)).count()
    rmtree(path / "_eo_files")
    for wrong in (path, tmp_path, file.parent, file, tmp_path / "not-there"):
        with pytest.raises(Exception, match="has no batch of eo-kafka"):
            read.load(str(wrong)).count()


@pytest.mark.parametrize(
    ("file_format", "odd"),
    [
        ("csv", "date_add(date'9999-12-31', INT(id))"),
        ("json", "date_add(date'9999-12-31', INT(id))"),
        ("csv", "CAST(X'ff' AS STRING)"),
        ("json", "CAST(X'ff' AS STRING)"),
    ],
)
def test_a_row_that_files_never_take_needs_a_person(spark, broker, tmp_path, file_format, odd):
    """Another start would not help, so it is no WriteFailed."""
    given = {"jobName": f"job-{tmp_path.name}", "batchId": "3", "fileFormat": file_format}
    given["kafka.bootstrap.servers"] = broker.bootstrap_servers
    rows = spark.range(2).coalesce(1).selectExpr("id", f"{odd} AS odd")
    with pytest.raises(Exception, match="Column 'odd' has ") as told:
        rows.write.format("eo-files").mode("append").options(**given).save(str(tmp_path / "t"))
    error = last_error(str(told.value))
    assert error is not None
    assert (error.name, error.way) == ("SinkError", Way.PERSON)
    assert error.said.startswith(f"Batch 3, partition 0: directory {tmp_path / 't'}: Column 'odd'")
