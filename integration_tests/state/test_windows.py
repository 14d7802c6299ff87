"""`eo_kafka.windows` on Spark and Kafka: what comes out is what a model of few lines says, with
late rows among it, whatever dies."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from datetime import datetime
from itertools import pairwise

import pytest
from confluent_kafka import Producer
from pyspark.sql import functions as f

from eo_kafka import windows
from eo_kafka.errors import OptionsError
from eo_kafka.state.snapshots.operators import descriptions
from eo_kafka.state.snapshots.processing_time import operator_by_the_clock
from harness import (
    Stateful,
    assert_settled,
    committed,
    fail_at,
    kill_driver_at,
    produce,
    read_ledger,
)
from test_restore_jobs import CHANGELOG, lose_the_disk

PER_BATCH = 50
LAG, LATENESS = 10, 8  # seconds, as in jobs/stateful_job.py
SHAPES = {"tumbling": (10, 10), "sliding": (10, 4)}


@pytest.fixture
def new_job(broker, make_topic, tmp_path):
    """A job with windows, its input, and the topic of its late rows."""

    def new(operator: str, **settings) -> Stateful:
        job = Stateful(
            servers=broker.bootstrap_servers,
            source_topic=make_topic("in", partitions=settings.pop("partitions", 1)),
            sink_topic=make_topic("windows"),
            checkpoint=tmp_path / operator / "0",
            job_name=f"{operator}-{tmp_path.name}",
            per_batch=PER_BATCH,
            operator=operator,
            **settings,
        )
        job.conf = {**CHANGELOG, **job.conf}
        job.late_topic = make_topic("late")
        return job

    return new


def events(job, start: int, end: int) -> list[dict]:
    """A second of event time for four events. Each seventh comes 15 s late, which may be in time
    for its window, and each eleventh 40 s, which is not. One has no time."""
    late = {7: 15, 11: 40}
    times = {
        n: 1_000_000 + n // 4 - sum(late[by] for by in late if n % by == 0) for n in range(end)
    }
    times[130] = None
    return [
        {
            "k": f"{n % 3}@{job.sink_topic}@{job.late_topic}",
            "n": n,
            "t": None
            if n == 130
            else 1_000_000 + n // 4 - sum(late[by] for by in late if n % by == 0),
        }
        for n in range(start, end)
    ]


def put(job, found: list[dict]) -> None:
    produce(job.servers, job.source_topic, [json.dumps(event).encode() for event in found])


def modelled(batches: list[list[dict]], size: int, slide: int) -> tuple[dict, Counter]:
    """What each window holds, and which rows are late for which: from the watermark of each batch,
    that is from the batches before it."""
    windows, late = defaultdict(list), Counter()
    newest = 0
    for batch in batches:
        watermark = newest - LAG
        for event in batch:
            if event["t"] is None:
                late[event["n"], None] += 1
                continue
            first = (event["t"] - size) // slide * slide + slide
            for start in range(first, event["t"] + 1, slide):
                if newest and start + size + LATENESS <= watermark:
                    late[event["n"], start] += 1
                else:
                    windows[event["k"], start].append(event["n"])
        newest = max(newest, *(event["t"] or 0 for event in batch))
    return {window: sorted(ids) for window, ids in windows.items()}, late


def seconds(text: str | None) -> int | None:
    if text is None:
        return None
    return int(datetime.fromisoformat(text).timestamp())


def results(job) -> tuple[dict, Counter]:
    """The windows' newest results, and the late rows, from the two topics."""
    newest: dict = {}
    for value, times in committed(job.servers, job.sink_topic).items():
        row = json.loads(value)
        assert times == 1, row
        assert row["c"] == len(row["ids"])
        window = row["k"], seconds(row["window_start"]), row["window_end"]
        assert window not in newest or newest[window]["revision"] != row["revision"], row
        if window not in newest or newest[window]["revision"] < row["revision"]:
            newest[window] = row
    late = Counter()
    for value, times in committed(job.servers, job.late_topic).items():
        row = json.loads(value)
        assert row["kind"] == "late"
        late[row["late_row"]["n"], seconds(row.get("window_start"))] += times
    kept = {
        (k, start): sorted(row["ids"])
        for (k, start, _), row in newest.items()
        if row["kind"] != "retracted"
    }
    return kept, late


def batches(found: list[dict]) -> list[list[dict]]:
    return [found[n : n + PER_BATCH] for n in range(0, len(found), PER_BATCH)]


@pytest.mark.parametrize("operator", [pytest.param("tumbling", marks=pytest.mark.full), "sliding"])
def test_each_row_is_in_the_windows_that_it_is_in_time_for_and_late_for_the_others(
    new_job, spark, operator
):
    job = new_job(operator)
    found = events(job, 0, 400)
    put(job, found)
    job.run(spark)
    windows, late = results(job)
    assert (windows, late) == modelled(batches(found), *SHAPES[operator])
    assert sum(late.values()) > 20
    assert sum(map(len, windows.values())) > 300


@pytest.mark.parametrize(
    ("operator", "point"),
    [
        ("tumbling", "S6.after_decision"),
        pytest.param("tumbling", "S6.before_decision", marks=pytest.mark.full),
        pytest.param("tumbling", "S3.while_writing", marks=pytest.mark.full),
        pytest.param("sliding", "S8.after_done", marks=pytest.mark.full),
        pytest.param("sliding", "S5.prepared", marks=pytest.mark.full),
    ],
)
def test_rows_in_windows_and_late_rows_are_the_input_after_kills_and_without_the_disk(
    new_job, spark, crash_points, tmp_path, operator, point
):
    job = new_job(operator)
    first, second = events(job, 0, 200), events(job, 200, 400)
    put(job, first)
    kill_driver_at(job, crash_points, point, tmp_path / "log")
    job.run(spark)
    put(job, second)
    fail_at(job, spark, crash_points, "S6.after_decision")
    lose_the_disk(job)
    job.run(spark)
    assert results(job) == modelled([*batches(first), *batches(second)], *SHAPES[operator])
    assert_settled(job)


