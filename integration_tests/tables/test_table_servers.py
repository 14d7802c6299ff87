"""A server of PostgreSQL whose disk runs full, and one whose place a replica takes that lacks the
newest commits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from big_table_job import BigJob
from eo_kafka.broker.postgres import Postgres
from eo_kafka.errors import LedgerError
from eo_kafka.testing.processes import wait_until
from table_job import driver, job_of, new_table

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="a tmpfs, and PostgreSQL's programs"),
]


def moved_to(server: Postgres, folder: Path) -> None:
    """Have the data of a server that is stopped elsewhere, behind a link."""
    owner = server.data.stat()
    shutil.copytree(server.data, folder, dirs_exist_ok=True)
    shutil.rmtree(server.data)
    server.data.symlink_to(folder)
    for path in [folder, *folder.rglob("*")]:
        os.chown(path, owner.st_uid, owner.st_gid)
    folder.chmod(0o700)


@contextmanager
def small_disk(own_postgres: Postgres) -> Iterator[Path]:
    """A file system of 160 MB that holds all data of the server."""
    with tempfile.TemporaryDirectory(prefix="eo-kafka-disk-") as folder:
        Path(folder).chmod(0o755)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=160m", "tmpfs", folder],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
        try:
            own_postgres.stop()
            moved_to(own_postgres, Path(folder) / "data")
            own_postgres.start()
            yield Path(folder)
        finally:
            own_postgres.kill()
            own_postgres.data.unlink()
            subprocess.run(["umount", "-l", folder], check=True)


def fill(disk: Path) -> Path:
    """Take all that is free there."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as taken:
        try:
            while True:
                taken.write(bytes(1 << 14))
        except OSError:
            pass
    return filler


@pytest.fixture
def big(own_postgres, broker) -> BigJob:
    url = own_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url))
    return BigJob(job.given, job.database)


def alive(server: Postgres) -> None:
    """Start it again if it has ended: with no room for its log PostgreSQL does."""
    try:
        psycopg.connect(server.url, connect_timeout=5).close()
    except psycopg.OperationalError:
        server.kill()
        server.start()


@pytest.mark.parametrize("commit", ["staged", "two-phase"])
def test_a_disk_that_fills_while_tasks_write(big, own_postgres, commit) -> None:
    big.given["commit"] = commit
    with small_disk(own_postgres) as disk:
        big.run(0)
        filler = fill(disk)
        with pytest.raises(
            Exception, match=r"(?i)no space left|No session|cannot do that now"
        ) as told:
            big.prepare(1)
        assert "Traceback" not in str(told.value)
        filler.unlink()
        alive(own_postgres)
        assert big.there() == big.expected(0)
        big.run(1, 2)
        assert big.there() == big.expected(0, 1, 2)
        assert big.left() == big.prepared() == []


def test_a_disk_that_fills_after_the_decision(big, own_postgres, crash_points) -> None:
    with small_disk(own_postgres) as disk:
        big.run(0)
        crash_points.arm("S6.after_decision", "wait")
        with driver(big, 1) as process:
            crash_points.wait_reached("S6.after_decision")
            filler = fill(disk)
            crash_points.release("S6.after_decision")
            wait_until(lambda: had_no_room(own_postgres), "PostgreSQL has no room", timeout=20)
            filler.unlink()
            alive(own_postgres)
            _, said = process.communicate(timeout=80)
        assert process.returncode == 0, said  # it has looked, and applied it
        big.run(2)
        assert big.there() == big.expected(0, 1, 2)
        assert big.left() == []


def had_no_room(server: Postgres) -> bool:
    """Whether its log says so."""
    return "No space left on device" in (server.data.parent / "log").read_text()


