"""A replica that lags behind takes the server's place when a batch is DONE: what it has of the
batch is all there is of it, and is put in once. It has a crash-consistent copy of the server's
folder."""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections import Counter

import pytest

from eo_kafka.errors import LedgerError, WriteFailed
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.sinks.tables import writing
from eo_kafka.testing.processes import CrashPoints
from eo_kafka.tools import cli
from table_job import QUERY, TableJob, driver, job_of, new_table

FULL = pytest.mark.full
STAGED, PREPARED = {"commit": "staged"}, {"commit": "two-phase"}


class Lagging:
    """A job, its server, and what a replica has of it."""

    def __init__(self, server, servers: str, points: CrashPoints, folder) -> None:
        self.server, self.points, self.folder = server, points, folder
        self.servers = servers

    def job(self, **given: str) -> TableJob:
        url = self.server.url
        more = ", PRIMARY KEY (id)" if "keys" in given else ""
        return job_of(url, self.servers, new_table(url, more), **given)

    def keep(self) -> None:
        """What the replica has got so far."""
        self.server.kill()
        subprocess.run(["cp", "-a", str(self.server.data), str(self.folder)], check=True)
        self.server.start()

    def run(self, job: TableJob, batch: int, point: str) -> None:
        """The replica has got what was written up to a point of this batch, which is DONE."""
        self.points.arm(point, "wait")
        with driver(job, batch) as process:
            self.points.wait_reached(point)
            self.keep()
            self.points.release(point)
            _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said

    def promote(self) -> None:
        self.server.kill()
        shutil.rmtree(self.server.data)
        subprocess.run(["cp", "-a", str(self.folder), str(self.server.data)], check=True)
        (self.server.data / "postmaster.pid").unlink()
        self.server.start()


@pytest.fixture
def lagging(own_postgres, broker, crash_points, tmp_path) -> Lagging:
    return Lagging(own_postgres, broker.bootstrap_servers, crash_points, tmp_path / "replica")


@pytest.mark.parametrize(
    ("given", "point", "there"),
    [
        (STAGED, "S7.lanes_taken", "those of partitions [0, 1] (100) wait beside it"),
        ({**STAGED, "keys": "id"}, "S7.lanes_taken", "(100) wait beside it"),
        (PREPARED, "S7.lanes_taken", "those of partitions [0, 1] (100) wait beside it"),
        (PREPARED, "S7.in_commits", "(50) are in the table, and only its marker does not say so"),
        (
            PREPARED,
            "S7.in_table",
            "those of partitions [0, 1] (100) are in the table, and only its",
        ),
    ],
)
@pytest.mark.parametrize("fails", ["true", pytest.param("false", marks=FULL)])
def test_a_batch_that_is_all_there_is_finished_by_the_next_start(
    lagging, caplog, given, point, there, fails
) -> None:
    job = lagging.job(**given, failOnDataLoss=fails)
    job.run(0)
    lagging.run(job, 1, point)
    assert job.there() == job.expected(0, 1)
    lagging.promote()
    with caplog.at_level(logging.WARNING):
        job.prepare(2)
    assert there in caplog.text
    assert "the batch will be written" not in caplog.text
    assert job.there() == job.expected(0, 1)
    job.commit(2)
    job.run(3)
    assert job.there() == job.expected(0, 1, 2, 3)
    assert job.prepared() == []
    assert len(job.left()) <= 1


@pytest.mark.parametrize("given", [STAGED, PREPARED], ids=["staged", "two-phase"])
def test_it_is_finished_before_a_batch_that_is_decided(lagging, given) -> None:
    """And that one, of which nothing is left, runs again."""
    job = lagging.job(**given)
    job.run(0)
    lagging.run(job, 1, "S7.lanes_taken")
    lagging.points.arm("S6.after_decision", "kill")
    with driver(job, 2) as process:
        process.wait(120)
    lagging.promote()
    job.run(2, 3)
    assert job.there() == job.expected(0, 1, 2, 3)


@pytest.mark.parametrize("point", ["S7.lanes_taken", pytest.param("S7.in_commits", marks=FULL)])
def test_of_a_batch_that_is_there_in_part_the_rest_is_lost_once_that_is_accepted(
    lagging, point, caplog
) -> None:
    job = lagging.job(**PREPARED)
    job.run(0)
    lagging.run(job, 1, point)
    lagging.promote()
    lost = job.prepared()[-1]
    job.ask(f"ROLLBACK PREPARED '{lost}'")  # as if the replica had it not
    kept, before = job.prepared(), job.there()
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"\(50\) are neither.*delete nothing"):
            job.prepare(2)
        assert (job.prepared(), job.there()) == (kept, before)
    job.given["failOnDataLoss"] = "false"
    job.run(2)
    assert "by hand" not in caplog.text
    rest = Counter(row[:2] for row in job.rows(1, 0))
    assert job.there() == job.expected(0, 2) + rest
    del job.given["failOnDataLoss"]
    job.run(3)
    assert job.there() == job.expected(0, 2, 3) + rest


