"""Names and types of a table's columns: whatever they are, a batch that is decided can be applied,
and nothing of a row is cut in silence."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg.conninfo import make_conninfo

import table_rows
from eo_kafka.errors import OptionsError, RepairNeeded, SinkError
from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.tables.target import StagedTable
from eo_kafka.testing.processes import wait_until
from table_rows import TEXT

NO_TIME_ZONE = ("timestamp_ntz", pa.timestamp("us"))
TIME_ZONE = ("timestamp", pa.timestamp("us", "UTC"))
EVENING = datetime(2024, 1, 1, 23, 59, 59, 600_000)


@pytest.mark.parametrize("keys", ["", "a", "w,p"])
def test_a_column_may_have_any_name(rows_of, keys) -> None:
    names = ["a", "p", "s", "w", "n", "t", "newest", "written", "per%", "%s", "%(a)s", 'qu"', "x.y"]
    made = ", ".join('"{}" text'.format(name.replace('"', '""')) for name in names)
    key = f", PRIMARY KEY ({keys})" if keys else ""
    columns = dict.fromkeys((name for name in names if name != 'qu"'), TEXT)
    more = {"keys": keys, "operationColumn": "operation"} if keys else {}
    columns |= {"operation": TEXT} if keys else {}
    job = rows_of(made + key, columns, stagingSchema="%{schema}", **more)
    width = len(columns) - bool(keys)
    operation = ["upsert"] if keys else []
    job.write(
        [[f"{column}" for column in range(width)] + operation],
        [[f"{column + 100}" for column in range(width)] + operation],
    )
    assert job.there() == [
        tuple(f"{column}" for column in range(width)),
        tuple(f"{column + 100}" for column in range(width)),
    ]


def test_what_is_one_key_to_the_table_is_one_key_before_the_decision(rows_of) -> None:
    made = "id text COLLATE {schema}.no_case PRIMARY KEY, word text"
    columns = {"id": TEXT, "word": TEXT}
    job = rows_of(made, columns, keys="id")
    with pytest.raises(SinkError, match="rows of one key .* in several tasks"):
        job.write([["A", "1"]], [["a", "2"]])
    job.write([["A", "1"], ["a", "2"], ["b", "3"]])
    assert job.there() == [("a", "2"), ("b", "3")]


@pytest.mark.parametrize(
    ("made", "kind", "fits", "would_be_cut"),
    [
        ("varchar(3)", TEXT, "ab ", "ab  "),
        ("timestamp(3)", NO_TIME_ZONE, EVENING, EVENING.replace(microsecond=1)),
        (
            "timestamptz(1)",
            TIME_ZONE,
            EVENING.replace(tzinfo=UTC),
            EVENING.replace(microsecond=999_999, tzinfo=UTC),
        ),
    ],
)
def test_a_value_that_the_column_would_cut_is_refused_before_the_decision(
    rows_of, made, kind, fits, would_be_cut
) -> None:
    job = rows_of(f"column_of_a_length {made}", {"column_of_a_length": kind})
    with pytest.raises(SinkError, match=r"would cut or round a value.*Nothing of the batch is vis"):
        job.write([[fits], [would_be_cut]])
    assert job.there() == []
    job.write([[fits], [None]])
    assert job.there() == sorted([(fits,), (None,)], key=repr)


def test_a_column_of_names_is_refused_at_the_start(rows_of) -> None:
    job = rows_of("word name", {"word": TEXT})  # of 63 bytes: it cuts
    with pytest.raises(OptionsError, match="Column 'word' is string, and the table's is name"):
        job.write([["a" * 100]])


def test_text_that_looks_like_copys_own_words_arrives(rows_of) -> None:
    words = ["\\.", "\n\\.\n", "x\r\n\\.\r\ny", "\\N", "", "NULL", '"', "a,b\\", "\r", None]
    job = rows_of("word text", {"word": TEXT})
    job.write([[word] for word in words])
    assert job.there() == sorted([(word,) for word in words], key=repr)


MONEY = ("decimal(10,4)", pa.decimal128(10, 4))


@pytest.mark.parametrize(
    ("made", "kind", "change", "value", "harmless"),
    [
        ("numeric", MONEY, "numeric(10,2)", Decimal("1.2345"), Decimal("1.2500")),
        ("timestamp(6)", NO_TIME_ZONE, "timestamp(0)", EVENING, EVENING.replace(microsecond=0)),
        ("varchar(5)", TEXT, "varchar(3)", "abc ", "abc"),
        ("json", TEXT, "text", None, '{"a":  1}'),
    ],
)
@pytest.mark.parametrize("commit", ["staged", "two-phase"])
def test_a_column_that_is_altered_while_a_batch_is_written_changes_no_value(
    rows_of, monkeypatch, made, kind, change, value, harmless, commit
) -> None:
    job = rows_of(f"word {made}", {"word": kind}, commit=commit)
    table, plan = job.given["table"], table_rows.make_plan

    def altered(options):
        made_plan = plan(options)
        alter(change)
        return made_plan

    def alter(to: str) -> None:
        with psycopg.connect(job.database, autocommit=True) as connection:
            connection.execute(f"ALTER TABLE {table} ALTER word TYPE {to} USING word::{to}")

    monkeypatch.setattr(table_rows, "make_plan", altered)
    if value is not None:
        told = {"staged": "which could change values of them", "two-phase": "Column 'word'|would c"}
        with pytest.raises((SinkError, RepairNeeded), match=told[commit]):
            job.write([[value]])
        assert job.there() == []
    if commit == "staged":  # a task looks at the types alone, as S1 does
        alter(made)
        monkeypatch.setattr(table_rows, "make_plan", plan)
        if value is not None:  # it is decided, and comes first
            with pytest.raises(Exception, match="batch 0"):
                job.write([[harmless]])
            assert job.there() == [(value,)]
            return
        monkeypatch.setattr(table_rows, "make_plan", altered)
        job.write([[harmless]])
        assert job.there() == [(harmless,)]


def test_a_column_whose_alteration_is_waited_for_changes_no_value(rows_of, monkeypatch) -> None:
    """Whatever isolation the role's transactions have: they must see what they have waited for."""
    job = rows_of("word numeric", {"word": MONEY})
    table, decide = job.given["table"], committer.commit
    role = "-c default_transaction_isolation=serializable"
    job.given["url"] = make_conninfo(job.database, options=role)
    waits = f"SELECT FROM pg_locks WHERE relation = '{table}'::regclass AND NOT granted"

    def altered(*asked: Any) -> None:
        with ThreadPoolExecutor() as pool, psycopg.connect(job.database) as other:
            other.execute(f"ALTER TABLE {table} ALTER word TYPE numeric(10,2)")
            deciding = pool.submit(decide, *asked)
            wait_until(lambda: other.execute(waits).fetchall(), "the driver waits for it")
            other.commit()
            deciding.result(60)

    monkeypatch.setattr(committer, "commit", altered)
    with pytest.raises(RepairNeeded, match=r"was numeric .*and is numeric\(10,2\) now"):
        job.write([[Decimal("1.2345")]])
    assert job.there() == []


