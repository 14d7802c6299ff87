"""`eo-postgres` with `commit=two-phase`: prepared transactions are committed once, if they are
decided, and otherwise go, whoever is killed or paused, and whatever becomes of the answer."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from both_places import abort, in_both, kill_at_and_abort
from eo_kafka.errors import (
    EnvironmentRefused,
    EoKafkaError,
    Fenced,
    OptionsError,
    ParticipantsLost,
    RepairNeeded,
    SinkError,
    Undecided,
    WriteFailed,
)
from eo_kafka.sinks.protocol import committer
from eo_kafka.sinks.protocol.recovery import make_plan
from eo_kafka.sinks.protocol.two_phase import TaskIdentity
from eo_kafka.sinks.tables import preparing, writing
from eo_kafka.testing.processes import wait_until
from table_job import QUERY, CuttingProxy, TableJob, driver, job_of, kill_at, new_table, overtaken

FULL = pytest.mark.full
TWO_PHASE = {"commit": "two-phase"}
KEYED = {"keys": "id", **TWO_PHASE}


@pytest.fixture
def job(eo_postgres, broker) -> TableJob:
    """A job that appends."""
    url = eo_postgres.url
    return job_of(url, broker.bootstrap_servers, new_table(url), **TWO_PHASE)


@pytest.fixture
def keyed(eo_postgres, broker) -> TableJob:
    """A job that replaces."""
    url = eo_postgres.url
    table = new_table(url, ", PRIMARY KEY (id)")
    return job_of(url, broker.bootstrap_servers, table, **KEYED)


@pytest.fixture
def both(eo_postgres, broker, make_topic) -> TableJob:
    """A job that writes a table and a topic."""
    url, topic = eo_postgres.url, make_topic("prepared", partitions=2)
    return job_of(url, broker.bootstrap_servers, new_table(url), topic=topic, **TWO_PHASE)


def attempt(
    job: TableJob, plan: object, batch: int, partition: int, number: int, follows: bool = False
):
    """One attempt of a task."""
    options, target = job.read()
    rows = iter([job._batch(job.rows(batch, partition), "")])
    task = TaskIdentity(QUERY, batch, partition, number, follows=follows)
    return writing.write(options, target, plan, task, rows)


@pytest.mark.smoke
def test_a_batch_waits_in_prepared_transactions_and_comes_out_of_them_by_its_decision(job) -> None:
    job.prepare(0)
    assert job.there() == Counter()
    names = job.prepared()
    assert len(names) == 2
    assert all(len(name) < 200 for name in names)
    assert job.left() == []  # no staging table
    job.commit(0)
    assert job.there() == job.expected(0)
    assert job.prepared() == []
    job.run(1, 2)
    assert job.there() == job.expected(0, 1, 2)
    schema = job.given["table"].partition(".")[0]
    kept = job.ask(f"SELECT name FROM {schema}.eo_kafka_prepared WHERE name NOT LIKE '%_kept'")
    assert kept == []  # no mark outlives its batch


def test_rows_take_the_place_of_those_with_their_key(keyed) -> None:
    keyed.run(0, 1, 2)
    assert keyed.there() == keyed.expected(0, 1, 2)
    assert sum(keyed.there().values()) == 100


@pytest.mark.parametrize(
    "point",
    [
        "postgres.before_prepare",
        "postgres.prepared",
        pytest.param("S5.prepared", marks=FULL),
        pytest.param("S6.before_decision", marks=FULL),
        "S6.after_decision",
        pytest.param("S7.lanes_taken", marks=FULL),
        "S7.in_commits",
        "S7.in_table",
        pytest.param("S7.applied", marks=FULL),
        pytest.param("S8.after_done", marks=FULL),
    ],
)
@pytest.mark.parametrize("kind", ["keys", pytest.param("append", marks=FULL)])
def test_a_driver_that_is_killed_leaves_each_batch_to_be_committed_once(
    job, keyed, crash_points, kind, point
) -> None:
    written = job if kind == "append" else keyed
    written.run(0)
    kill_at(written, crash_points, point, 1)
    if point == "S7.in_commits":  # a reader may see one partition before the other
        assert written.there() not in (written.expected(0), written.expected(0, 1))
    elif point not in ("S7.in_table", "S7.applied", "S8.after_done"):
        assert written.there() == written.expected(0)
    written.run(1, 2)
    assert written.there() == written.expected(0, 1, 2)
    assert written.prepared() == []


@pytest.mark.parametrize(
    "point",
    [
        "postgres.before_prepare",  # its rows are locked: it must not hold up the next batch
        pytest.param("postgres.prepared", marks=FULL),
        pytest.param("S6.before_decision", marks=FULL),
        pytest.param("S6.after_decision", marks=FULL),
        "S7.in_commits",
        pytest.param("S7.in_table", marks=FULL),
        pytest.param("S7.applied", marks=FULL),
    ],
)
def test_a_driver_that_was_paused_changes_nothing_when_it_goes_on(
    keyed, crash_points, point
) -> None:
    said = overtaken(keyed, crash_points, point)
    assert "Fenced" in said or "WriteFailed" in said
    assert keyed.prepared() == []


def test_a_task_of_an_older_driver_is_refused(job) -> None:
    plan = make_plan(job.options)
    job.run(0)
    with pytest.raises(Fenced, match="Nothing of this attempt is visible"):
        attempt(job, plan, 0, 0, 9)
    assert job.prepared() == []


def test_what_a_lost_attempt_prepared_is_out_of_the_way_of_the_next(keyed, monkeypatch) -> None:
    monkeypatch.setattr(preparing, "SIBLING_WAIT_S", 0.5)
    plan = make_plan(keyed.options)
    attempt(keyed, plan, 0, 0, 0)  # its executor is lost with its report
    keyed.reports = [attempt(keyed, plan, 0, 0, 1, follows=True), attempt(keyed, plan, 0, 1, 2)]
    assert len(keyed.prepared()) == 2
    keyed.commit(0)
    assert keyed.there() == keyed.expected(0)


def test_a_stage_that_runs_again_leaves_what_was_reported_before(job, keyed, monkeypatch) -> None:
    """Spark takes the report of an attempt of the stage's first run, and ends none of the second:
    there, attempt 0 is another one."""
    monkeypatch.setattr(preparing, "SIBLING_WAIT_S", 0.5)
    monkeypatch.setattr(preparing, "_BEGIN", preparing._BEGIN.replace("'20s'", "'500ms'"))
    for one, is_locked in ((job, False), (keyed, True)):
        plan = make_plan(one.options)
        one.reports = [attempt(one, plan, 0, 0, 0)]
        if is_locked:
            with pytest.raises(WriteFailed, match="another transaction has"):
                attempt(one, plan, 0, 0, 1)
        else:
            attempt(one, plan, 0, 0, 1)
        one.reports.append(attempt(one, plan, 0, 1, 2))
        one.commit(0)
        assert one.there() == one.expected(0)
        assert one.prepared() == []


def test_an_attempt_that_lost_is_ended_with_the_batch(job) -> None:
    plan = make_plan(job.options)
    options, target = job.read()
    late = iter([job._batch(job.rows(0, 0), "")])
    name = TaskIdentity(QUERY, 0, 0, 5)

    def slow():
        yield next(late)
        job.reports = [attempt(job, plan, 0, part, part) for part in (0, 1)]
        committer.commit(options, job.reports, 0)  # ends this session before it decides

    with pytest.raises(EoKafkaError):
        writing.write(options, target, plan, name, slow())
    assert job.there() == job.expected(0)
    assert job.prepared() == []


def test_a_key_in_two_tasks_is_told_and_nothing_hangs(keyed, monkeypatch) -> None:
    monkeypatch.setattr(preparing, "_BEGIN", preparing._BEGIN.replace("'20s'", "'500ms'"))
    monkeypatch.setattr(TableJob, "rows", lambda self, batch, part: [(1, f"{part}", "upsert")])
    with pytest.raises(EoKafkaError, match=r"rows of one key.*repartition\('id'\)"):
        keyed.prepare(0)
    monkeypatch.undo()
    keyed.run(0)
    assert keyed.there() == keyed.expected(0)


def test_a_deadlock_with_another_program_fails_the_task_and_not_the_batch(keyed) -> None:
    keyed.run(0)
    table = keyed.given["table"]
    with (
        psycopg.connect(keyed.database) as other,
        ThreadPoolExecutor() as pool,
    ):
        other.execute("SET deadlock_timeout = '30s'")  # it is the task that finds it
        other.execute(f"UPDATE {table} SET word = 'mine' WHERE id = 5")
        plan = make_plan(keyed.options)
        task = pool.submit(attempt, keyed, plan, 1, 0, 0)
        waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
        wait_until(lambda: keyed.ask(waits) != [], "the task waits", timeout=20)
        other.execute(f"UPDATE {table} SET word = 'mine' WHERE id = 0")  # which the task has
        with pytest.raises(WriteFailed, match="deadlock detected"):
            task.result(60)
        other.rollback()
    keyed.reports = [attempt(keyed, plan, 1, part, 2 + part) for part in (0, 1)]
    keyed.commit(1)
    assert keyed.there() == keyed.expected(0, 1)


@pytest.mark.parametrize("answer", ["COMMIT PREPARED", pytest.param("COMMIT", marks=FULL)])
def test_a_lost_answer_is_looked_up_and_nothing_is_written_twice(job, answer) -> None:
    url = job.given["url"]
    port = int(url.rpartition(":")[2].partition("/")[0])
    job.run(0)
    proxy = CuttingProxy(port, answer.encode(), after=1)
    job.prepare(1)
    job.given["url"] = url.replace(f":{port}/", f":{proxy.port}/")
    job.commit(1)
    proxy.close()
    assert proxy.cuts == 1
    assert job.there() == job.expected(0, 1)
    job.given["url"] = url
    job.run(2)
    assert job.there() == job.expected(0, 1, 2)


@pytest.mark.parametrize("point", ["S7.in_commits", pytest.param("S6.after_decision", marks=FULL)])
def test_a_server_that_is_killed_between_the_phases_keeps_what_is_prepared(
    own_postgres, broker, crash_points, point
) -> None:
    url = own_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url), **TWO_PHASE)
    job.run(0)
    crash_points.arm(point, "wait")
    with driver(job, 1) as process:
        crash_points.wait_reached(point)
        own_postgres.kill()
        crash_points.release(point)
        own_postgres.start()
        assert process.wait(120) == 0
    assert job.there() == job.expected(0, 1)
    job.prepare(2)
    own_postgres.kill()
    own_postgres.start()
    job.commit(2)
    assert job.there() == job.expected(0, 1, 2)


def test_a_server_that_is_killed_just_after_a_task_failed_starts_again(own_postgres, broker):
    """PostgreSQL 17.5 does not, if the task's transaction has made an unlogged table."""
    url = own_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url, ", PRIMARY KEY (id)"), **KEYED)
    job.run(0)
    plan = make_plan(job.options)
    options, target = job.read()

    def failing():
        yield job._batch(job.rows(1, 0), "")
        job.ask("CREATE TABLE flushed (id int)")  # all that stands before it in the log is, too
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writing.write(options, target, plan, TaskIdentity(QUERY, 1, 0, 0), failing())
    waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'ClientRead' AND state = 'active'"
    wait_until(lambda: job.ask(waits) == [], "it is rolled back", timeout=10)
    own_postgres.kill()
    own_postgres.start()
    job.run(1)
    assert job.there() == job.expected(0, 1)


