"""A view of keyed state follows its query, survives restarts and a second follower; and what
`format("eo-state")` shows of a job."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from pyspark.sql.functions import to_json

import eo_kafka
from eo_kafka.errors import Fenced, OptionsError
from harness import Stateful, produce, read_ledger, wait_until
from test_restore_jobs import (  # noqa: F401 - a fixture
    CHANGELOG,
    ROCKSDB,
    SECOND,
    lose_the_disk,
    new_job,
    settings,
)


@pytest.fixture
def view_of(spark) -> Iterator:
    """Makes views, and ends them."""
    made = []

    def make(job: Stateful, name: str = "totals", **state: str) -> eo_kafka.StateView:
        options = {"kafka.bootstrap.servers": job.servers}
        found = eo_kafka.StateView(
            spark, str(job.checkpoint), job.job_name, name, options, state=state
        )
        made.append(found)
        return found

    yield make
    for view in made:
        view.close()


def shown(job: Stateful, spark, name: str = "totals") -> dict[str, str]:
    rows = read(job, spark, "view", view=name).collect()
    assert len({row["key"] for row in rows}) == len(rows)
    return {row["key"]: row["value"] for row in rows}


def read(job: Stateful, spark, what: str, **options: str):
    reader = spark.read.format("eo-state").option("kafka.bootstrap.servers", job.servers)
    return reader.option("jobName", job.job_name).options(read=what, **options).load()


def state(job: Stateful, spark, **options: str) -> dict[str, str]:
    """The same from Spark's reader, all of it."""
    as_json = {"timeZone": "UTC", "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}
    with settings(spark, job.conf):
        reader = spark.read.format("statestore").option("path", str(job.checkpoint))
        found = reader.options(**options).load()
        rows = found.select(
            to_json("key", as_json).alias("k"), to_json("value", as_json).alias("v")
        )
        return {row["k"]: row["v"] for row in rows.collect()}


@pytest.mark.parametrize(
    ("operator", "conf", "of"),
    [
        pytest.param("window", {}, {}, marks=pytest.mark.full),
        ("window", ROCKSDB, {}),
        ("rows", CHANGELOG, {"stateVarName": "total"}),
    ],
    ids=["window-hdfs", "window-rocksdb", "rows-changelog"],
)
def test_a_view_is_the_state_of_the_newest_batch(new_job, spark, view_of, operator, conf, of):  # noqa: F811
    job = new_job("viewed", operator=operator, conf=conf)
    job.run(spark)
    view = view_of(job, **of)
    first = view.refresh()
    before = shown(job, spark)
    assert before
    assert before == state(job, spark, **of)
    produce(job.servers, job.source_topic, SECOND)
    job.run(spark)
    assert view.refresh() > first
    assert shown(job, spark) == state(job, spark, **of) != before
    assert view_of(job, **of).refresh() > first  # another driver goes on with it


def test_a_view_follows_a_running_query_and_a_restored_one(new_job, spark, view_of):  # noqa: F811
    job = new_job("followed")
    with job.running(spark) as query:
        view = view_of(job).follow(query)
        assert query.awaitTermination(180)
        wait_until(lambda: not view._thread.is_alive(), "the follower ends with its query")
    assert view.error is None
    assert shown(job, spark) == state(job, spark)
    lose_the_disk(job)
    produce(job.servers, job.source_topic, SECOND)
    job.run(spark)
    view_of(job).refresh()
    assert shown(job, spark) == state(job, spark)


@dataclass
class Idle:
    """A query that runs and has no more batches."""

    lastProgress: object
    isActive: bool = True


class Gone:
    """A query whose Spark has ended."""

    @property
    def isActive(self) -> bool:
        raise ConnectionRefusedError("no Java")


def test_a_refresh_that_failed_is_tried_again_without_another_batch(new_job, spark, view_of):  # noqa: F811
    job = new_job("retried")
    with job.running(spark) as query:
        assert query.awaitTermination(180)
        idle = Idle(query.lastProgress)
    metadata = job.checkpoint / "metadata"
    hidden = metadata.rename(job.checkpoint / "hidden")
    view = view_of(job).follow(idle)
    wait_until(lambda: view.error is not None, "a refresh fails")
    hidden.rename(metadata)
    wait_until(lambda: view.error is None, "a refresh succeeds")
    assert shown(job, spark) == state(job, spark)


def test_a_follower_says_that_it_cannot_ask_its_query(new_job, view_of):  # noqa: F811
    view = view_of(new_job("orphan")).follow(Gone())
    wait_until(lambda: not view._thread.is_alive(), "the follower ends")
    assert isinstance(view.error, ConnectionRefusedError)


def test_a_newer_follower_shuts_the_older_one_out(new_job, spark, view_of):  # noqa: F811
    job = new_job("contested")
    job.run(spark)
    older = view_of(job)
    older.refresh()
    newer = view_of(job)
    produce(job.servers, job.source_topic, SECOND)
    job.run(spark)
    with pytest.raises(Fenced):
        older.refresh()
    newer.refresh()
    assert shown(job, spark) == state(job, spark)


def test_a_view_of_another_query_is_made_anew(new_job, spark, view_of):  # noqa: F811
    """The job was reset, and its new query counts from nothing."""
    job = new_job("again")
    job.run(spark)
    view_of(job).refresh()
    shutil.rmtree(job.checkpoint)
    job.job_name, name = f"{job.job_name}-2", job.job_name
    job.per_batch = 20
    job.run(spark)
    job.job_name = name
    view_of(job).refresh()
    assert shown(job, spark) == state(job, spark)


def test_what_cannot_be_viewed_is_said(new_job, spark, view_of):  # noqa: F811
    job = new_job("joined")
    with pytest.raises(OptionsError, match="several rows for a key"):
        view_of(job, joinSide="left")
    with pytest.raises(Exception, match="no view 'nothing'.*StateView"):
        shown(job, spark, "nothing")
    with pytest.raises(Exception, match="Option 'view' must be specified"):
        read(job, spark, "view")
    with pytest.raises(Exception, match="Option 'read' must be one of snapshots"):
        read(job, spark, "everything")


@pytest.mark.smoke
def test_snapshots_files_operators_and_offsets_are_tables(new_job, spark):  # noqa: F811
    job = new_job("tables")
    job.run(spark)
    eo_kafka.export_snapshot(job.job_name, "kept", {"kafka.bootstrap.servers": job.servers})
    head = read_ledger(job).snapshot
    found = {row["name"]: row for row in read(job, spark, "snapshots").collect()}
    assert found.keys() == {"latest", "kept"}
    assert found["latest"]["batch"] == found["kept"]["batch"] == head.batch
    assert found["latest"]["files"] == head.files
    files = read(job, spark, "files", snapshot="kept")
    assert files.count() == head.files
    assert files.selectExpr("sum(bytes)").collect()[0][0] == head.size
    (operator,) = read(job, spark, "operators").collect()
    assert (operator["operator"], operator["name"]) == (0, "stateStoreSave")
    assert (operator["partitions"], operator["stores"]) == (2, ["default"])
    (offsets,) = read(job, spark, "offsets").collect()
    assert job.source_topic in json.loads(offsets["offsets"])


@pytest.fixture
def counted(spark, tmp_path, make_topic):
    """A query without Kafka that counts lines by something of theirs; gives a view's arguments."""

    def run(by: str, lines: list[str]) -> tuple[str, str]:
        (tmp_path / "lines").mkdir(exist_ok=True)
        number = len(list((tmp_path / "lines").iterdir()))
        (tmp_path / f"lines/{number}").write_text("".join(f"{line}\n" for line in lines))
        rows = spark.readStream.text(str(tmp_path / "lines")).selectExpr(f"{by} AS k")
        writer = rows.groupBy("k").count().writeStream.format("noop").outputMode("update")
        writer = writer.option("checkpointLocation", str(tmp_path / "counted"))
        assert writer.trigger(availableNow=True).start().awaitTermination(120)
        return str(tmp_path / "counted"), f"counted-{tmp_path.name}"

    return run


@pytest.mark.parametrize("kind", ["TIMESTAMP", "TIMESTAMP_NTZ"])
def test_keys_of_one_millisecond_are_two(spark, broker, counted, kind):
    """Spark's own JSON cuts times to the millisecond."""
    lines = ["2026-01-01 00:00:00.123456", "2026-01-01 00:00:00.123457"]
    checkpoint, job = counted(f"CAST(value AS {kind})", lines)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    view = eo_kafka.StateView(spark, checkpoint, job, kind, options)
    view.refresh()
    counted(f"CAST(value AS {kind})", lines[:1])
    view.refresh()
    view.close()
    reader = spark.read.format("eo-state").options(**options, jobName=job)
    rows = reader.options(read="view", view=kind).load().collect()
    assert sorted(json.loads(row["value"])["count"] for row in rows) == [1, 2], rows


def test_a_view_that_is_given_another_state_shows_that(new_job, spark, view_of):  # noqa: F811
    """Under the same name, and of the same batch."""
    job = new_job("chosen", operator="join")
    job.run(spark)
    stores = [{"storeName": f"{side}-keyToNumValues"} for side in ("left", "right")]
    of = [state(job, spark, **store) for store in stores]
    assert of[0] != of[1]
    for store, expected in zip(stores, of, strict=True):
        view = view_of(job, **store)
        view.refresh()
        assert shown(job, spark) == expected
