"""A join of two streams with a watermark each, whose disk is lost after batches without snapshots.

Of the watermarks Spark keeps in its checkpoint only the least, and forgets how far the other one
was. So a batch that is repeated may have another watermark than it had.
"""

from __future__ import annotations

import json

import pytest

from harness import Stateful, assert_settled, committed, produce
from test_restore_jobs import lose_the_disk

NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
# Of each batch numbers and times of its rows. Even numbers are on the left, odd ones on the right,
# and none has a partner. Watermarks are 10 s behind; for 20 s a partner counts: stateful_job.py.
BATCHES = [
    [(0, 200), (11, 100)],  # the left watermark is 190 from here on
    [(20, 130), (31, 120)],  # the newest snapshot
    [(40, 140), (51, 400)],
    [(60, 410), (71, 410)],  # watermark 190: 40 is written
    [(80, 500), (91, 500)],
    [(100, 600), (111, 600)],
]
BEFORE = 4  # batches before the disk is lost


def rows(*batches: list[tuple[int, int]]) -> list[bytes]:
    """Of these batches."""
    return [
        json.dumps({"k": "k", "n": n, "t": 1_000_000 + t}).encode()
        for batch in batches
        for n, t in batch
    ]


@pytest.fixture
def new_job(broker, make_topic, tmp_path):
    """A join with two rows a batch, whose readers follow the job's ledger."""

    def new(name: str, interval: str) -> Stateful:
        job = Stateful(
            servers=broker.bootstrap_servers,
            source_topic=make_topic(f"in-{name}"),
            sink_topic=make_topic(f"out-{name}"),
            checkpoint=tmp_path / name / "0",
            job_name=f"{name}-{tmp_path.name}",
            per_batch=2,
            operator="join",
            conf={NO_DATA: "false"},
        )
        job.sink_extra["snapshotInterval"] = interval
        job.source_extra["jobName"] = job.job_name
        return job

    return new


def outer(job) -> dict[int, int]:
    """How often each row of the left side was written as one without a partner."""
    found = committed(job.servers, job.sink_topic)
    return {json.loads(value)["l"]: times for value, times in found.items()}


@pytest.mark.full
@pytest.mark.parametrize("interval", ["0", "1 hour"])
def test_without_its_disk_each_row_is_written_once(new_job, spark, interval):
    job = new_job("lost", interval)
    produce(job.servers, job.source_topic, rows(*BATCHES[:BEFORE]))
    job.run(spark)
    assert set(outer(job)) == {20, 40}
    lose_the_disk(job)
    produce(job.servers, job.source_topic, rows(*BATCHES[BEFORE:]))
    job.run(spark)
    assert outer(job) == {0: 1, 20: 1, 40: 1, 60: 1}
    assert_settled(job)


@pytest.mark.full
def test_a_checkpoint_from_a_backup_does_not_come_to_another_watermark_in_silence(new_job, spark):
    job = new_job("old", "0")
    produce(job.servers, job.source_topic, rows(*BATCHES[:BEFORE]))
    job.run(spark)
    put_back(job, 1)
    produce(job.servers, job.source_topic, rows(*BATCHES[BEFORE:]))
    with pytest.raises(Exception, match="watermark"):
        job.run(spark)
    assert set(outer(job).values()) == {1}


def put_back(job, batch: int) -> None:
    """The checkpoint is as it was when `batch` had ended: newer files of its state nobody reads."""
    for path in (*job.checkpoint.glob("offsets/*"), *job.checkpoint.glob("commits/*")):
        if path.name.isdecimal() and int(path.name) > batch:
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink()
