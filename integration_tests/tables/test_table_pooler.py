"""A table behind PgBouncer: with a session for each connection all is as without it, and where
transactions share sessions nothing is written."""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from collections.abc import Callable
from unittest.mock import Mock

import psycopg
import pytest

from eo_kafka.clients.postgres import client, pooling
from eo_kafka.errors import EnvironmentRefused, EoKafkaError, Fenced, ReadTimeout
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.sinks.tables import prepared, writing
from eo_kafka.sinks.tables.leftovers import look
from eo_kafka.sinks.tables.prepared_finisher import PreparedTableRows
from eo_kafka.tools import cli
from pgbouncer import pgbouncer
from table_job import QUERY, TableJob, job_of, new_table

COMMITS = pytest.mark.parametrize("commit", ["staged", "two-phase"])


@pytest.fixture(autouse=True)
def no_connection_is_kept():
    yield
    client._kept.close()


def through(url: str, job: TableJob, commit: str) -> TableJob:
    job.given |= {"url": url, "commit": commit}
    return job


@COMMITS
@pytest.mark.parametrize("size", ["20", "2"])  # 20 is the default
def test_with_sessions_a_batch_is_written_once(table_job, eo_postgres, tmp_path, commit, size):
    with pgbouncer(tmp_path, eo_postgres.url, default_pool_size=size) as url:
        job = through(url, table_job, commit)
        job.run(0, 1)
        assert job.there() == job.expected(0, 1)


@COMMITS
@pytest.mark.parametrize("mode", ["transaction", "statement"])
@pytest.mark.parametrize("order", [{}, {"server_round_robin": "1"}])
def test_without_it_is_refused(table_job, eo_postgres, tmp_path, commit, mode, order):
    with pgbouncer(tmp_path, eo_postgres.url, pool_mode=mode, **order) as url:
        job = through(url, table_job, commit)
        for _ in range(2):
            with pytest.raises(EnvironmentRefused, match="each transaction another session.*pool_"):
                job.run(0)
    assert job.there() == Counter()


def test_so_it_is_in_a_pool_that_others_use(table_job, eo_postgres, tmp_path):
    done = threading.Event()

    def work(url: str) -> None:
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
            while not done.is_set():
                connection.execute("SELECT pg_sleep(random() / 1000)")

    with pgbouncer(tmp_path, eo_postgres.url, pool_mode="transaction") as url:
        others = [threading.Thread(target=work, args=(url,)) for _ in range(8)]
        for one in others:
            one.start()
        try:
            with pytest.raises(EnvironmentRefused, match="each transaction another session"):
                through(url, table_job, "staged").run(0)
        finally:
            done.set()
            for one in others:
                one.join()


def test_so_it_is_in_a_pool_without_a_session_to_spare(table_job, eo_postgres, tmp_path):
    done = threading.Event()

    def work(url: str) -> None:
        with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
            while not done.is_set():
                connection.execute("SELECT pg_sleep(4)")

    with pgbouncer(
        tmp_path, eo_postgres.url, pool_mode="transaction", default_pool_size="1"
    ) as url:
        other = threading.Thread(target=work, args=(url,))
        other.start()
        try:
            with pytest.raises(EnvironmentRefused, match="each transaction another session"):
                through(url, table_job, "staged").run(0)
        finally:
            done.set()
            other.join()
    assert table_job.there() == Counter()


def test_what_a_full_pool_does_not_tell_is_asked_again(
    table_job, eo_postgres, tmp_path, monkeypatch
):
    monkeypatch.setattr(pooling, "_WAIT_S", 2.0)
    with pgbouncer(tmp_path, eo_postgres.url, default_pool_size="2") as url:
        job = through(url, table_job, "staged")
        with psycopg.connect(url) as other:
            other.execute("SELECT 1")
            for _ in range(2):
                with pytest.raises(ReadTimeout, match="second session.*default_pool_size"):
                    job.run(0)
        job.run(0)
    assert job.there() == job.expected(0)