@pytest.mark.full
def test_batches_since_a_snapshot_come_back_with_their_watermarks(new_job, spark):
    job = new_job("tumbling", conf={"spark.sql.streaming.noDataMicroBatches.enabled": "false"})
    job.sink_extra["snapshotInterval"] = "1 hour"
    job.source_extra["jobName"] = job.job_name
    first, second = events(job, 0, 250), events(job, 250, 400)
    put(job, first)
    job.run(spark)
    assert read_ledger(job).snapshot.batch < 4, "batches after it have none"
    lose_the_disk(job)
    put(job, second)
    job.run(spark)
    assert results(job) == modelled([*batches(first), *batches(second)], *SHAPES["tumbling"])


def test_each_row_is_in_one_session_or_late_without_the_disk(new_job, spark, crash_points):
    job = new_job("sessions")
    found = events(job, 0, 400)
    put(job, found)
    fail_at(job, spark, crash_points, "S6.after_decision")
    lose_the_disk(job)
    job.run(spark)
    windows, late = results(job)
    counted = Counter(n for ids in windows.values() for n in ids)
    counted.update(n for n, _ in late.elements())
    assert counted == Counter(range(400))
    assert len(windows) > 3
    assert late
    by_key = defaultdict(list)
    at = {event["n"]: event["t"] for event in found}
    for (k, start), ids in windows.items():
        assert start == min(at[n] for n in ids)
        by_key[k].append((start, max(at[n] for n in ids) + 3))
    for one in by_key.values():
        one.sort()
        assert all(before[1] < after[0] for before, after in pairwise(one))
    kinds = Counter(json.loads(value)["kind"] for value in committed(job.servers, job.sink_topic))
    assert kinds["retracted"]


def test_a_partition_that_is_behind_holds_the_watermark_and_an_idle_one_is_let_go(new_job, spark):
    chained = {"spark.sql.streaming.statefulOperator.allowMultiple": "false"}
    job = new_job("by_partition", partitions=2, conf=chained)

    def batch(*rows: tuple[int, int, int]) -> None:
        """(partition, number, time): a run of the job reads all of them."""
        for partition, n, t in rows:
            event = {"k": f"a@{job.sink_topic}@{job.late_topic}", "n": n, "t": 1_000_000 + t}
            write_to(job, partition, event)
        job.run(spark)

    def late() -> set[int]:
        return {n for n, _ in results(job)[1]}

    batch((0, 1, 0), (1, 2, 0))
    batch((0, 3, 39))
    batch((0, 4, 1), (1, 5, 1))  # the watermark is that of partition 1: before all
    assert late() == set()
    batch((0, 6, 100))  # partition 1 counts as no further behind than 40 s
    batch((1, 7, 2), (1, 8, 95))
    assert late() == {7}
    windows, _ = results(job)
    assert sorted(n for ids in windows.values() for n in ids) == [1, 2, 3, 4, 5, 6, 8]
    files = {str(path.relative_to(job.checkpoint)): path for path in job.checkpoint.rglob("*")}
    described = {name: files[name].read_bytes() for name in descriptions(files)}
    assert operator_by_the_clock(described), "each batch takes a snapshot"


def write_to(job, partition: int, event: dict) -> None:
    producer = Producer({"bootstrap.servers": job.servers})
    producer.produce(job.source_topic, json.dumps(event), partition=partition)
    assert producer.flush(30) == 0


def test_all_that_is_wrong_is_told_at_once_before_anything_starts(spark):
    rows = spark.readStream.format("rate").load().withWatermark("timestamp", "1 second")
    with pytest.raises(OptionsError) as refused:
        windows.sliding(
            rows.withColumnRenamed("value", "kind"),
            time="kind",
            size="1 hour",
            slide="2 hours",
            by=["kind", "nothing", "timestamp"],
            aggregates={"late_row": windows.count(), "n": windows.sum("price")},
            watermark=windows.by_partition("1 second", partitions=2),
            allowed_lateness="a while",
        )
    for sentence in (
        "allowed_lateness='a while': must be a time",
        "slide: must not be longer than size",
        "time='kind': must be of type TIMESTAMP, and is bigint",
        "events: has a watermark already",
        "by: the rows have no column 'nothing'",
        "by: column 'timestamp' is or holds a TIMESTAMP",
        "aggregates['n']: the rows have no column 'price'",
        "Column 'kind' would be twice in the output",
        "Column 'late_row' would be twice in the output",
        "needs spark.sql.streaming.statefulOperator.allowMultiple=false in the session",
        "the rows have no column 'partition'",
        "keeps state in another store than RocksDB",
    ):
        assert sentence in str(refused.value)
    pause = rows.withColumn("pause", f.make_dt_interval(secs=f.lit(1)))
    with pytest.raises(OptionsError, match=r"aggregates\['m'\]: column 'pause' .* INTERVAL"):
        windows.tumbling(
            pause,
            time="timestamp",
            size="1 s",
            aggregates={"m": windows.max("pause")},
            watermark="1 s",
        )
    with pytest.raises(OptionsError, match="type TIMESTAMP, and it is BIGINT.*ahead never comes"):
        windows.custom(f.unix_millis).applied(rows, "timestamp")
    windows.custom(lambda at: f.lit(None)).applied(rows, "timestamp")
    with pytest.raises(OptionsError, match="must be a streaming DataFrame"):
        windows.tumbling(spark.range(1), time="id", size="1 s", aggregates={}, watermark="1 s")
