"""Names and types of a table's columns: whatever they are, a batch that is decided can be applied,
and nothing of a row is cut in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from eo_kafka.errors import OptionsError, SinkError
from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.sinks.tables import writing
from eo_kafka.sinks.tables.options import read_table
from table_job import QUERY, new_table

TEXT = ("string", pa.string())
NO_TIME_ZONE = ("timestamp_ntz", pa.timestamp("us"))
TIME_ZONE = ("timestamp", pa.timestamp("us", "UTC"))
EVENING = datetime(2024, 1, 1, 23, 59, 59, 600_000)


@dataclass
class Rows:
    """One batch, a list of rows for each task, into a table of `made` columns."""

    database: str
    given: dict[str, str]
    columns: dict[str, tuple[str, pa.DataType]]

    def write(self, *tasks: Sequence[Sequence[Any]]) -> None:
        columns = [(name, kind) for name, (kind, _) in self.columns.items()]
        options, target = read_table(self.given, columns)
        plan, reports = make_plan(options), []
        for number, rows in enumerate(tasks):
            arrays = zip(*rows, strict=True)
            found = {
                name: pa.array(values, kind)
                for (name, (_, kind)), values in zip(self.columns.items(), arrays, strict=True)
            }
            task = TaskIdentity(QUERY, 0, number, number)
            batch = pa.record_batch(found)
            reports.append(writing.write(options, target, plan, task, iter([batch])))
        committer.commit(options, reports, 0)

    def there(self) -> list[tuple[Any, ...]]:
        names = ", ".join(f'"{name}"' for name in self.columns if name != "operation")
        with psycopg.connect(self.database) as connection:
            connection.execute("SET timezone = 'UTC'")
            found = connection.execute(f"SELECT {names} FROM {self.given['table']}")
            return sorted(found.fetchall(), key=repr)


@pytest.fixture
def rows_of(eo_postgres, broker):
    """Makes a table of given columns, and what writes it."""

    def make(made: str, columns: dict[str, tuple[str, pa.DataType]], **more: str) -> Rows:
        table = new_table(eo_postgres.url)
        schema = table.partition(".")[0]
        with psycopg.connect(eo_postgres.url, autocommit=True) as connection:
            connection.execute(
                f"CREATE COLLATION {schema}.no_case "
                "(provider = icu, locale = 'und-u-ks-level2', deterministic = false); "
                f"DROP TABLE {table}; CREATE TABLE {table} ({made.format(schema=schema)}); "
                f'CREATE SCHEMA "%{schema}"'
            )
        given = {"url": eo_postgres.url, "table": table, "jobName": f"job-{table}"}
        given["kafka.bootstrap.servers"] = broker.bootstrap_servers
        more = {name: word.format(schema=schema) for name, word in more.items()}
        return Rows(eo_postgres.url, {**given, **more}, columns)

    return make


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