def test_a_server_without_room_for_prepared_transactions_is_told(own_postgres, broker) -> None:
    url = own_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url), **TWO_PHASE)
    own_postgres.stop()
    own_postgres.prepared = 0
    own_postgres.start()
    with pytest.raises(OptionsError, match="max_prepared_transactions = 0, its default"):
        job.prepare(0)
    own_postgres.stop()
    own_postgres.prepared = 1
    own_postgres.start()
    with pytest.raises(EnvironmentRefused, match="max_prepared_transactions is 1.*twice"):
        job.prepare(0)
    assert job.there() == Counter()


@pytest.mark.parametrize(
    "made",
    [
        "ADD CONSTRAINT few CHECK (id < 10000)",
        "ADD CONSTRAINT one UNIQUE (id, word) DEFERRABLE INITIALLY DEFERRED",
    ],
)
def test_what_the_table_refuses_is_told_before_the_decision(job, made, monkeypatch) -> None:
    job.run(0)
    job.ask(f"ALTER TABLE {job.given['table']} {made}")
    if "word" in made:
        monkeypatch.setattr(TableJob, "rows", lambda self, b, p: [(b, f"{p}", ""), (b, f"{p}", "")])
    with pytest.raises(SinkError, match=r"does not take a row.*(few|one)"):
        job.prepare(1)
    assert job.prepared() == []


