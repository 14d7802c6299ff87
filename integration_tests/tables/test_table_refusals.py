"""What PostgreSQL refuses is told as what it is, and what passes is waited for."""

from __future__ import annotations

import threading
import time

import psycopg
import pytest

from eo_kafka.clients.postgres import client
from eo_kafka.clients.postgres.client import PostgresSettings, connected, may_pass
from eo_kafka.core import patience
from eo_kafka.core.options import OptionReader
from eo_kafka.errors import (
    OptionsError,
    OutcomeUnknown,
    ReadTimeout,
    RepairNeeded,
)
from eo_kafka.sinks import insisting
from eo_kafka.sinks.tables.finisher import StagedTableRows
from eo_kafka.testing.processes import wait_until
from table_job import job_of, new_table

READ_ONLY = "ALTER SYSTEM SET default_transaction_read_only = on"
ALL_MAY_WRITE = "ALTER SYSTEM RESET default_transaction_read_only"
RELOADED = "SELECT pg_reload_conf()"


@pytest.fixture(autouse=True)
def no_connection_is_kept():
    client._kept.close()
    yield
    client._kept.close()


def ask(url: str, *statements: str) -> None:
    writes = "-c default_transaction_read_only=off"
    with psycopg.connect(url, autocommit=True, options=writes) as connection:
        for one in statements:
            connection.execute(one)


def settings_of(url: str) -> PostgresSettings:
    found = PostgresSettings.read(OptionReader({"url": url}))
    patience.served(found.place)  # what passes is waited for, for minutes
    return found


def make_read_only(url: str) -> None:
    ask(url, READ_ONLY, RELOADED)
    wait_until(lambda: not is_writable(url), "it takes no writes")


def is_writable(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("SHOW default_transaction_read_only").fetchone() == ("off",)


def test_who_is_not_let_in_is_told_what_the_server_says(own_postgres):
    url, here = own_postgres.url, "/postgres"
    hba = "host all known 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
    ask(url, "CREATE ROLE known LOGIN PASSWORD 'it'")
    (own_postgres.data / "pg_hba.conf").write_text(hba)
    ask(url, RELOADED)
    known = url.replace("postgres@", "known:it@")
    for refused, words in (
        (url.replace("postgres@", "nobody@"), 'role "nobody" does not exist'),
        (url[: -len(here)] + "/nothing", 'database "nothing" does not exist'),
        (known.replace(":it@", ":that@"), "password authentication failed"),
        (known.replace(":it@", "@"), "no password supplied"),
    ):
        settings = PostgresSettings.read(OptionReader({"url": refused}))
        why = f"{words}.*refuses the role, password or database"
        with pytest.raises(ReadTimeout, match=why) as told, connected(settings):
            pass
        assert ":it" not in str(told.value) and ":that" not in str(told.value)


def test_a_server_that_has_no_room_for_a_session_is_waited_for(own_postgres):
    ask(own_postgres.url, "CREATE ROLE one LOGIN CONNECTION LIMIT 1")
    url = own_postgres.url.replace("postgres@", "one@")
    other = psycopg.connect(url)
    threading.Timer(3, other.close).start()
    with connected(settings_of(url)) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert other.closed


def test_a_role_that_may_only_read_is_told_so(own_postgres, broker):
    url = own_postgres.url
    ask(
        url,
        "CREATE ROLE reader LOGIN SUPERUSER",
        "ALTER ROLE reader SET default_transaction_read_only = on",
    )
    job = job_of(url, broker.bootstrap_servers, new_table(url))
    job.given["url"] = url.replace("postgres@", "reader@")
    with pytest.raises(ReadTimeout, match=r"session is read-only.*'url' names the primary"):
        job.run(0)


@pytest.mark.parametrize("commit", ["staged", "two-phase"])
def test_a_server_that_takes_no_writes_for_a_while_is_waited_for(own_postgres, broker, commit):
    url = own_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url), commit=commit)
    job.run(0)
    job.prepare(1)
    make_read_only(url)
    threading.Timer(3, lambda: ask(url, ALL_MAY_WRITE, RELOADED)).start()
    job.commit(1)
    assert job.there() == job.expected(0, 1)


