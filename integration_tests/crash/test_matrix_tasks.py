"""C4, C5, C14, C17, C23 and C24: duplicate and failing tasks, an empty one, more or fewer of them,
and a stranger who takes a task's transactional id."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from eo_kafka.testing.processes import killed_at_last
from eo_kafka.testing.standalone_spark import SPECULATION, standalone
from harness import (
    Copy,
    assert_exactly_once,
    committed,
    control_plane,
    fail_at,
    kill_driver_at,
    kill_group,
    make_copy,
    open_tasks,
    open_transactions,
    produce,
    read_ledger,
    started,
    wait_until,
    written,
)

VALUES = [b"%d" % number for number in range(300)]


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Copy:
    """300 records of two partitions, in two batches of two tasks."""
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, per_batch=150)


@pytest.mark.full
def test_c4_of_two_attempts_of_a_task_only_the_reported_one_commits(
    job, crash_points, tmp_path, monkeypatch
):
    settings = " ".join(f"--conf {name}={value}" for name, value in SPECULATION.items())
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"{settings} pyspark-shell")
    job.per_batch = len(VALUES)
    crash_points.arm("S5.prepared", "stop")
    crash_points.arm("S6.before_decision", "wait")
    with standalone(2, tmp_path) as job.master, started(job, tmp_path / "log") as driver:
        loser = crash_points.wait_reached("S5.prepared")
        with killed_at_last(loser):
            crash_points.wait_reached("S6.before_decision")
            prepared = {found.transactional_id: found.identity for found in open_tasks(job)}
            assert len(prepared) == 3, f"no second attempt was prepared: {sorted(prepared)}"
            os.kill(loser, 0)  # alive, or this raises
            crash_points.release("S6.before_decision")
            assert driver.wait(180) == 0, (tmp_path / "log").read_text()[-4000:]
            winners = {part.identity for part in read_ledger(job).of_sink("main")[0].participants}
            (lost,) = set(prepared.values()) - winners
            assert len(winners) == 2
            with control_plane(job.servers) as control:
                state = control.describe_one(lost.transactional_id).state
            assert state.value == "CompleteAbort"
            assert_exactly_once(job, VALUES)
            with suppress(ProcessLookupError):  # its executor, which ends with the driver, took it
                os.kill(loser, signal.SIGCONT)
    assert sum(written(job.servers, job.sink_topic).values()) > len(VALUES), "it wrote no rows"
    assert_exactly_once(job, VALUES)


def set_topic(servers: str, topic: str, **config: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.incremental_alter_configs([resource])[resource].result(30)


def test_c5_when_a_task_fails_for_good_what_the_others_prepared_is_aborted_at_once(
    job, spark, crash_points
):
    """One row is too large for the output topic, so its task fails in all four attempts."""
    job.per_batch, large = 1000, b"x" * 200_000
    set_topic(job.servers, job.sink_topic, max_message_bytes="100000")
    produce(job.servers, job.source_topic, [large])
    crash_points.arm("abort.before_end_txn", "wait")
    with job.running(spark) as query:
        crash_points.wait_reached("abort.before_end_txn")
        (prepared,) = open_tasks(job)
        crash_points.release("abort.before_end_txn")
        with pytest.raises(Exception, match="WriteFailed"):
            query.awaitTermination(240)
    assert open_transactions(job) == [], "left to its timeout"
    with control_plane(job.servers) as control:
        found = control.describe_one(prepared.transactional_id)
    # EndTxn of exactly this transaction; InitProducerId would have left it Empty, and later.
    assert found.state.value == "CompleteAbort"
    assert (found.producer_id, found.epoch) == (prepared.producer_id, prepared.epoch + 1)
    assert not committed(job.servers, job.sink_topic)
    set_topic(job.servers, job.sink_topic, max_message_bytes="1000000")
    job.run(spark)
    assert_exactly_once(job, [*VALUES, large])


@pytest.mark.full
def test_c14_killed_right_after_sparks_commit_log(job, spark, tmp_path):
    commits = job.checkpoint / "commits"
    with started(job, tmp_path / "log") as driver:
        wait_until((commits / "0").exists, "batch 0 is in the commit log", 240)
        kill_group(driver)
    for later in [*commits.glob("[1-9]"), *(job.checkpoint / "offsets").glob("[1-9]")]:
        later.unlink()  # it was quicker than the kill: back to what the disk held right after
    job.run(spark)
    assert_exactly_once(job, VALUES)


def hijack(servers: str, transactional_id: str) -> None:
    """What a program does that is configured with somebody else's transactional id."""
    Producer(
        {"bootstrap.servers": servers, "transactional.id": transactional_id}
    ).init_transactions(60)