def test_a_trigger_that_notifies_cannot_be_prepared(job) -> None:
    table = job.given["table"]
    schema = table.partition(".")[0]
    job.ask(
        f"CREATE FUNCTION {schema}.tell() RETURNS trigger LANGUAGE plpgsql AS "
        "$$BEGIN NOTIFY written; RETURN NULL; END$$"
    )
    job.ask(f"CREATE TRIGGER tell AFTER INSERT ON {table} EXECUTE FUNCTION {schema}.tell()")
    with pytest.raises(SinkError, match="NOTIFY.*'commit' 'staged'"):
        job.prepare(0)
    assert job.prepared() == []


def test_a_value_that_the_column_would_cut_is_refused_and_a_rule_is_followed(job) -> None:
    table = job.given["table"]
    job.ask(f"CREATE RULE quiet AS ON INSERT TO {table} WHERE NEW.id = 3 DO INSTEAD NOTHING")
    job.run(0)
    assert job.there() == job.expected(0) - Counter(
        [row[:2] for row in job.rows(0, 0) if row[0] == 3]
    )
    job.ask(f"ALTER TABLE {table} ALTER word TYPE varchar(12)")
    job.run(1)
    with pytest.raises(SinkError, match="a column would cut"):
        job.prepare(2, other="        ")