@pytest.mark.parametrize(
    ("made", "kind", "change", "value"),
    [
        ("timestamp", NO_TIME_ZONE, "timestamptz", EVENING),
        ("timestamptz", TIME_ZONE, "timestamp", EVENING.replace(tzinfo=UTC)),
        ("{schema}.moment", TIME_ZONE, "text", EVENING.replace(tzinfo=UTC)),
    ],
)
def test_a_column_that_is_altered_is_not_cast_by_the_sessions_time_zone(
    rows_of, monkeypatch, made, kind, change, value
) -> None:
    """It is the role's here, and was another one where ALTER cast the rows before."""
    job = rows_of("word text", {"word": kind})
    schema, plan = job.given["table"].partition(".")[0], table_rows.make_plan
    job.given["url"] = make_conninfo(job.database, options="-c TimeZone=America/New_York")

    def alter(to: str) -> None:
        with psycopg.connect(job.database, autocommit=True) as connection:
            connection.execute("SET timezone = 'UTC'")
            table, new = job.given["table"], to.format(schema=schema)
            connection.execute(f"ALTER TABLE {table} ALTER word TYPE {new} USING word::{new}")

    def altered(options):
        made_plan = plan(options)
        alter(change)
        return made_plan

    with psycopg.connect(job.database, autocommit=True) as connection:
        connection.execute(f"CREATE DOMAIN {schema}.moment AS timestamptz")
    alter(made)
    monkeypatch.setattr(table_rows, "make_plan", altered)
    with pytest.raises(RepairNeeded, match="column 'word' was .* and is .* now"):
        job.write([[value]])
    assert job.there() == []
    alter(made)  # as the error says
    monkeypatch.setattr(table_rows, "make_plan", plan)
    job.write([[value]])  # it is decided, and comes first
    assert job.there() == [(value,)]


