"""What Spark does when things fail or change: executors and stages lost, other cores, another plan,
a query stopped while it commits, queries beside each other."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from harness import (
    Copy,
    assert_exactly_once,
    assert_settled,
    committed,
    fail_at,
    kill_driver_at,
    make_copy,
    produce,
    read_ledger,
    wait_until,
)

VALUES = [b"%d" % number for number in range(300)]
# Settings of Spark's, and variables of the driver and its workers, that some users have
WAYS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "no asserts": ({}, {"PYTHONOPTIMIZE": "2"}),
    "sockets are files": ({"spark.python.unix.domain.socket.enabled": "true"}, {}),
    "a process for each task": ({"spark.python.worker.reuse": "false"}, {}),
    "no process that forks": ({"spark.python.use.daemon": "false"}, {}),
    "large Arrow types": ({"spark.sql.execution.arrow.useLargeVarTypes": "true"}, {}),
    "Kryo": ({"spark.serializer": "org.apache.spark.serializer.KryoSerializer"}, {}),
    "checkpoint files in another way": (
        {
            "spark.sql.streaming.checkpointFileManagerClass": (
                "org.apache.spark.sql.execution.streaming.checkpointing."
                "FileSystemBasedCheckpointFileManager"
            )
        },
        {},
    ),
    "little address space": ({"spark.executor.pyspark.memory": "4g"}, {}),  # of two cores
    "far from Greenwich, in Turkish": (
        {
            "spark.driver.extraJavaOptions": "-Duser.language=tr -Duser.country=TR",
            "spark.sql.session.timeZone": "America/St_Johns",
        },
        {"TZ": "Asia/Kolkata", "LC_ALL": "C", "LANG": "C"},
    ),
}


@dataclass
class Configured(Copy):
    """A copy whose driver has settings of its own."""

    conf: dict[str, str] = field(default_factory=dict)

    def as_job(self) -> dict[str, object]:
        return {**super().as_job(), "conf": self.conf}


@pytest.fixture
def job(broker, make_topic, tmp_path) -> Configured:
    given = {"kind": Configured, "per_batch": 200}
    return make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, **given)


def events(folder: Path, name: str) -> list[dict]:
    """The events of one kind that Spark's drivers logged."""
    lines = [
        line
        for path in folder.rglob("*")
        if path.is_file()
        for line in path.read_text().splitlines()
        if name in line
    ]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    "point", [pytest.param("S3.while_writing", marks=pytest.mark.full), "S5.prepared"]
)
def test_an_executor_that_is_lost_takes_its_stage_with_it_and_nothing_else(
    job, crash_points, tmp_path, point
):
    """Four tasks behind a shuffle: with the executor go the shuffle files that its stage needs."""
    log = tmp_path / "events"
    log.mkdir()
    job.tasks = 4
    job.master = "local-cluster[2,1,1024]"
    job.conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": log.as_uri(),
        "spark.eventLog.compress": "false",
    }
    crash_points.arm(point, "kill-driver")  # the JVM above a task is its executor
    assert job.run_in_own_driver(tmp_path / "log") == 0, (tmp_path / "log").read_text()[-4000:]
    assert crash_points.reached(point)
    assert events(log, "SparkListenerExecutorRemoved")
    stages = events(log, "SparkListenerStageSubmitted")
    assert any(stage["Stage Info"]["Stage Attempt ID"] > 0 for stage in stages), "no stage retry"
    assert_exactly_once(job, VALUES)


@dataclass
class Changing(Configured):
    """Its rows in front of a shuffle are others once an executor is lost."""

    script: ClassVar[str] = "changing_job.py"


@pytest.mark.parametrize(
    "is_compared", [True, pytest.param(False, marks=pytest.mark.full)], ids=["compared", "not"]
)
def test_a_stage_that_runs_again_with_other_rows(broker, make_topic, tmp_path, is_compared):
    """Spark 4.2 notices, unless it is told not to. Why `explain` asks for its settings."""
    given = {"kind": Changing, "per_batch": None, "master": "local-cluster[2,1,1024]"}
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES, **given)
    checksums = "spark.sql.shuffle.orderIndependentChecksum"
    job.conf = {"spark.test.marker": str(tmp_path / "marker")}
    if not is_compared:
        job.conf |= dict.fromkeys(
            (f"{checksums}.enabled", f"{checksums}.enableFullRetryOnMismatch"), "false"
        )
    log = tmp_path / "log"
    code = job.run_in_own_driver(log)
    assert (tmp_path / "marker").exists(), log.read_text()[-4000:]
    kept = [value for value in VALUES if not value.endswith(b"0")]
    if not is_compared:
        found = committed(job.servers, job.sink_topic)
        assert code == 0 and set(kept) - set(found) and max(found.values()) > 1
        return
    assert code != 0 and not committed(job.servers, job.sink_topic)
    assert job.run_in_own_driver(log) == 0, log.read_text()[-4000:]
    assert_exactly_once(job, kept)


