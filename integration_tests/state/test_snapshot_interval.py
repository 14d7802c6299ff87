"""A job that lost its disk many batches after its newest snapshot: it repeats these batches as they
were, whatever has come and changed since, with nothing lost or repeated and with the same state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness import (
    Stateful,
    assert_settled,
    committed,
    kill_group,
    produce,
    read_ledger,
    started,
    wait_until,
)
from test_restore_jobs import (  # noqa: F401 - a fixture
    FIRST,
    PROVIDERS,
    SECOND,
    lose_the_disk,
    new_job,
    state_of,
)

# A batch without data takes a snapshot; a run that ends without one leaves many batches after it.
NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
PER_BATCH = 20
BATCHES = -(-len(FIRST) // PER_BATCH)
NEWEST_SNAPSHOT = 1  # batch 0 does not count: where it starts, no log of Spark's says


@dataclass
class Interval(Stateful):
    """A query whose sink takes a snapshot an hour, and whose readers follow the job's ledger."""

    follows: bool = True
    interval: str = "1 hour"
    sink_extra: dict[str, str] = field(default_factory=dict)

    def as_job(self) -> dict[str, object]:
        found = super().as_job()
        found["sink_options"]["snapshotInterval"] = self.interval
        if self.follows:
            found["source_options"]["jobName"] = self.job_name
        return found


@pytest.fixture
def new_interval_job(new_job):  # noqa: F811 - the fixture
    """Jobs with an interval, which have read the first half of the input in many batches."""

    def new(spark, **settings) -> Interval:
        plain = new_job("lost", **settings)
        job = Interval(**{**vars(plain), "per_batch": PER_BATCH})
        job.conf = {**plain.conf, NO_DATA: "false"}
        job.run(spark)
        job.conf = plain.conf
        assert list(recorded(job)) == list(range(BATCHES))
        assert newest_snapshot(job) == NEWEST_SNAPSHOT
        return job

    return new


def recorded(job: Stateful) -> dict[int, tuple[str, ...]]:
    """Where the sources of each batch ended, as the ledger says."""
    return {batch: found.offsets for batch, found in read_ledger(job).of_sink("main").items()}


def newest_snapshot(job: Stateful) -> int:
    head = read_ledger(job).snapshot
    assert head is not None
    return head.batch


def in_checkpoint(job: Stateful) -> dict[int, tuple[str, ...]]:
    """Where the sources of each batch ended, as Spark's log says."""
    return {
        int(path.name): tuple(path.read_text().split("\n")[2:])
        for path in (job.checkpoint / "offsets").iterdir()
        if path.name.isdecimal()
    }


def loses_the_disk_and_all_changes(job: Interval) -> None:
    """The next run finds no checkpoint, more input, and may read other numbers at a time."""
    lose_the_disk(job)
    produce(job.servers, job.source_topic, SECOND)
    job.per_batch = 33


def assert_all_as_if_nothing_had_happened(job: Interval, same: Stateful, spark) -> None:
    assert committed(job.servers, job.sink_topic) == committed(same.servers, same.sink_topic)
    assert state_of(job, spark) == state_of(same, spark)
    assert_settled(job)


@pytest.mark.parametrize(
    ("operator", "provider", "policy"),
    [
        ("window", "hdfs", "min"),
        # Two readers of one topic, in step. Of two watermarks the least would not be repeated.
        pytest.param("join", "hdfs", "max", marks=pytest.mark.full),
        pytest.param("rows", "changelog", "min", marks=pytest.mark.full),
    ],
)
def test_batches_since_the_snapshot_come_back_as_they_were(
    new_job,  # noqa: F811
    new_interval_job,
    spark,
    operator,
    provider,
    policy,
    caplog,
):
    conf = {**PROVIDERS[provider], "spark.sql.streaming.multipleWatermarkPolicy": policy}
    job = new_interval_job(spark, operator=operator, conf=conf)
    same = new_job("same", operator=operator, conf=conf)
    before = recorded(job)
    loses_the_disk_and_all_changes(job)
    job.run(spark)
    (warned,) = [said for said in caplog.messages if "are run again" in said]
    assert f"Batches {NEWEST_SNAPSHOT} to {BATCHES - 1} of job '{job.job_name}'" in warned
    after = recorded(job)
    assert {batch: after[batch] for batch in before} == before
    assert len(after) > len(before)
    replayed = in_checkpoint(job)
    assert {batch: replayed[batch] for batch in range(1, BATCHES)} == {
        batch: before[batch] for batch in range(1, BATCHES)
    }
    same.run(spark)
    assert_all_as_if_nothing_had_happened(job, same, spark)


@contextmanager
def killed_in_the_middle_of_the_replay(job: Interval, log: Path) -> Iterator[None]:
    """A driver of its own, killed when it has repeated some batches, and not all."""
    middle = BATCHES // 2
    with started(job, log) as driver:
        done = job.checkpoint / "commits" / str(middle)
        wait_until(lambda: done.exists() or driver.poll() is not None, "half is repeated", 120)
        kill_group(driver)
    ended = max(int(path.name) for path in done.parent.iterdir() if path.name.isdecimal())
    assert middle <= ended < BATCHES - 1, f"killed at batch {ended}:\n{log.read_text()[-4000:]}"
    yield


@pytest.mark.full
@pytest.mark.parametrize("disk", ["kept", "lost again"])
def test_a_replay_that_is_killed_goes_on(new_job, new_interval_job, spark, tmp_path, disk):  # noqa: F811
    job, same = new_interval_job(spark), new_job("same")
    loses_the_disk_and_all_changes(job)
    with killed_in_the_middle_of_the_replay(job, tmp_path / "log"):
        assert newest_snapshot(job) == NEWEST_SNAPSHOT
        if disk == "lost again":
            lose_the_disk(job)
        job.per_batch = 7
        job.run(spark)
    same.run(spark)
    assert_all_as_if_nothing_had_happened(job, same, spark)


@pytest.mark.full
def test_a_reader_that_does_not_follow_stops_the_query(new_job, new_interval_job, spark):  # noqa: F811
    job, same = new_interval_job(spark), new_job("same")
    before = committed(job.servers, job.sink_topic)
    loses_the_disk_and_all_changes(job)
    job.follows = False
    with pytest.raises(Exception, match=r"batch 2 that comes now is another one.*option 'jobName'"):
        job.run(spark)
    assert committed(job.servers, job.sink_topic) == before
    lose_the_disk(job)
    job.follows = True
    job.run(spark)
    same.run(spark)
    assert_all_as_if_nothing_had_happened(job, same, spark)


def test_the_first_new_batch_of_each_start_takes_a_snapshot(new_interval_job, spark):
    """Other code may have been started: what the old one decided must not be run again by it."""
    job = new_interval_job(spark)
    produce(job.servers, job.source_topic, SECOND)
    job.conf = {**job.conf, NO_DATA: "false"}
    job.run(spark)
    assert newest_snapshot(job) == BATCHES
    assert max(recorded(job)) > BATCHES + 1, "and none after it"


def test_after_the_interval_there_is_a_snapshot_again(new_interval_job, spark):
    job = new_interval_job(spark)
    produce(job.servers, job.source_topic, SECOND)
    job.interval = "1 ms"
    job.run(spark)
    assert newest_snapshot(job) == max(recorded(job))
    assert Counter(map(len, recorded(job).values())) == {1: len(recorded(job))}