@pytest.mark.parametrize("given", [STAGED, PREPARED], ids=["staged", "two-phase"])
def test_what_waits_of_a_batch_before_others_that_are_lost_is_put_in(lagging, given) -> None:
    job = lagging.job(**given)
    job.run(0)
    lagging.run(job, 1, "S7.lanes_taken")
    job.run(2)
    lagging.promote()
    with pytest.raises(LedgerError, match=r"batch 1, .*wait beside it.* batch 2, .*are neither"):
        job.prepare(3)
    assert job.there() == job.expected(0)
    job.given["failOnDataLoss"] = "false"
    job.run(3)
    assert job.there() == job.expected(0, 1, 3)
    del job.given["failOnDataLoss"]
    job.run(4)
    assert job.there() == job.expected(0, 1, 3, 4)


def test_a_replica_whose_marks_somebody_removed_stops_the_query(lagging) -> None:
    job = lagging.job(**PREPARED)
    job.run(0)
    lagging.run(job, 1, "S7.in_table")
    lagging.promote()
    job.ask(f"TRUNCATE {job.given['table'].partition('.')[0]}.eo_kafka_prepared")
    with pytest.raises(LedgerError, match=r"batch 1, .*\(100\) are in the table, or lost"):
        job.prepare(2)
    job.given["failOnDataLoss"] = "false"
    job.run(2)
    assert job.there() == job.expected(0, 1, 2)


@pytest.mark.parametrize("given", [STAGED, PREPARED], ids=["staged", "two-phase"])
def test_commands_leave_it_where_it_is(lagging, given, tmp_path, capsys) -> None:
    job = lagging.job(**given)
    name = job.given["jobName"]
    job.run(0)
    lagging.run(job, 1, "S7.lanes_taken")
    lagging.promote()
    config = tmp_path / "table.properties"
    config.write_text(f"url={job.database}\ntable={job.given['table']}\n")

    def command(*words: str) -> tuple[int, str]:
        more = ["--table-config", str(config), "--bootstrap-servers", lagging.servers]
        code = cli.main([*words, "--job", name, *more])
        said = capsys.readouterr()
        return code, " ".join((said.out + said.err).split())

    there = (job.prepared(), job.left())
    code, said = command("txn", "list")
    assert code == 3
    assert "batch 1 DONE, not in the table" in said
    assert "start the query" in said
    code, said = command("txn", "abort", "--yes")
    assert code == 1
    assert "its rows would be lost: start the query" in said
    assert (job.prepared(), job.left()) == there
    _, said = command("doctor", "--json")
    assert "all there is of a batch" in said
    job.run(2)
    assert job.there() == job.expected(0, 1, 2)


def test_a_server_that_goes_after_the_look_at_the_start_takes_nothing_with_it(
    lagging, monkeypatch
) -> None:
    """The replica takes its place before what is left over is removed."""
    from eo_kafka.sinks.tables.target import StagedTable

    job = lagging.job(**PREPARED)
    job.run(0)
    lagging.run(job, 1, "S7.lanes_taken")
    make_room = StagedTable.make_room

    def promoted(*given) -> None:
        lagging.promote()
        make_room(*given)

    with monkeypatch.context() as patched:
        patched.setattr(StagedTable, "make_room", promoted)
        job.prepare(2)
    with pytest.raises(LedgerError, match="restored while the query ran"):
        job.commit(2)
    job.run(2, 3)
    assert job.there() == job.expected(0, 1, 2, 3)


def test_rows_of_a_batch_that_a_new_server_lacks_stay_staged_after_it_is_done(lagging) -> None:
    """It takes the old one's place between the commit of S7 and S8."""
    job, points = lagging.job(**STAGED), lagging.points
    job.run(0)
    points.arm("S7.lanes_taken", "wait")
    points.arm("S7.applied", "wait")
    with driver(job, 1) as process:
        points.wait_reached("S7.lanes_taken")
        lagging.keep()
        points.release("S7.lanes_taken")
        points.wait_reached("S7.applied")
        lagging.promote()
        points.release("S7.applied")
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert job.there() == job.expected(0)
    job.run(2)
    assert job.there() == job.expected(0, 1, 2)
    assert job.left() == []


@pytest.mark.parametrize("batch", [0, 1])
@pytest.mark.parametrize("given", [STAGED, PREPARED], ids=["staged", "two-phase"])
def test_a_replica_that_lacks_what_a_start_has_made_has_the_batch_run_again(
    lagging, given, batch
) -> None:
    """Nobody has taken over: a supervisor would wait for a newer driver that does not come."""
    job = lagging.job(**given)
    job.run(*range(batch))
    lagging.keep()
    options, target = job.read()
    plan = make_plan(options)
    lagging.promote()
    rows = iter([job._batch(job.rows(batch, 0), "")])
    with pytest.raises(WriteFailed, match=r"no newer driver is seen.*Start the query again"):
        writing.write(options, target, plan, TaskIdentity(QUERY, batch, 0, 0), rows)
    job.run(batch)
    assert job.there() == job.expected(*range(batch + 1))
