"""What a table shows is compared with the ledger: older copies of either are refused, never passed
over. A topic and a table have one decision."""

from __future__ import annotations

import shutil
from collections import Counter

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from both_places import abort, in_both, kill_at_and_abort
from eo_kafka.errors import BatchMismatch, LedgerError, RepairNeeded
from eo_kafka.sinks.tables.marker import Markers
from eo_kafka.testing.processes import wait_until
from eo_kafka.tools import cli
from harness import copy_topic, delete_topic
from table_job import TableJob, job_of, kill_at, new_table, spark_runs

FULL = pytest.mark.full


def test_a_database_restored_from_an_older_copy_is_refused(
    own_postgres, broker, crash_points, tmp_path
) -> None:
    url = own_postgres.url
    job = job_of(url, broker.bootstrap_servers, new_table(url))
    job.run(0)

    def copy(name: str) -> None:
        own_postgres.stop()
        shutil.copytree(own_postgres.data, tmp_path / name)
        own_postgres.start()

    def restore(name: str) -> None:
        own_postgres.stop()
        for folder in own_postgres.data.iterdir():  # those who may enter it stay the same
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
        shutil.copytree(tmp_path / name, own_postgres.data, dirs_exist_ok=True)
        for path in [own_postgres.data, *own_postgres.data.rglob("*")]:
            shutil.chown(path, own_postgres.data.parent.stat().st_uid)
        own_postgres.start()

    copy("at 0")
    job.run(1)
    restore("at 0")
    with pytest.raises(LedgerError, match=r"shows batch 0 .* the ledger has batch 1 .*older copy"):
        job.prepare(2)
    assert job.there() == job.expected(0)
    job.given["failOnDataLoss"] = "false"
    job.run(2)
    del job.given["failOnDataLoss"]
    job.run(3)
    assert job.there() == job.expected(0, 2, 3)  # as it was accepted

    copy("at 3")
    kill_at(job, crash_points, "S7.in_table", 4)
    restore("at 3")  # just before the batch that is decided: its staged rows are gone, too
    job.run(4, 5)
    assert job.there() == job.expected(0, 2, 3, 4, 5)


def test_another_ledger_of_the_same_name_begins_anew(table_job) -> None:
    table_job.run(0, 1)
    servers = table_job.given["kafka.bootstrap.servers"]
    job, ledger = table_job.options.job_and_ledger
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([ledger])[ledger].result(30)
    wait_until(lambda: ledger not in admin.list_topics(timeout=10).topics, "it is gone")
    from eo_kafka.sinks.protocol import preflight

    preflight._checked.clear()  # another driver
    with pytest.raises(LedgerError, match="is empty, but Kafka remembers"):
        table_job.prepare(0)
    table_job.ask(f"TRUNCATE {table_job.given['table']}")
    assert cli.main(["job", "reset", job, "--bootstrap-servers", servers]) == 0
    table_job.run(
        0, 1, 2
    )  # the same generations and batches, which the table must not take for old
    assert table_job.there() == table_job.expected(0, 1, 2)


@pytest.mark.parametrize("commit", ["staged", pytest.param("two-phase", marks=FULL)])
def test_a_batch_that_is_in_the_table_by_a_ledger_that_is_gone_is_not_written_again(
    table_job, crash_points, tmp_path, commit
) -> None:
    """Its Kafka died when the batch was applied, and the job has another one."""
    table_job.given["commit"] = commit
    spark_runs(table_job, tmp_path, 0)
    table_job.run(0)
    spark_runs(table_job, tmp_path, 1)
    kill_at(table_job, crash_points, "S7.applied", 1)
    delete_topic(table_job.given["kafka.bootstrap.servers"], table_job.options.job_and_ledger[1])
    # A Kafka that remembers nothing
    ledger = f"another-{table_job.given['jobName']}"
    table_job.given |= {"ledgerTopic": ledger, "transactionalIdPrefix": "another"}
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"shows batch 1 .*Spark runs batch 1 now"):
            table_job.prepare(1)
    config = tmp_path / "table.properties"
    config.write_text(f"url={table_job.database}\ntable={table_job.given['table']}\n")
    words = ["--transactional-id-prefix", "another", "--ledger-topic", ledger]
    words += ["--bootstrap-servers", table_job.given["kafka.bootstrap.servers"]]
    name, _ = table_job.options.job_and_ledger
    assert cli.main(["job", "reset", name, *words, "--table-config", str(config)]) == 0
    with pytest.raises(LedgerError, match=r"shows batch 1 .*Spark runs batch 1 now"):
        table_job.prepare(1)
    assert table_job.there() == table_job.expected(0, 1)
    for batch in (2, 3):  # as if Spark had noted it
        spark_runs(table_job, tmp_path, batch)
        table_job.run(batch)
    assert table_job.there() == table_job.expected(0, 1, 2, 3)


