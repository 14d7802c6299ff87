"""A table by another name of its own, or of its server's after a fail-over: it is the same one,
by what the database calls it, and by its marker."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from eo_kafka.errors import ForeignLedger
from eo_kafka.sinks.protocol.recovery import make_plan
from table_job import TableJob, kill_at, spark_runs


def by_another_name(job: TableJob, what: str) -> None:
    if what == "host":
        job.given["url"] = job.given["url"].replace("127.0.0.1", "localhost")
        assert "localhost" in job.given["url"]
        return
    schema, table = job.given["table"].split(".")
    job.given["table"] = f'"{schema}".{table}'


def run(job: TableJob, folder: Path, *batches: int) -> None:
    for batch in batches:
        spark_runs(job, folder, batch)
        job.run(batch)


def interrupted(table_job, crash_points, folder) -> None:
    """Batch 1 is written, and Spark has not noted it."""
    run(table_job, folder, 0)
    spark_runs(table_job, folder, 1)
    kill_at(table_job, crash_points, "S8.after_done", 1)


@pytest.mark.parametrize("what", ["host", "table"])
def test_a_batch_that_was_interrupted_goes_on(table_job, crash_points, tmp_path, what) -> None:
    interrupted(table_job, crash_points, tmp_path)
    by_another_name(table_job, what)
    run(table_job, tmp_path, 1, 2)
    assert table_job.there() == table_job.expected(0, 1, 2)


def test_a_job_that_gets_another_name_as_well_does_not_write_its_batch_again(
    table_job, crash_points, tmp_path
) -> None:
    interrupted(table_job, crash_points, tmp_path)
    by_another_name(table_job, "host")
    old = dict(table_job.given)
    table_job.given["jobName"] += "-renamed"
    for _ in range(2):
        with pytest.raises(ForeignLedger, match=f"as job '{old['jobName']}'"):
            table_job.prepare(1)
    assert table_job.there() == table_job.expected(0, 1)
    table_job.given = old
    run(table_job, tmp_path, 1, 2)
    assert table_job.there() == table_job.expected(0, 1, 2)


def test_a_copy_of_the_checkpoint_may_write_a_table_of_that_name_elsewhere(
    table_job, crash_points, tmp_path
) -> None:
    interrupted(table_job, crash_points, tmp_path)
    schema, table = table_job.given["table"].split(".")
    name = f"d{uuid.uuid4().hex[:8]}"
    table_job.ask(f"CREATE DATABASE {name}")
    url = psycopg.conninfo.make_conninfo(table_job.database, dbname=name)
    given = {**table_job.given, "url": _url(table_job.given["url"], name)}
    other = replace(table_job, given={**given, "jobName": f"{given['jobName']}-copy"}, database=url)
    other.ask(f"CREATE SCHEMA {schema}")
    other.ask(f"CREATE TABLE {schema}.{table} (id bigint, word text)")
    other.run(1)
    assert other.there() == other.expected(1)


def _url(url: str, database: str) -> str:
    """The same server's."""
    head, _, rest = url.rpartition("/")
    return f"{head}/{database}{rest[rest.index('?') :] if '?' in rest else ''}"


def test_a_new_query_takes_the_ledger_over(table_job, tmp_path: Path) -> None:
    run(table_job, tmp_path / "old", 0)
    by_another_name(table_job, "host")
    spark_runs(table_job, tmp_path / "new", 0)
    (tmp_path / "new" / "metadata").write_text('{"id":"new"}')
    options, _ = replace(table_job, given={**table_job.given, "onReset": "new-job"}).read()
    assert make_plan(options).owner == "new"