def test_doctor_says_so(table_job, eo_postgres, tmp_path, capsys):
    with pgbouncer(tmp_path, eo_postgres.url, pool_mode="transaction") as url:
        config = tmp_path / "table.properties"
        config.write_text(f"url={url}\ntable={table_job.given['table']}\n")
        servers = table_job.given["kafka.bootstrap.servers"]
        words = ["--table-config", str(config), "--bootstrap-servers", servers, "--json"]
        assert cli.main(["doctor", *words]) == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    (found,) = [one for one in findings if one["subject"] == "table"]
    assert found["level"] == "problem"
    assert "each transaction another session" in found["text"]


@pytest.fixture
def keyed(eo_postgres, broker) -> TableJob:
    """A job that a row which another transaction has would hold up."""
    url = eo_postgres.url
    table = new_table(url, ", PRIMARY KEY (id)")
    return job_of(url, broker.bootstrap_servers, table, keys="id", commit="two-phase")


def planned(job: TableJob, batch: int) -> Callable[..., None]:
    """What runs attempts of a batch's tasks, by a plan made now; `meanwhile`: before the last of
    its rows."""
    (options, target), plan = job.read(), make_plan(job.options)

    def attempt(partition: int, number: int, meanwhile: Callable[[], None] = lambda: None) -> None:
        def rows():
            yield job._batch(job.rows(batch, partition), "")
            meanwhile()

        task = TaskIdentity(QUERY, batch, partition, number)
        writing.write(options, target, plan, task, rows())

    return attempt


def test_what_is_prepared_by_the_poolers_name_for_the_database_is_found_by_its_own(
    keyed, eo_postgres, tmp_path
):
    with pgbouncer(tmp_path, eo_postgres.url, alias="shop") as url:
        keyed.given["url"] = url
        keyed.run(0)
        attempt = planned(keyed, 1)
        attempt(0, 0)  # and its driver dies
        keyed.given["url"] = eo_postgres.url
        assert [one.job for one in look(keyed.read()[1])[0]] == [keyed.given["jobName"]]
        keyed.run(1)
        assert keyed.prepared() == []
        with pytest.raises(Fenced):
            attempt(1, 1)
    keyed.run(2)
    assert keyed.there() == keyed.expected(0, 1, 2)


@pytest.mark.parametrize("name", ["shop", "postgres"])
def test_what_has_an_older_name_with_the_databases_in_it_is_found(
    keyed, eo_postgres, tmp_path, monkeypatch, name
):
    """Of before prefixes_of: the pooler's, or the server's if the URL was its own."""

    def older(connection: object, *whose: str) -> list[str]:
        words = "/".join((name, *whose))
        return [f"{prepared.PREFIX}{hashlib.sha256(words.encode()).hexdigest()[:16]}_"]

    def run() -> None:
        with monkeypatch.context() as newer:
            newer.setattr(prepared, "prefixes_of", now)
            keyed.run(1)

    now = prepared.prefixes_of
    with pgbouncer(tmp_path, eo_postgres.url, alias="shop") as url:
        keyed.given["url"] = url
        monkeypatch.setattr(prepared, "prefixes_of", older)
        keyed.run(0)
        attempt = planned(keyed, 1)
        attempt(0, 0)
        orphan = prepared.parsed(keyed.prepared()[0])
        # psycopg is not ready for how PgBouncer ends a COPY
        with pytest.raises((EoKafkaError, ValueError)):
            attempt(1, 1, meanwhile=run)
        with pytest.raises(Fenced):
            attempt(1, 2)
        assert keyed.prepared() == []
        keyed.prepare(2)
        assert [prepared.parsed(one)[0] for one in keyed.prepared()] == [orphan[0]] * 2
        with monkeypatch.context() as dies, pytest.raises(KeyboardInterrupt):
            dies.setattr(PreparedTableRows, "apply", Mock(side_effect=KeyboardInterrupt))
            keyed.commit(2)
        monkeypatch.undo()
        assert keyed.there() == keyed.expected(0, 1)
        keyed.prepare(2)
        assert keyed.there() == keyed.expected(0, 1, 2)
        keyed.run(3)
        assert keyed.there() == keyed.expected(0, 1, 2, 3)
        assert keyed.prepared() == []