def test_a_job_that_was_reset_goes_on_and_one_whose_marker_is_gone_stops(table_job) -> None:
    table_job.run(0, 1)
    servers = table_job.given["kafka.bootstrap.servers"]
    job, _ = table_job.options.job_and_ledger
    assert cli.main(["job", "reset", job, "--bootstrap-servers", servers]) == 0
    table_job.run(0)
    assert table_job.there() == table_job.expected(0, 1) + table_job.expected(0)
    schema = table_job.given["table"].partition(".")[0]
    # As if the ledger were a copy, with another id: what the table shows is what it says
    table_job.ask(f"UPDATE {schema}.eo_kafka_batches SET ledger = 'the original'")
    table_job.run(1)
    assert table_job.there() == table_job.expected(0, 1) + table_job.expected(0, 1)
    table_job.ask(f"DELETE FROM {schema}.eo_kafka_batches")
    with pytest.raises(LedgerError, match="shows no batch of this job"):
        table_job.run(2)


def test_a_ledger_whose_copy_has_taken_the_table_over_is_refused(table_job) -> None:
    """As after a fail-over to another cluster and back, or to a copy that lags behind."""
    table_job.run(0, 1)
    servers = table_job.given["kafka.bootstrap.servers"]
    _, ledger = table_job.options.job_and_ledger
    table_job.given["ledgerTopic"] = copy_topic(servers, ledger)
    table_job.run(2, 3)
    copy = table_job.given.pop("ledgerTopic")
    older = r"shows batch 3 .* the ledger has batch 1 .*: the ledger is older than that"
    with pytest.raises(LedgerError, match=older):
        table_job.prepare(2)
    table_job.given["ledgerTopic"] = copy
    table_job.run(4)
    assert table_job.there() == table_job.expected(0, 1, 2, 3, 4)


@pytest.mark.parametrize("found", ["nothing", "no marker", "another marker"])
def test_a_driver_that_was_paused_at_its_start_leaves_a_newer_ones_marker_alone(
    table_job, crash_points, monkeypatch, found
) -> None:
    """It writes one where there is none, or one that is taken for granted."""
    batch, schema = 0, table_job.given["table"].partition(".")[0]
    if found != "nothing":
        batch = 1
        table_job.run(0)
        change = "UPDATE {} SET digest = 'x'" if found == "another marker" else "DELETE FROM {}"
        table_job.ask(change.format(f"{schema}.eo_kafka_batches"))
        table_job.given["failOnDataLoss"] = "false"
    create = Markers.create

    def overtaken(markers: Markers) -> None:
        create(markers)
        monkeypatch.setattr(Markers, "create", create)
        kill_at(table_job, crash_points, "S7.applied", batch)  # and DONE is not written

    monkeypatch.setattr(Markers, "create", overtaken)
    table_job.run(batch)
    assert Markers.create is create
    assert table_job.there() == table_job.expected(*range(batch + 1))


@pytest.mark.parametrize("option", ["table", "stagingSchema"])
def test_a_decided_batch_is_not_applied_elsewhere_when_an_option_is_changed(
    table_job, crash_points, option
) -> None:
    """The marker is written before the first decision: where there is none, another place has
    it, and perhaps the rows, too."""
    other = new_table(table_job.database)
    kill_at(table_job, crash_points, "S7.applied", 0)
    before = dict(table_job.given)
    table_job.given[option] = other if option == "table" else other.partition(".")[0]
    with pytest.raises(LedgerError, match="shows no batch of this job"):
        table_job.run(0)
    assert table_job.ask(f"SELECT count(*) FROM {other}") == [(0,)]
    table_job.given = before
    table_job.run(0, 1)
    assert table_job.there() == table_job.expected(0, 1)


@pytest.fixture
def both(eo_postgres, broker, make_topic) -> TableJob:
    """A job that writes a table and a topic."""
    url = eo_postgres.url
    topic = make_topic("both", partitions=2)
    return job_of(url, broker.bootstrap_servers, new_table(url), topic=topic)


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S5.prepared", marks=FULL),
        pytest.param("S6.before_decision", marks=FULL),
        pytest.param("S6.after_decision", marks=FULL),
        pytest.param("S7.after_first_end_txn", marks=FULL),
        "S7.after_last_end_txn",
        pytest.param("S7.in_table", marks=FULL),
        pytest.param("S7.applied", marks=FULL),
    ],
)
def test_topic_and_table_have_the_same_rows_whoever_dies(both, crash_points, point) -> None:
    both.run(0)
    kill_at(both, crash_points, point, 1)
    if point in ("S5.prepared", "S6.before_decision"):
        assert both.there() == in_both(both) == both.expected(0)
    both.run(1, 2)
    assert both.there() == in_both(both) == both.expected(0, 1, 2)
    assert both.left() == []


