"""`eo-postgres` into a table: invisible before the decision, whole after it, once, whoever is
killed or paused, and whatever becomes of the answer."""

from __future__ import annotations

from collections import Counter
from threading import Timer

import pytest

from eo_kafka.clients.postgres.client import connected
from eo_kafka.errors import Fenced, RepairNeeded, SinkError, Undecided
from eo_kafka.sinks.protocol import committer
from table_job import CuttingProxy, TableJob, driver, job_of, kill_at, new_table, overtaken

FULL = pytest.mark.full
KEYED = {"keys": "id", "operationColumn": "op"}


@pytest.fixture
def keyed_job(eo_postgres, broker) -> TableJob:
    """A job that replaces and deletes."""
    url = eo_postgres.url
    table = new_table(url, ", PRIMARY KEY (id)")
    return job_of(url, broker.bootstrap_servers, table, **KEYED)


@pytest.mark.smoke
def test_a_batch_is_invisible_until_its_decision_and_then_whole(table_job) -> None:
    table_job.prepare(0)
    assert table_job.there() == Counter()
    assert len(table_job.left()) == 1
    table_job.commit(0)
    assert table_job.there() == table_job.expected(0)
    assert table_job.left() == []
    table_job.run(1, 2)
    assert table_job.there() == table_job.expected(0, 1, 2)
    assert table_job.left() == []


def test_rows_take_the_place_of_those_with_their_key_or_delete_them(keyed_job) -> None:
    keyed_job.run(0, 1, 2)
    assert keyed_job.there() == keyed_job.expected(0, 1, 2)
    assert sum(keyed_job.there().values()) == 90  # of 100, five of each task are gone


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("postgres.while_staging", marks=FULL),
        pytest.param("S5.prepared", marks=FULL),
        "S6.before_decision",
        "S6.after_decision",
        pytest.param("S7.lanes_taken", marks=FULL),
        "S7.in_table",
        "S7.applied",
        pytest.param("S8.after_done", marks=FULL),
    ],
)
@pytest.mark.parametrize("kind", ["append", pytest.param("keys", marks=FULL)])
def test_a_driver_that_is_killed_leaves_each_batch_to_be_applied_once(
    table_job, keyed_job, crash_points, kind, point
) -> None:
    job = table_job if kind == "append" else keyed_job
    job.run(0)
    kill_at(job, crash_points, point, 1)
    if point not in ("S7.applied", "S8.after_done"):
        assert job.there() == job.expected(0)
    job.run(1, 2)
    assert job.there() == job.expected(0, 1, 2)
    assert job.left() == []


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S6.before_decision", marks=FULL),
        "S6.after_decision",
        pytest.param("S7.lanes_taken", marks=FULL),
        pytest.param("S7.in_table", marks=FULL),  # the server ends its transaction after 15 seconds
        pytest.param("S7.applied", marks=FULL),
    ],
)
def test_a_driver_that_was_paused_changes_nothing_when_it_goes_on(
    table_job, crash_points, point
) -> None:
    said = overtaken(table_job, crash_points, point)
    assert "Fenced" in said


def test_a_lost_answer_to_commit_is_looked_up_and_nothing_is_written_twice(table_job) -> None:
    url = table_job.given["url"]
    port = int(url.rpartition(":")[2].partition("/")[0])
    table_job.run(0)
    proxy = CuttingProxy(port, b"COMMIT", after=1)  # the first one only shuts out older drivers
    table_job.given["url"] = url.replace(f":{port}/", f":{proxy.port}/")
    table_job.prepare(1)
    assert proxy.left == 1
    table_job.commit(1)
    proxy.close()
    assert proxy.cuts == 1
    assert table_job.there() == table_job.expected(0, 1)


@pytest.mark.parametrize("point", ["S7.in_table", pytest.param("S6.after_decision", marks=FULL)])
def test_a_server_that_is_killed_in_the_middle_of_a_batch_has_it_once(
    own_postgres, broker, crash_points, point
) -> None:
    url = own_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url))
    job.run(0)
    crash_points.arm(point, "wait")
    with driver(job, 1) as process:
        crash_points.wait_reached(point)
        own_postgres.kill()
        crash_points.release(point)
        own_postgres.start()
        assert process.wait(120) == 0  # it has looked, and applied it
    assert job.there() == job.expected(0, 1)
    job.prepare(2)
    own_postgres.kill()  # what is staged is logged
    own_postgres.start()
    job.commit(2)
    assert job.there() == job.expected(0, 1, 2)