@pytest.fixture
def replica(own_postgres) -> Iterator[Postgres]:
    """A standby of `own_postgres` that streams from it, asynchronously."""
    with Postgres() as standby:
        standby.stop()
        own_postgres.stop()
        shutil.rmtree(standby.data)
        shutil.copytree(own_postgres.data, standby.data)
        (standby.data / "standby.signal").touch()
        owner = standby.data.parent.stat()
        with (standby.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{own_postgres.url}'\n")
        for path in [standby.data, *standby.data.rglob("*")]:
            os.chown(path, owner.st_uid, owner.st_gid)
        own_postgres.start()
        yield standby


def test_a_replica_that_lacks_an_applied_batch_is_refused_when_it_is_promoted(
    own_postgres, replica, broker
) -> None:
    url = own_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url))
    started(replica)
    job.run(0)
    count = f"SELECT count(*) FROM {job.given['table']}"
    wait_until(lambda: asked(replica, count) == 100, "the replica has batch 0", timeout=30)
    replica.stop()
    job.run(1)  # acknowledged, and only there
    own_postgres.kill()
    started(replica)
    assert asked(replica, "SELECT pg_promote()")
    job.given["url"] = job.database = replica.url
    with pytest.raises(LedgerError, match=r"shows batch 0 .* the ledger has batch 1 ") as told:
        job.prepare(2)
    assert "failOnDataLoss" in str(told.value)  # what to do
    assert job.there() == job.expected(0)  # nothing was written over the gap
    job.given["failOnDataLoss"] = "false"
    job.run(2)
    assert job.there() == job.expected(0, 2)  # as it was accepted


def test_a_replica_that_lacks_a_prepared_transaction_of_a_decided_batch(
    own_postgres, replica, broker, crash_points
) -> None:
    """It knows neither the transaction nor its mark: the batch is written again, and told."""
    url = own_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url), commit="two-phase")
    started(replica)
    job.run(0)
    count = f"SELECT count(*) FROM {job.given['table']}"
    wait_until(lambda: asked(replica, count) == 100, "the replica has batch 0", timeout=30)
    replica.stop()
    job.given["url"] = both_of(own_postgres, replica)
    crash_points.arm("S6.after_decision", "wait")
    with driver(job, 1) as process:
        crash_points.wait_reached("S6.after_decision")
        assert len(job.prepared()) == 2  # only there
        own_postgres.kill()
        started(replica)
        assert asked(replica, "SELECT pg_promote()")
        crash_points.release("S6.after_decision")
        _, said = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "ParticipantsLost" in said
    assert "Batch 1 was decided" in said
    assert "partitions [0, 1] (100 rows)" in said
    job.database = replica.url
    assert job.there() == job.expected(0)
    job.run(1, 2)
    assert job.there() == job.expected(0, 1, 2)


def test_a_replica_that_lacks_rows_of_a_batch_that_is_being_applied(
    own_postgres, replica, broker, crash_points
) -> None:
    """They were there when S7 looked: on the replica it looks again, and nothing is applied."""
    table = new_table(own_postgres.url, ", PRIMARY KEY (id)")
    job = job_of(own_postgres.url, broker.bootstrap_servers, table, keys="id")
    started(replica)
    job.run(0)
    job.given["url"] = both_of(own_postgres, replica)
    crash_points.arm("S5.prepared", "wait")
    with driver(job, 1) as process:
        crash_points.wait_reached("S5.prepared")  # by task 0
        staged = f"SELECT count(*) FROM {table.partition('.')[0]}.{job.left()[0]}"
        wait_until(lambda: asked(replica, staged) == 50, "the replica has its rows", timeout=30)
        replica.stop()
        crash_points.arm("S7.in_table", "wait")
        crash_points.release("S5.prepared")
        crash_points.wait_reached("S7.in_table")
        own_postgres.kill()
        started(replica)
        assert asked(replica, "SELECT pg_promote()")
        crash_points.release("S7.in_table")
        _, said = process.communicate(timeout=120)
    job.database = replica.url
    assert process.returncode != 0
    assert "LedgerError" in said
    assert "partitions [1] " in said
    assert job.there() == job.expected(0)
    job.run(1)
    assert job.there() == job.expected(0, 1)


def both_of(primary: Postgres, standby: Postgres) -> str:
    """libpq tries one server after the other, as a job does that knows of both."""
    hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
    return f"postgresql://postgres@{hosts}/postgres"


def started(standby: Postgres) -> None:
    """A standby says another sentence once it takes statements."""
    standby._process = standby._begun()
    wait_until(lambda: asked(standby, "SELECT 1") == 1, "the standby answers", timeout=30)


def asked(server: Postgres, statement: str) -> object:
    try:
        with psycopg.connect(server.url, autocommit=True) as connection:
            found = connection.execute(statement).fetchone()
            return found[0] if found else None
    except psycopg.Error:
        return None