@pytest.mark.parametrize("aborted", [pytest.param({0, 1}, marks=FULL), {1}])
def test_what_kafka_aborted_is_not_in_the_table_and_comes_back_in_both(
    both, crash_points, aborted
) -> None:
    kill_at_and_abort(both, crash_points, aborted)


@pytest.mark.parametrize("keys", [pytest.param("id", marks=FULL), None])
def test_a_topic_that_is_deleted_after_the_table_has_the_batch(both, crash_points, keys) -> None:
    if keys:
        both.ask(f"ALTER TABLE {both.given['table']} ADD PRIMARY KEY (id)")
        both.given |= {"keys": keys}
    both.run(0)
    kill_at(both, crash_points, "S7.applied", 1)
    topic = both.given["topic"]
    admin = AdminClient({"bootstrap.servers": both.given["kafka.bootstrap.servers"]})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, "it is gone")
    admin.create_topics([NewTopic(topic, num_partitions=2)])[topic].result(30)
    if not keys:
        with pytest.raises(RepairNeeded, match=r"partitions \[0, 1\] have gone with the topic"):
            both.prepare(1)
        assert both.there() == both.expected(0, 1)
        both.given["failOnDataLoss"] = "false"
    both.run(1)
    both.given.pop("failOnDataLoss", None)
    both.run(2)
    again = Counter() if keys else both.expected(1)
    assert both.there() == both.expected(0, 1, 2) + again
    assert in_both(both) == both.sent(1, 2)


@FULL
def test_a_replay_with_other_rows_stops_the_query(both, crash_points) -> None:
    both.run(0)
    kill_at(both, crash_points, "S6.after_decision", 1)
    abort(both, {1})
    both.prepare(1, other="!")
    with pytest.raises(
        RepairNeeded, match="The replay's rows of these partitions are not the same"
    ):
        both.commit(1)
    both.run(1, 2)
    assert both.there() == in_both(both) == both.expected(0, 1, 2)


def test_other_rows_of_the_table_make_another_batch_where_the_topics_are_the_same(
    both, crash_points, monkeypatch
) -> None:
    made = TableJob._batch

    def corrected(job: TableJob, rows: list[tuple[int, str, str]], other: str) -> pa.RecordBatch:
        batch, words = made(job, rows, other), [f"{one[1]}!" for one in rows]
        return batch.set_column(1, "word", pa.array(words, pa.string()))

    both.run(0, 0)  # a replay, which is skipped
    with monkeypatch.context() as patched:
        patched.setattr(TableJob, "_batch", corrected)
        both.prepare(0)
    with pytest.raises(BatchMismatch, match="both have 100 rows, and not the same ones"):
        both.commit(0)
    kill_at(both, crash_points, "S6.after_decision", 1)
    abort(both, {1})
    with monkeypatch.context() as patched:
        patched.setattr(TableJob, "_batch", corrected)
        both.prepare(1)
    with pytest.raises(RepairNeeded, match="replay's rows of these partitions are not the same"):
        both.commit(1)
    both.run(1)
    assert both.there() == in_both(both) == both.expected(0, 1)


@pytest.mark.parametrize("commit", ["staged", pytest.param("two-phase", marks=FULL)])
def test_a_command_applies_what_is_decided(table_job, crash_points, tmp_path, commit) -> None:
    table_job.given["commit"] = commit
    table_job.run(0)
    kill_at(table_job, crash_points, "S6.after_decision", 1)
    job, _ = table_job.options.job_and_ledger
    command = [
        "job",
        "reset",
        job,
        "--bootstrap-servers",
        table_job.given["kafka.bootstrap.servers"],
    ]
    assert cli.main(command) != 0  # a batch waits that it cannot reach
    assert table_job.there() == table_job.expected(0)
    config = tmp_path / "table.properties"
    config.write_text(f"url={table_job.database}\ntable={table_job.given['table']}\n")
    assert cli.main([*command, "--table-config", str(config)]) == 0
    assert table_job.there() == table_job.expected(0, 1)
    assert table_job.left() == []
