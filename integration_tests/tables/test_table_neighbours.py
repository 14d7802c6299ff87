"""What others do to a table and to what is kept beside it: partitions of another kind, another job
in the schema, another role, marks that somebody removes. Nothing is lost or repeated in silence."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from eo_kafka.errors import OptionsError, ReadTimeout, RepairNeeded
from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.tables import decided
from eo_kafka.sinks.tables.marker import LIMITS
from eo_kafka.testing.processes import wait_until
from table_job import TableJob, driver, job_of, kill_at, new_table

KEYED = {"keys": "id", "commit": "two-phase"}


@pytest.mark.parametrize("made", ["UNLOGGED", "FOREIGN"])
@pytest.mark.parametrize("commit", ["staged", "two-phase"])
def test_a_partition_that_would_lose_or_repeat_rows_is_refused(
    eo_postgres, broker, made, commit
) -> None:
    """The table itself is logged. A partition that is not is empty after a crash of the server, and
    the ledger says that the rows are there; one of another server commits by itself."""
    url = eo_postgres.url
    table = new_table(url)
    schema = table.partition(".")[0]
    job = job_of(url, broker.bootstrap_servers, table, commit=commit)
    job.ask(f"DROP TABLE {table}")
    job.ask(f"CREATE TABLE {table} (id bigint, word text) PARTITION BY RANGE (id)")
    job.ask(f"CREATE TABLE {schema}.rest PARTITION OF {table} DEFAULT")
    job.run(0)
    if made == "FOREIGN":
        job.ask(f"CREATE FOREIGN DATA WRAPPER {schema}")
        job.ask(f"CREATE SERVER {schema} FOREIGN DATA WRAPPER {schema}")
    job.ask(
        f"CREATE {made} TABLE {schema}.odd PARTITION OF {table} FOR VALUES FROM (10000) TO (20000)"
        + (f" SERVER {schema}" if made == "FOREIGN" else "")
    )
    with pytest.raises(OptionsError, match=rf"{schema}.odd'.*(unlogged|foreign table)"):
        job.prepare(1)
    job.ask(f"DROP {made.replace('UNLOGGED', '')} TABLE {schema}.odd")
    job.run(1)
    assert job.there() == job.expected(0, 1)


@pytest.mark.parametrize(
    ("takes", "times"),
    [("ALL TABLES", 1), ("TABLES IN SCHEMA {schema}", 1), ("TABLE {schema}.written", 0)],
)
def test_a_publication_that_takes_in_what_is_staged_is_told_of_once(
    table_job, caplog, takes, times
) -> None:
    """Its subscribers lack these tables, and stop."""
    schema = table_job.given["table"].partition(".")[0]
    table_job.ask(f"CREATE PUBLICATION {schema} FOR {takes.format(schema=schema)}")
    try:
        table_job.run(0, 1)
    finally:
        table_job.ask(f"DROP PUBLICATION {schema}")
    assert caplog.text.count(f"Publication '{schema}' takes in every table") == times
    assert table_job.there() == table_job.expected(0, 1)


def test_two_jobs_that_write_tables_of_one_schema_do_not_wait_for_each_other(
    eo_postgres, broker
) -> None:
    """Both are in the same generation, and their tasks' attempts have the same numbers."""
    url, servers = eo_postgres.url, broker.bootstrap_servers
    table = new_table(url, ", PRIMARY KEY (id)")
    other = f"{table}_too"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {other} (LIKE {table} INCLUDING ALL)")
    jobs: list[TableJob] = [job_of(url, servers, name, **KEYED) for name in (table, other)]
    for job in jobs:
        job.prepare(0)
    for job in jobs:
        job.commit(0)
        assert job.there() == job.expected(0)


def test_another_role_cannot_commit_what_is_prepared_and_is_told_so(
    own_postgres, broker, crash_points
) -> None:
    url = own_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url), commit="two-phase")
    schema = job.given["table"].partition(".")[0]
    job.ask("CREATE ROLE other LOGIN")
    job.ask(f"GRANT ALL ON SCHEMA {schema} TO other")
    job.ask("ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO other")
    job.ask(f"GRANT ALL ON {job.given['table']} TO other")
    kill_at(job, crash_points, "S7.in_commits", 0)  # one of two is there
    job.given["url"] = url.replace("//postgres@", "//other@")
    with pytest.raises(RepairNeeded, match="Tasks that were committed before stay so.*that role"):
        job.run(0)
    job.given["url"] = url
    job.run(0, 1)
    assert job.there() == job.expected(0, 1)


