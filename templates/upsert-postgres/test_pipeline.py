"""Is the table what model.py says, whatever dies? Run `pytest`: it starts what it needs."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg
import pytest

import table
from conftest import Tested
from eo_kafka.testing import Broker
from eo_kafka.testing.plugin import Database
from generate import records
from model import expected
from pipeline import Settings
from rows import START
from streams import typed

COUNT = 400


@pytest.fixture(autouse=True)
def partitions(eo_broker: Broker) -> None:
    """The topic has several, and so a batch has several tasks."""
    eo_broker.topic("source", partitions=3)


@pytest.fixture
def settings(tested: Tested, eo_postgres: Database) -> Iterator[Settings]:
    """Of the job, with a table in a schema of this test's own."""
    schema = f"test_{uuid.uuid4().hex[:12]}"
    tested.job.config |= {"url": eo_postgres.url, "sink": f"{schema}.customers"}
    settings = typed(Settings, tested.job.config)
    with psycopg.connect(eo_postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        table.create(settings)
        yield settings
        connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())


def test_the_table_is_the_other_one_though_driver_disk_and_task_are_lost(
    tested: Tested, settings: Settings
) -> None:
    made = [*records(COUNT, START)]
    tested.write(made[: COUNT // 2])
    tested.job.run(crash="S7.in_table", until="crashed")  # in the transaction of a decided batch
    assert table.read(settings) == []
    tested.job.lose_checkpoint()
    tested.write(made[COUNT // 2 :])
    tested.job.run(crash="postgres.while_staging", how="kill")  # one task; Spark tries it again
    assert sorted(table.read(settings)) == sorted(expected(made, settings)["sink"])
