"""A table that another one takes the place of, or whose keys become other ones, while a batch
waits for its lock."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import psycopg
import pyarrow as pa
import pytest

import table_rows
from eo_kafka.errors import RepairNeeded, SinkError, WriteFailed
from eo_kafka.sinks.protocol import committer
from eo_kafka.testing.processes import wait_until
from table_rows import TEXT, Rows

MONEY = ("decimal(10,4)", pa.decimal128(10, 4))
WAYS = {"rename": "ALTER TABLE {table} RENAME TO old", "drop": "DROP TABLE {table}"}
TO_C = 'ALTER TABLE {table} ALTER id TYPE text COLLATE "C"'
COMMITS = pytest.mark.parametrize("commit", ["staged", "two-phase"])


def changed_under_it(job: Rows, monkeypatch: pytest.MonkeyPatch, commit: str, change: str) -> None:
    """What writes the table waits until another transaction has made this change of it."""
    table = job.given["table"]
    change = change.format(table=table, schema=table.partition(".")[0])

    def changed(do: Any, *asked: Any) -> Any:
        with ThreadPoolExecutor() as pool, psycopg.connect(job.database) as other:
            other.execute(f"LOCK TABLE {table}")
            (oid,) = other.execute("SELECT %s::regclass::oid", [table]).fetchone() or ()
            other.execute(change)
            doing = pool.submit(do, *asked)
            waits = f"SELECT FROM pg_locks WHERE relation = {oid} AND NOT granted"
            wait_until(lambda: other.execute(waits).fetchall(), "somebody waits for it")
            other.commit()
            return doing.result(90)

    if commit == "staged":
        decide = committer.commit
        monkeypatch.setattr(committer, "commit", lambda *asked: changed(decide, *asked))
    else:
        write = table_rows.writing.write
        writing = SimpleNamespace(write=lambda *asked: changed(write, *asked))
        monkeypatch.setattr(table_rows, "writing", writing)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("now", ["numeric", "numeric(10,2)"])
@COMMITS
def test_a_table_that_takes_the_place_of_the_one_that_was_looked_at_changes_no_value(
    rows_of, monkeypatch, commit, now, way
) -> None:
    job = rows_of("word numeric", {"word": MONEY}, commit=commit)
    swap = f"CREATE TABLE {{schema}}.new (word {now}); {WAYS[way]}; "
    swap += "ALTER TABLE {schema}.new RENAME TO written"
    rows = [[Decimal("1.2345")]]
    with monkeypatch.context() as patched:
        changed_under_it(job, patched, commit, swap)
        if commit == "two-phase":
            with pytest.raises(WriteFailed, match=r"Another table .*Nothing of the batch is vis"):
                job.write(rows)
        elif now == "numeric":
            job.write(rows)
        else:
            with pytest.raises(RepairNeeded, match=r"was numeric .*and is numeric\(10,2\) now"):
                job.write(rows)
    if now == "numeric":
        job.write(rows)  # the next attempt; what is there already is not written again
    assert job.there() == ([(Decimal("1.2345"),)] if now == "numeric" else [])


@pytest.mark.parametrize("was", ["text COLLATE {schema}.no_case", "{schema}.citext"])
@COMMITS
def test_rows_of_one_key_that_become_two_keys_are_not_written_as_one(
    rows_of, monkeypatch, commit, was
) -> None:
    job = rows_of("word text", {"id": TEXT, "word": TEXT}, keys="id", commit=commit)
    schema = job.given["table"].partition(".")[0]
    with psycopg.connect(job.database, autocommit=True) as connection:
        connection.execute(f"CREATE EXTENSION citext SCHEMA {schema}")
        try:
            connection.execute(
                f"ALTER TABLE {schema}.written ADD COLUMN id {was.format(schema=schema)} "
                "PRIMARY KEY"
            )
            changed_under_it(job, monkeypatch, commit, TO_C)
            with pytest.raises((RepairNeeded, SinkError), match=r"olumn 'id' was .* and is text"):
                job.write([["A", "1"], ["a", "2"]])
            assert job.there() == []
        finally:
            connection.execute("DROP EXTENSION citext CASCADE")


def test_keys_that_are_written_in_one_way_may_become_others(rows_of, monkeypatch) -> None:
    job = rows_of(
        "id text COLLATE {schema}.no_case PRIMARY KEY, word text",
        {"id": TEXT, "word": TEXT},
        keys="id",
    )
    changed_under_it(
        job, monkeypatch, "staged", 'ALTER TABLE {table} ALTER id TYPE text COLLATE "C"'
    )
    job.write([["A", "1"], ["b", "2"], ["b", "3"]])
    assert job.there() == [("A", "1"), ("b", "3")]