@pytest.mark.parametrize(
    ("point", "removed"),
    [
        ("S7.in_table", "TRUNCATE {}"),
        ("S7.in_table", "DROP TABLE {}"),
        ("S7.in_commits", "DELETE FROM {}"),  # a lock keeps all else away
    ],
)
def test_a_decided_batch_whose_marks_somebody_removed_is_not_written_again_in_silence(
    eo_postgres, broker, crash_points, point, removed
) -> None:
    url = eo_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url), commit="two-phase")
    table = job.given["table"]
    marks = f"{table.partition('.')[0]}.eo_kafka_prepared"
    job.run(0)
    kill_at(job, crash_points, point, 1)  # committed, all or one of two, and not in the marker
    job.ask(removed.format(marks))
    for _ in range(2):
        with pytest.raises(RepairNeeded, match="Batch 1 .*rows of .*eo_kafka_prepared' were remo"):
            job.prepare(1)
    job.ask(f"DELETE FROM {table} WHERE id >= 10000")
    job.given["failOnDataLoss"] = "false"
    job.prepare(1)
    del job.given["failOnDataLoss"]
    job.run(1, 2)
    assert job.there() == job.expected(0, 1, 2)
    assert job.prepared() == []


@contextmanager
def vacuum_full_waits(job: TableJob) -> Iterator[None]:
    """For the marks: what is prepared has a lock on them."""
    marks = f"{job.given['table'].partition('.')[0]}.eo_kafka_prepared"
    with psycopg.connect(job.database, autocommit=True) as other, ThreadPoolExecutor() as pool:
        pid = other.info.backend_pid
        done = pool.submit(other.execute, f"VACUUM FULL {marks}")
        try:
            waiting = f"SELECT 1 FROM pg_locks WHERE pid = {pid} AND NOT granted"
            wait_until(lambda: job.ask(waiting), "VACUUM FULL waits")
            yield
            done.result(30)
        finally:
            other.cancel()


def test_a_vacuum_full_of_the_marks_waits_for_a_batch_and_not_the_batch_for_it(
    eo_postgres, broker, crash_points
) -> None:
    url = eo_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url), commit="two-phase")
    job.run(0)
    crash_points.arm("S6.after_decision", "wait")
    with driver(job, 1) as process:
        crash_points.wait_reached("S6.after_decision")
        with vacuum_full_waits(job):
            crash_points.release("S6.after_decision")
            _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said
    job.prepare(2)  # and its driver dies
    with vacuum_full_waits(job):
        job.prepare(2)
    job.given["url"] = f"{url}?options=-c%20lock_timeout%3D2s"
    with vacuum_full_waits(job):
        with pytest.raises(ReadTimeout, match="as VACUUM FULL does") as told:
            job.commit(2)
        (who,) = re.findall("SELECT pid, .*16384", str(told.value))
        assert any("VACUUM FULL" in row[-1] for row in job.ask(who) if not row[3])
        committer.abort(job.options, job.reports)  # as Spark does then
    job.run(2)
    assert job.there() == job.expected(0, 1, 2)


def test_a_vacuum_full_of_the_marks_between_two_commits_is_named(
    eo_postgres, broker, crash_points, monkeypatch
) -> None:
    """One of two is committed: only the marks say so."""
    monkeypatch.setattr(decided, "LIMITS", LIMITS.replace("60s", "2s"))
    url = eo_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url), commit="two-phase")
    job.run(0)
    kill_at(job, crash_points, "S7.in_commits", 1)
    with pytest.raises(psycopg.errors.QueryCanceled), vacuum_full_waits(job):
        with pytest.raises(ReadTimeout, match="as VACUUM FULL does") as told:
            job.prepare(1)
        (who,) = re.findall(r"SELECT pid, .*?'\)", str(told.value))
        (waits,) = [row for row in job.ask(who) if not row[3]]
        assert "VACUUM FULL" in waits[-1]
        job.ask(f"SELECT pg_cancel_backend({waits[0]})")
    job.run(1)
    assert job.there() == job.expected(0, 1)


@pytest.mark.parametrize("commit", ["staged", "two-phase"])
def test_a_lock_that_another_session_has_is_told_after_the_time_that_the_docs_say(
    eo_postgres, broker, monkeypatch, commit
) -> None:
    """PostgreSQL has answered, and nothing is unknown."""
    monkeypatch.setattr(decided, "LIMITS", LIMITS.replace("60s", "2s"))
    url = eo_postgres.url
    table = new_table(url, ", PRIMARY KEY (id)")
    job = job_of(url, broker.bootstrap_servers, table, keys="id", commit=commit)
    job.run(0)
    locked = table if commit == "staged" else f"{table.partition('.')[0]}.eo_kafka_batches"
    job.prepare(1)
    with psycopg.connect(url) as other:
        other.execute(f"SELECT * FROM {locked} FOR UPDATE")
        began = time.monotonic()
        with pytest.raises(ReadTimeout) as told:
            job.commit(1)
        assert 2 <= time.monotonic() - began < 20
        (who,) = re.findall(r"SELECT pid, .*?'\)", str(told.value))
        assert other.info.backend_pid in {pid for pid, *_ in job.ask(who)}
    said = str(told.value)
    relation = locked.partition(".")[2]
    assert f"{table}' of" in said
    assert "lock timeout, while" in said
    assert f'in relation "{relation}' in said
    assert "No answer" not in said
    assert "unknown" not in said
    job.run(1)
    assert job.there() == job.expected(0, 1)