def test_a_server_that_goes_between_two_batches_is_waited_for(own_postgres, broker) -> None:
    url = own_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url))
    job.run(0)
    own_postgres.stop()
    back = Timer(3.0, own_postgres.start)
    back.start()
    try:
        job.run(1)
    finally:
        back.join()
    assert job.there() == job.expected(0, 1)


def test_what_nothing_decided_is_removed(table_job) -> None:
    table_job.prepare(0)
    committer.abort(table_job.options, table_job.reports)
    assert table_job.left() == []
    table_job.prepare(0)  # and its driver dies
    left = table_job.left()
    table_job.prepare(0, attempt=7)
    assert len(table_job.left()) == 1
    assert table_job.left() != left
    schema = table_job.given["table"].partition(".")[0]
    table_job.ask(f"DELETE FROM {schema}.{table_job.left()[0]} WHERE id = 3")
    with pytest.raises(Undecided, match=r"rows of partitions \[0\] that were staged"):
        table_job.commit(0)
    assert table_job.there() == Counter()
    table_job.run(0)
    assert table_job.there() == table_job.expected(0)


def test_a_batch_that_the_table_refuses_stays_decided_until_the_table_takes_it(table_job) -> None:
    table = table_job.given["table"]
    table_job.run(0)
    table_job.prepare(1)  # staged rows are not looked at again
    table_job.ask(f"ALTER TABLE {table} ADD CONSTRAINT few CHECK (id < 10000)")
    with pytest.raises(RepairNeeded, match=r"Batch 1 of job .* does not take it: .*\"few\""):
        table_job.commit(1)
    with pytest.raises(RepairNeeded, match="Batch 1"):
        table_job.prepare(1)
    assert table_job.there() == table_job.expected(0)
    table_job.ask(f"ALTER TABLE {table} DROP CONSTRAINT few")
    table_job.run(1, 2)
    assert table_job.there() == table_job.expected(0, 1, 2)


def test_a_key_in_two_tasks_and_a_key_that_is_null_are_refused(keyed_job, monkeypatch) -> None:
    monkeypatch.setattr(TableJob, "rows", lambda self, batch, part: [(1, f"{part}", "upsert")])
    keyed_job.prepare(0)
    with pytest.raises(SinkError, match=r"rows of one key \(id=1\) in several tasks"):
        keyed_job.commit(0)
    monkeypatch.setattr(TableJob, "rows", lambda self, batch, part: [(None, "a", "upsert")])
    with pytest.raises(SinkError, match="key column 'id'"):
        keyed_job.prepare(0)
    monkeypatch.setattr(TableJob, "rows", lambda self, batch, part: [(part, "a", "merge")])
    with pytest.raises(SinkError, match="is 'merge'"):
        keyed_job.prepare(0)
    one_key = [(7, "first", "upsert"), (7, "last", "upsert")]
    monkeypatch.setattr(TableJob, "rows", lambda self, batch, part: [] if part else one_key)
    keyed_job.run(0)
    assert keyed_job.there() == Counter({(7, "last"): 1})


def test_an_older_task_finds_its_staging_table_gone(table_job) -> None:
    from eo_kafka.sinks.protocol.recovery import make_plan
    from eo_kafka.sinks.protocol.two_phase import TaskIdentity
    from eo_kafka.sinks.tables import writing
    from eo_kafka.sinks.tables.options import read_table
    from table_job import QUERY

    options, target = read_table(table_job.given, table_job.columns)
    plan = make_plan(options)
    table_job.prepare(0, attempt=5)
    rows = table_job._batch(table_job.rows(0, 0), "")
    for then in (lambda: table_job.commit(0), lambda: None):  # then only the marker is newer
        with pytest.raises(Fenced, match="another driver has taken over"):
            writing.write(options, target, plan, TaskIdentity(QUERY, 0, 0, 0), iter([rows]))
        then()


def test_settings_of_the_role_neither_weaken_a_commit_nor_end_a_batch(table_job) -> None:
    table = table_job.given["table"]
    schema = table.partition(".")[0]
    table_job.ask(
        f"CREATE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN PERFORM pg_sleep(0.4); RETURN NULL; END$$"
    )
    table_job.ask(
        f"CREATE TRIGGER slow AFTER INSERT ON {table} FOR EACH STATEMENT "
        f"EXECUTE FUNCTION {schema}.slow()"
    )
    settings = "-c%20synchronous_commit%3Doff%20-c%20statement_timeout%3D200"
    table_job.given["url"] += f"?options={settings}"
    with connected(table_job.options.staging.postgres) as connection:
        found = connection.execute("SELECT current_setting('synchronous_commit')").fetchone()
    assert found == ("on",)
    table_job.run(0)
    assert table_job.there() == table_job.expected(0)
