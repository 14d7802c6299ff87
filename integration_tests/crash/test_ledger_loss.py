"""C20 and C22: topics that are cleaned, cut short, or deleted under a job."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.ledger import DECISION_PARTITION
from eo_kafka.tools import cli
from hand_made_job import cut_log
from harness import (
    Copy,
    assert_exactly_once,
    committed_messages,
    delete_records,
    delete_topic,
    fail_at,
    kill_driver_at,
    make_copy,
    produce,
    read_ledger,
    wait_until,
    written,
)

VALUES = [b"%d" % number for number in range(300)]
MORE = [b"more %d" % number for number in range(100)]
AT_ONCE = {
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.001",
    "max.compaction.lag.ms": "100",
    "delete.retention.ms": "1",
    "file.delete.delay.ms": "1",
}


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Copy:
    """300 records of two partitions, in three batches of two tasks."""
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=100)


def generations_kept(job: Copy) -> int:
    """How many of its generations the ledger still holds; a cleaned one holds the newest few."""
    found = committed_messages(job.servers, job.ledger)
    return sum(message.key() == records.GENERATION_KEY for message in found)


@pytest.mark.parametrize(
    "point", [pytest.param("S6.after_decision", marks=pytest.mark.full), "S7.after_first_end_txn"]
)
def test_c22_a_ledger_that_was_compacted_gives_the_same_answers(job, spark, crash_points, point):
    job.run(spark)
    compact_at_once(job)
    produce(job.servers, job.source_topic, MORE)
    fail_at(job, spark, crash_points, point)
    before = read_ledger(job)
    assert before.unfinished(), "nothing was left for the recovery"
    wait_until(lambda: generations_kept(job) < before.generation, "the cleaner has run", 90)
    assert read_ledger(job) == before
    job.run(spark)
    assert_exactly_once(job, VALUES + MORE)


def compact_at_once(job: Copy) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in AT_ONCE.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, job.ledger, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": job.servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_c22_kafka_refuses_to_cut_a_ledger_short(job, spark):
    """`kafka-delete-records` is for topics that are not compacted only."""
    job.per_batch = 1000
    job.run(spark)
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        delete_records(job.servers, job.ledger, -1, DECISION_PARTITION)
    assert read_ledger(job).generation == 1


def test_c22_a_deleted_ledger_is_said_at_each_start_until_somebody_resets_it(job, spark, tmp_path):
    """Here Spark's commit log knows all batches, so going on repeats and loses nothing."""
    assert job.run_in_own_driver(tmp_path / "log") == 0
    delete_topic(job.servers, job.ledger)
    produce(job.servers, job.source_topic, MORE)
    for _ in range(2):
        with pytest.raises(Exception, match="LedgerError") as stop:
            job.run(spark)
        assert job.ledger in str(stop.value)
        assert f"job reset {job.job_name}" in str(stop.value)
    assert cli.main(["job", "reset", job.job_name, "--bootstrap-servers", job.servers]) == 0
    job.run(spark)
    assert_exactly_once(job, VALUES + MORE)


@pytest.mark.parametrize(
    "point", ["S7.after_first_end_txn", pytest.param("S8.after_done", marks=pytest.mark.full)]
)
def test_c22_a_ledger_deleted_under_a_decided_batch_stops_the_job(
    job, spark, crash_points, tmp_path, point
):
    """Part of the batch, or all of it, is visible, and only the ledger knew: to write it again
    would repeat rows."""
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    before = written(job.servers, job.sink_topic)
    assert before
    delete_topic(job.servers, job.ledger)
    with pytest.raises(Exception, match="LedgerError"):
        job.run(spark)
    assert written(job.servers, job.sink_topic) == before, "rows were repeated"


@pytest.mark.parametrize(
    ("commit", "points"),
    [
        pytest.param("idempotent", ["S6.before_decision"], id="idempotent"),
        pytest.param("two-phase", ["S7.after_first_end_txn", "S1.after_fence"], id="two-phase"),
    ],
)
def test_c22_a_fence_does_not_make_a_deleted_ledger_a_new_one(
    job, spark, crash_points, tmp_path, commit, points
):
    """Kafka keeps of the coordinator's id how its last transaction ended, until the next fence."""
    job.sink_extra["commit"] = commit
    for number, point in enumerate(points):
        kill_driver_at(job, crash_points, point, tmp_path / f"log-{number}")
        crash_points.clear()
    before = written(job.servers, job.sink_topic)
    assert before
    delete_topic(job.servers, job.ledger)
    with pytest.raises(Exception, match=f"LedgerError.*is empty.*job reset {job.job_name}"):
        job.run(spark)
    assert written(job.servers, job.sink_topic) == before, "rows were repeated"


