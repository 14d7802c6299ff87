"""A table behind PgBouncer: with a session for each connection all is as without it, and where
transactions share sessions nothing is written."""

from __future__ import annotations

import json
import threading
from collections import Counter

import psycopg
import pytest

from eo_kafka.clients.postgres import client, pooling
from eo_kafka.errors import EnvironmentRefused, ReadTimeout
from eo_kafka.tools import cli
from pgbouncer import pgbouncer
from table_job import TableJob

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