def test_nobody_elses_transaction_is_touched(job) -> None:
    """Another job's of the same table, another database's, and one that only looks like ours."""
    table = job.given["table"]
    other = job_of(job.database, job.given["kafka.bootstrap.servers"], table, **TWO_PHASE)
    other.prepare(0)
    with psycopg.connect(job.database, autocommit=True) as connection:
        connection.execute("BEGIN")
        connection.execute(f"LOCK TABLE {table} IN ACCESS SHARE MODE")
        connection.execute(f"PREPARE TRANSACTION 'eo_kafka_prepared_{table}_1_0_0'")
    before = job.prepared()
    assert len(before) == 3
    job.run(0, 1)
    assert job.prepared() == before
    job.ask(f"ROLLBACK PREPARED 'eo_kafka_prepared_{table}_1_0_0'")
    other.commit(0)
    assert job.prepared() == []
    assert job.there() == job.expected(0, 1) + other.expected(0)


def test_what_nothing_decided_is_rolled_back(job) -> None:
    job.prepare(0)
    committer.abort(job.options, job.reports)
    assert job.prepared() == []
    job.prepare(0)  # and its driver dies
    left = job.prepared()
    job.prepare(0, attempt=7)
    assert not set(job.prepared()) & set(left)
    job.ask(f"ROLLBACK PREPARED '{job.prepared()[0]}'")
    with pytest.raises(Undecided, match=r"rows of partitions \[0\]"):
        job.commit(0)
    job.run(0)
    assert job.there() == job.expected(0)


@pytest.mark.parametrize("committed", [True, False])
def test_a_decided_transaction_that_somebody_rolled_back_is_written_again(
    job, crash_points, committed
) -> None:
    """As after a failover to a replica that lacks it. Nothing goes on in silence: a driver that
    meets it stops; the next start writes what is missing, and only that."""
    job.run(0)
    crash_points.arm("S6.after_decision", "wait")
    with driver(job, 1) as process:
        crash_points.wait_reached("S6.after_decision")
        first, second = job.prepared()
        if committed:  # by hand: whoever does so decides nothing
            job.ask(f"COMMIT PREPARED '{first}'")
        job.ask(f"ROLLBACK PREPARED '{second}'")
        crash_points.release("S6.after_decision")
        _, said = process.communicate(timeout=60)
    assert process.returncode != 0
    assert ParticipantsLost.__name__ in said
    assert "Batch 1 was decided" in said
    job.prepare(1)
    assert job.there() == (
        job.expected(0) + Counter(r[:2] for r in job.rows(1, 0)) if committed else job.expected(0)
    )
    job.commit(1)
    job.run(2)
    assert job.there() == job.expected(0, 1, 2)