def test_first_starts_that_die_before_they_write_are_no_lost_ledger(
    job, spark, crash_points, tmp_path
):
    for number in range(3):
        kill_driver_at(job, crash_points, "S1.after_fence", tmp_path / f"log-{number}")
        crash_points.clear()
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_c22_a_job_that_was_deleted_may_begin_anew(job, spark, tmp_path):
    """By the command, which leaves word of it with Kafka."""
    assert job.run_in_own_driver(tmp_path / "log") == 0
    words = ["job", "delete", job.job_name, "--yes", "--quiet-for", "1ms"]
    assert cli.main([*words, "--bootstrap-servers", job.servers]) == 0
    produce(job.servers, job.source_topic, MORE)
    job.run(spark)
    assert_exactly_once(job, VALUES + MORE)


def test_a_ledger_topic_that_was_changed_is_told_with_the_way_back(job, spark):
    job.run(spark)
    produce(job.servers, job.source_topic, MORE)
    other = job.sink_extra["ledgerTopic"] = f"{job.job_name}-other"
    with pytest.raises(Exception, match="LedgerError") as stop:
        job.run(spark)
    told = str(stop.value)
    assert told.index("option 'ledgerTopic'") < told.index("was deleted")
    assert f"without it, the ledger is '__eo_kafka.{job.job_name}.ledger'" in told
    assert f"job reset {job.job_name} --ledger-topic {other} --bootstrap" in told
    del job.sink_extra["ledgerTopic"]
    job.run(spark)
    assert_exactly_once(job, VALUES + MORE)


def test_c22_a_ledger_whose_records_were_deleted_is_not_a_new_one(
    job, spark, crash_points, tmp_path
):
    """By a policy that was changed for a while, say: all batches are written, and Spark has not
    noted the last one."""
    kill_driver_at(job, crash_points, "S8.after_done", tmp_path / "log")
    before = written(job.servers, job.sink_topic)
    assert before
    cut_log(job.servers, job.ledger, -1)
    for _ in range(2):
        with pytest.raises(Exception, match=r"LedgerError.*its first records were deleted"):
            job.run(spark)
    assert written(job.servers, job.sink_topic) == before, "rows were repeated"


@pytest.mark.full
def test_c22_a_ledger_whose_records_were_deleted_can_be_reset(job, spark, tmp_path):
    """Here Spark's commit log knows all batches, so going on repeats and loses nothing."""
    assert job.run_in_own_driver(tmp_path / "log") == 0
    cut_log(job.servers, job.ledger, -1)
    produce(job.servers, job.source_topic, MORE)
    with pytest.raises(Exception, match=f"LedgerError.*job reset {job.job_name}"):
        job.run(spark)
    assert cli.main(["job", "reset", job.job_name, "--bootstrap-servers", job.servers]) == 0
    job.run(spark)
    assert_exactly_once(job, VALUES + MORE)


@pytest.mark.parametrize(
    ("point", "error"),
    [
        pytest.param("S5.prepared", "Undecided", id="before-the-decision"),
        pytest.param("S6.after_decision", "ParticipantsLost", id="after-the-decision"),
    ],
)
def test_c20_an_output_topic_that_is_replaced_under_prepared_rows_is_found_out(
    job, spark, crash_points, point, error
):
    """EndTxn answers NONE, the token says committed, and the rows are gone with the old topic."""
    job.per_batch = 1000
    crash_points.arm(point, "wait")
    with job.running(spark) as query:
        crash_points.wait_reached(point)
        wait_until(
            lambda: sum(written(job.servers, job.sink_topic).values()) == len(VALUES),
            "both tasks have written",
        )
        delete_topic(job.servers, job.sink_topic)
        admin = AdminClient({"bootstrap.servers": job.servers})
        again = NewTopic(job.sink_topic, num_partitions=2, replication_factor=1)
        admin.create_topics([again])[job.sink_topic].result(30)
        crash_points.release(point)
        with pytest.raises(Exception, match=error) as stop:
            query.awaitTermination(240)
    assert "atch 0" in str(stop.value)
    assert job.sink_topic in str(stop.value)
    job.run(spark)
    assert_exactly_once(job, VALUES)