@pytest.mark.parametrize(
    ("point", "taken", "error"),
    [
        pytest.param("S5.prepared", 2, "Undecided", id="before-the-decision"),
        # The driver has just looked at the participants, and decides in good faith.
        pytest.param("S6.before_decision", 1, "ParticipantsLost", id="one-as-it-decides"),
        pytest.param("S6.after_decision", 2, "ParticipantsLost", id="all-after-the-decision"),
    ],
)
def test_c17_a_hijacked_transactional_id_is_found_out_and_mended(
    job, spark, crash_points, point, taken, error
):
    job.sink_extra["transactionalIdPrefix"] = "not-mine-alone"
    job.per_batch = len(VALUES)
    crash_points.arm(point, "wait")
    with job.running(spark) as query:
        crash_points.wait_reached(point)
        wait_until(lambda: len(open_tasks(job)) == 2, "both tasks write")
        prepared = [found.transactional_id for found in open_tasks(job)]
        for transactional_id in prepared[:taken]:
            hijack(job.servers, transactional_id)
        crash_points.release(point)
        with pytest.raises(Exception, match=error) as stop:
            query.awaitTermination(240)
    if error == "ParticipantsLost":
        assert "'not-mine-alone'" in str(stop.value)
    visible = sum(committed(job.servers, job.sink_topic).values())
    assert visible < len(VALUES)
    assert bool(visible) == (taken == 1)
    job.run(spark)
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize(("tasks", "tasks_then"), [(8, 3), (3, 8)])
@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S6.before_decision", marks=pytest.mark.full),
        "S6.after_decision",
        "S7.after_first_end_txn",
    ],
)
def test_c23_a_rescale_between_two_attempts_of_a_batch(
    job, spark, crash_points, tmp_path, tasks, tasks_then, point
):
    """No recovery looks at today's number of tasks to find yesterday's transactions."""
    job.tasks, job.per_batch = tasks, len(VALUES)
    if point == "S6.before_decision":  # only a death leaves something: `abort` would end all
        kill_driver_at(job, crash_points, point, tmp_path / "log")
        assert len(open_tasks(job)) == tasks
    else:
        fail_at(job, spark, crash_points, point)
    job.tasks = tasks_then
    job.run(spark)
    assert_exactly_once(job, VALUES)
    (decision,) = read_ledger(job).of_sink("main").values()
    decided_by = tasks_then if point == "S6.before_decision" else tasks
    assert len(decision.participants) == decided_by
    if point != "S6.before_decision":  # the replay was a no-op
        assert written(job.servers, job.sink_topic) == Counter(VALUES)


@pytest.mark.parametrize(
    ("values", "point", "commit"),
    [
        pytest.param(VALUES[:2], "S6.before_decision", "two-phase", id="some-before-the-decision"),
        pytest.param(
            VALUES[:2],
            "S6.after_decision",
            "two-phase",
            id="some-after-the-decision",
            marks=pytest.mark.full,
        ),
        pytest.param(
            [],
            "S6.before_decision",
            "two-phase",
            id="all-before-the-decision",
            marks=pytest.mark.full,
        ),
        pytest.param([], "S6.after_decision", "two-phase", id="all-after-the-decision"),
        pytest.param(VALUES[:2], "S6.after_decision", "idempotent", id="some-idempotent"),
    ],
)
def test_c24_tasks_without_rows_take_no_part(
    job, spark, crash_points, tmp_path, values, point, commit
):
    """Two rows over eight tasks; or none that passes the filter."""
    job.sink_extra["commit"] = commit
    job.per_batch = len(VALUES)

    def start():
        source = job.as_job()["source_options"]
        rows = spark.readStream.format("eo-kafka").options(**source).load()
        wanted = [value.decode() for value in values]
        kept = rows.selectExpr("key", "value", "string(value) text").where("text is not null")
        kept = kept[kept.text.isin(wanted)].select("key", "value").repartition(8, "value")
        writer = kept.writeStream.format("eo-kafka").options(**job.as_job()["sink_options"])
        return writer.trigger(availableNow=True).start()

    crash_points.arm(point, "raise")
    with pytest.raises(Exception, match="CrashPointReached"):
        start().awaitTermination(240)
    assert start().awaitTermination(240)
    assert_exactly_once(job, values)
    (decision,) = read_ledger(job).of_sink("main").values()
    assert decision.state.value == "DONE"
    assert len(decision.participants) <= len(values), "a task without rows took part"
    assert sum(part.rows for part in decision.participants) == len(values)