def test_so_it_is_after_the_decision(own_postgres, broker, monkeypatch):
    url, apply = own_postgres.url, StagedTableRows.apply
    job = job_of(url, broker.bootstrap_servers, new_table(url))
    job.run(0)
    job.prepare(1)

    def apply_read_only(self, but) -> None:
        make_read_only(url)
        threading.Timer(3, lambda: ask(url, ALL_MAY_WRITE, RELOADED)).start()
        apply(self, but)

    monkeypatch.setattr(StagedTableRows, "apply", apply_read_only)
    job.commit(1)
    assert job.there() == job.expected(0, 1)


def test_one_that_stays_so_is_told_as_what_it_is(own_postgres, broker, monkeypatch):
    url, apply = own_postgres.url, StagedTableRows.apply
    job = job_of(url, broker.bootstrap_servers, new_table(url))
    job.run(0)
    job.prepare(1)

    def apply_read_only(self, but) -> None:
        make_read_only(url)
        monkeypatch.setattr(patience, "OUTAGE_S", 1.0)
        monkeypatch.setattr(insisting, "APPLY_TIMEOUT_S", 0.0)
        apply(self, but)

    with monkeypatch.context() as patched:
        patched.setattr(StagedTableRows, "apply", apply_read_only)
        with pytest.raises(OutcomeUnknown, match=r"Batch 1 is decided.*is read-only") as told:
            job.commit(1)
    assert "Change the table" not in str(told.value)
    ask(url, ALL_MAY_WRITE, RELOADED)
    job.run(2)
    assert job.there() == job.expected(0, 1, 2)


def published(url: str, table: str) -> None:
    """As for Debezium, and the table's deletes cannot be told to it."""
    ask(url, f"ALTER TABLE {table} ALTER id SET NOT NULL")
    ask(url, f"CREATE PUBLICATION of_{table.partition('.')[0]} FOR TABLE {table}")


def test_deletes_that_a_publication_forbids_are_told_at_the_start(eo_postgres, broker):
    table = new_table(eo_postgres.url, ", UNIQUE (id)")
    published(eo_postgres.url, table)
    given = {"keys": "id", "operationColumn": "op"}
    job = job_of(eo_postgres.url, broker.bootstrap_servers, table, **given)
    with pytest.raises(OptionsError, match=r"operationColumn.*replica identity.*REPLICA IDENTITY"):
        job.run(0)
    ask(eo_postgres.url, f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    job.run(0, 1)
    assert job.there() == job.expected(0, 1)


def test_so_they_are_after_the_decision_and_at_once(eo_postgres, broker):
    table = new_table(eo_postgres.url, ", UNIQUE (id)")
    given = {"keys": "id", "operationColumn": "op"}
    job = job_of(eo_postgres.url, broker.bootstrap_servers, table, **given)
    job.run(0)
    job.prepare(1)
    published(eo_postgres.url, table)
    began = time.monotonic()
    with pytest.raises(RepairNeeded, match=r"Batch 1 .*does not take it.*REPLICA IDENTITY"):
        job.commit(1)
    assert time.monotonic() - began < 20
    ask(eo_postgres.url, f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    job.run(2)
    assert job.there() == job.expected(0, 1, 2)


def test_two_that_end_one_prepared_transaction_may_ask_again(own_postgres):
    url = own_postgres.url
    ask(url, "CREATE TABLE t ()", "BEGIN; DROP TABLE t; PREPARE TRANSACTION 'one'")
    ask(url, "ALTER SYSTEM SET synchronous_standby_names = 'away'", RELOADED)
    with psycopg.connect(url, autocommit=True) as slow:
        number = slow.info.backend_pid
        ended = threading.Thread(target=slow.execute, args=("COMMIT PREPARED 'one'",))
        ended.start()
        with psycopg.connect(url, autocommit=True) as other:
            waits = (
                f"SELECT 1 FROM pg_stat_activity WHERE pid = {number} AND wait_event = 'SyncRep'"
            )
            wait_until(lambda: bool(other.execute(waits).fetchall()), "it waits for a standby")
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState) as told:
                other.execute("COMMIT PREPARED 'one'")
        ask(url, "ALTER SYSTEM RESET synchronous_standby_names", RELOADED)
        ended.join()
    assert may_pass(told.value)