@pytest.mark.full
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("local[4,4]", "local[1,4]"),
        ("local[1]", "local[4]"),
    ],
)
def test_a_job_goes_on_with_fewer_or_more_cores(job, crash_points, tmp_path, before, after):
    job.tasks = 4
    job.master = before
    kill_driver_at(job, crash_points, "S7.after_first_end_txn", tmp_path / "log")
    job.master = after
    assert job.run_in_own_driver(tmp_path / "log") == 0
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize(
    "way",
    [
        "no asserts",
        *(pytest.param(way, marks=pytest.mark.full) for way in WAYS if way != "no asserts"),
    ],
)
def test_a_killed_driver_of_somebody_who_runs_spark_in_another_way(
    job, crash_points, tmp_path, way
):
    job.conf, others = WAYS[way]
    job.variables = {**os.environ, **others}
    kill_driver_at(job, crash_points, "S7.after_first_end_txn", tmp_path / "log")
    assert job.run_in_own_driver(tmp_path / "log") == 0, (tmp_path / "log").read_text()[-4000:]
    assert_exactly_once(job, VALUES)


@pytest.mark.parametrize(
    "point",
    [
        "S6.before_decision",
        "S6.after_decision",
        pytest.param("S7.after_last_end_txn", marks=pytest.mark.full),
    ],
)
def test_a_query_that_is_stopped_while_it_commits(job, spark, crash_points, point):
    crash_points.arm(point, "wait")
    with job.running(spark) as query:
        crash_points.wait_reached(point)
        stopping = threading.Thread(target=query.stop)
        stopping.start()
        wait_until(lambda: not query.isActive or not stopping.is_alive(), "the query stops", 30)
        crash_points.release(point)
        stopping.join(60)
        assert not query.isActive
    job.run(spark)
    assert_exactly_once(job, VALUES)


def test_adaptive_execution_may_change_the_number_of_tasks_of_a_replay(job, spark, crash_points):
    job.tasks, job.per_batch = "any", 100
    with spark_settings(spark, {"spark.sql.adaptive.enabled": "false"}):
        fail_at(job, spark, crash_points, "S6.after_decision")
    crash_points.clear()
    with spark_settings(spark, {"spark.sql.adaptive.enabled": "true"}):
        job.run(spark)
    assert_exactly_once(job, VALUES)
    tasks = {
        batch: len(found.participants) for (_, batch), found in read_ledger(job).decisions.items()
    }
    assert tasks[0] == 2
    assert tasks[1] == 1, "adaptive execution did not coalesce"


class spark_settings:
    """Session settings for a while."""

    def __init__(self, spark, settings: dict[str, str]) -> None:
        self._spark, self._settings = spark, settings

    def __enter__(self) -> None:
        self._before = {name: self._spark.conf.get(name) for name in self._settings}
        for name, value in self._settings.items():
            self._spark.conf.set(name, value)

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            self._spark.conf.set(name, value)


@pytest.mark.parametrize(
    "point", [pytest.param("S6.before_decision", marks=pytest.mark.full), "S6.after_decision"]
)
def test_a_batch_without_input_that_closes_windows(
    broker, make_topic, spark, crash_points, tmp_path, point
):
    """Batch 0 reads and only moves the watermark; batch 1 has no input and all the output."""
    from pyspark.sql.functions import col, count, window

    servers = broker.bootstrap_servers
    source, sink = make_topic("in"), make_topic("out")
    produce(servers, source, [b"%d" % second for second in range(0, 1000, 10)])

    def run() -> None:
        counts = (
            spark.readStream.format("eo-kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .load()
            .select(col("value").cast("string").cast("int").cast("timestamp").alias("at"))
            .withWatermark("at", "1 second")
            .groupBy(window("at", "100 seconds"))
            .agg(count("*").alias("n"))
            .selectExpr("concat(cast(window.start as long), ':', n) as value")
        )
        query = (
            counts.writeStream.format("eo-kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", sink)
            .option("jobName", f"job-{sink}")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            assert query.awaitTermination(120)
        finally:
            query.stop()

    crash_points.arm("S8.after_done", "wait")  # of batch 0

    def arm_for_batch_1() -> None:
        crash_points.wait_reached("S8.after_done")
        crash_points.arm(point, "raise")
        crash_points.release("S8.after_done")

    arming = threading.Thread(target=arm_for_batch_1)
    arming.start()
    with pytest.raises(Exception, match="CrashPointReached"):
        run()
    arming.join()
    assert (tmp_path / "checkpoint" / "commits" / "0").exists(), "it was not batch 1 that failed"
    run()
    assert committed(servers, sink) == Counter(b"%d:10" % start for start in range(0, 900, 100))


def test_queries_beside_each_other_leave_each_other_alone(
    broker, make_topic, spark, crash_points, tmp_path
):
    """One broker, one prefix, one output topic, and a job name that begins like another's. While
    the first is about to decide, the other starts, fails, and recovers."""
    servers = broker.bootstrap_servers
    first = make_copy(servers, make_topic, tmp_path / "1", [b"a%d" % n for n in range(200)])
    second = make_copy(servers, make_topic, tmp_path / "2", [b"b%d" % n for n in range(200)])
    second.sink_topic = first.sink_topic
    second.job_name = f"{first.job_name}.c"
    crash_points.arm("S6.before_decision", "wait")
    with first.running(spark) as query:
        crash_points.wait_reached("S6.before_decision")
        fail_at(second, spark, crash_points, "S6.after_decision")
        fail_at(second, spark, crash_points, "S7.after_last_end_txn")
        second.run(spark)
        crash_points.release("S6.before_decision")
        assert query.awaitTermination(120)
    assert_settled(first)
    assert_settled(second)
    both = [b"%c%d" % (letter, number) for letter in b"ab" for number in range(200)]
    assert committed(servers, first.sink_topic) == Counter(both)
    untouched = read_ledger(first).decisions["main", 0]
    assert (untouched.round, untouched.generation) == (0, 1), "its first transactions were ended"
