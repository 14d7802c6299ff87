"""One batch of rows into a table of any columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.sinks.tables import writing
from eo_kafka.sinks.tables.options import read_table
from table_job import QUERY, new_table

TEXT = ("string", pa.string())


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