def test_a_column_that_is_altered_before_rows_are_staged_for_it_changes_no_value(
    rows_of, monkeypatch
) -> None:
    job = rows_of("word numeric", {"word": MONEY})
    make_room = StagedTable.make_room

    def altered(*asked: Any) -> None:
        with psycopg.connect(job.database, autocommit=True) as connection:
            connection.execute(f"ALTER TABLE {job.given['table']} ALTER word TYPE numeric(10,2)")
        make_room(*asked)

    monkeypatch.setattr(StagedTable, "make_room", altered)
    with pytest.raises(OptionsError, match=r"'word' is decimal\(10,4\).*would be rounded"):
        job.write([[Decimal("1.2345")]])
    assert job.there() == []


@pytest.mark.parametrize("of_index", ["no_case", "C"])
def test_an_index_that_tells_other_keys_apart_than_its_column_is_refused(rows_of, of_index) -> None:
    columns = {"id": TEXT, "word": TEXT}
    made = {"no_case": "id text", "C": "id text COLLATE {schema}.no_case"}[of_index]
    job = rows_of(f"{made}, word text", columns, keys="id")
    table = job.given["table"]
    collation = f"{table.partition('.')[0]}.no_case" if of_index == "no_case" else '"C"'
    with psycopg.connect(job.database, autocommit=True) as connection:
        connection.execute(f"CREATE UNIQUE INDEX ON {table} (id COLLATE {collation})")
    with pytest.raises(OptionsError, match="with the columns' own collations"):
        job.write([["A", "1"], ["a", "2"]])


def test_keys_of_a_domain_of_a_length_are_one_in_its_collation(rows_of) -> None:
    job = rows_of("word text", {"id": TEXT, "word": TEXT}, keys="id")
    schema = job.given["table"].partition(".")[0]
    with psycopg.connect(job.database, autocommit=True) as connection:
        connection.execute(
            f"CREATE DOMAIN {schema}.short AS varchar(5) COLLATE {schema}.no_case; "
            f"ALTER TABLE {schema}.written ADD COLUMN id {schema}.short PRIMARY KEY"
        )
    job.write([["A", "1"], ["a", "2"]])
    assert job.there() == [("a", "2")]


def test_a_key_of_citext_is_deleted_where_its_schema_is_not_in_the_search_path(rows_of) -> None:
    columns = {"id": TEXT, "word": TEXT, "operation": TEXT}
    job = rows_of("word text", columns, keys="id", operationColumn="operation")
    schema = job.given["table"].partition(".")[0]
    with psycopg.connect(job.database, autocommit=True) as connection:
        connection.execute(
            f"CREATE EXTENSION citext SCHEMA {schema}; "
            f"ALTER TABLE {schema}.written ADD COLUMN id {schema}.citext PRIMARY KEY; "
            f"INSERT INTO {schema}.written (id, word) VALUES ('Abc', '1'), ('B', '2')"
        )
        try:
            job.write([["aBC", "", "delete"], ["b", "3", "upsert"]])
            assert job.there() == [("B", "3")]
        finally:
            connection.execute("DROP EXTENSION citext CASCADE")