@pytest.mark.parametrize("given", [{}, {"keys": "id"}], ids=["appended", "keyed"])
def test_a_start_that_writes_a_void_batch_again_rolls_back_what_is_left_of_it(
    eo_postgres, broker, crash_points, given
) -> None:
    """Else the rest holds the keys of the rows that are to be written again."""
    url = eo_postgres.url
    table = new_table(url, ", PRIMARY KEY (id)")
    job = job_of(url, broker.bootstrap_servers, table, commit="two-phase", **given)
    job.run(0)
    kill_at(job, crash_points, "S6.after_decision", 1)
    first, second = job.prepared()
    job.ask(f"ROLLBACK PREPARED '{first}'")
    job.prepare(1)
    assert second not in job.prepared()
    job.commit(1)
    assert job.there() == job.expected(0, 1)
    assert job.prepared() == []


@pytest.mark.parametrize("first", ["two-phase", "staged"])
def test_the_option_may_be_changed_while_a_batch_is_decided(job, crash_points, first) -> None:
    job.given["commit"] = first
    job.run(0)
    kill_at(job, crash_points, "S6.after_decision", 1)
    job.given["commit"] = "staged" if first == "two-phase" else "two-phase"
    job.run(1, 2)
    assert job.there() == job.expected(0, 1, 2)
    assert job.prepared() == job.left() == []


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("postgres.prepared", marks=FULL),
        pytest.param("S6.after_decision", marks=FULL),
        pytest.param("S7.after_first_end_txn", marks=FULL),
        "S7.in_commits",
        pytest.param("S7.in_table", marks=FULL),
    ],
)
def test_topic_and_table_have_the_same_rows_whoever_dies(both, crash_points, point) -> None:
    both.run(0)
    kill_at(both, crash_points, point, 1)
    both.run(1, 2)
    assert both.there() == in_both(both) == both.expected(0, 1, 2)
    assert both.prepared() == []


@pytest.mark.parametrize("aborted", [pytest.param({0, 1}, marks=FULL), {1}])
def test_what_kafka_aborted_is_not_in_the_table_and_comes_back_in_both(
    both, crash_points, aborted
) -> None:
    kill_at_and_abort(both, crash_points, aborted)
    assert both.prepared() == []


def test_what_somebody_commits_that_nothing_decided_is_told(job) -> None:
    job.run(0)
    job.prepare(1)  # and its driver dies
    stray = job.prepared()[0]
    job.ask(f"COMMIT PREPARED '{stray}'")
    with pytest.raises(RepairNeeded, match=r"committed by hand.* 50 rows are in table"):
        job.prepare(1)
    schema = job.given["table"].partition(".")[0]
    job.ask(f"DELETE FROM {job.given['table']} WHERE id >= 10000")
    job.ask(f"DELETE FROM {schema}.eo_kafka_prepared WHERE name = '{stray}'")
    job.run(1)
    assert job.there() == job.expected(0, 1)


def test_a_replay_that_kafka_aborts_again_leaves_no_locks_behind(both, crash_points) -> None:
    """Of a batch that is torn, all that the second round had prepared: its rows are locked."""
    both.ask(f"ALTER TABLE {both.given['table']} ADD PRIMARY KEY (id)")
    both.given["keys"] = "id"
    both.run(0)
    kill_at(both, crash_points, "S6.after_decision", 1)
    abort(both, {1})
    kill_at(both, crash_points, "S6.after_decision", 1)  # partition 1 alone
    abort(both, {1})
    both.prepare(1)
    both.prepare(1)
    both.commit(1)
    both.run(2)
    assert both.there() == both.expected(0, 1, 2)
    assert in_both(both) == both.sent(0, 1, 2)
    assert both.prepared() == []


def test_an_alter_table_waits_for_the_batch_and_the_batch_is_whole(job) -> None:
    job.run(0)
    job.prepare(1)
    table = job.given["table"]
    with psycopg.connect(job.database, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '300ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN more text")
        job.commit(1)
        connection.execute(f"ALTER TABLE {table} ADD COLUMN more text")
    job.run(2)
    assert job.there() == job.expected(0, 1, 2)
