"""One decision for a topic and an IMap: each row of a batch is in both or in neither, whatever dies
in between, and once."""

from __future__ import annotations

from collections import Counter

import pytest

from eo_kafka.errors import LedgerError
from harness import committed_messages, control_plane
from map_two_phase_job import MapJob, assert_exact, job_of, kill_at, staging_of

FULL = pytest.mark.full


@pytest.fixture
def job(grid, written_map, broker, make_topic) -> MapJob:
    topic = make_topic("changes", partitions=2)
    return job_of(grid, written_map, broker.bootstrap_servers, topic=topic)


def in_topic(job: MapJob) -> Counter:
    """Keys and values that a `read_committed` consumer sees."""
    found = committed_messages(job.given["kafka.bootstrap.servers"], job.given["topic"])
    return Counter(
        (one.key().decode(), None if one.value() is None else one.value().decode()) for one in found
    )


def sent(job: MapJob, *batches: int) -> Counter:
    """What is to be in the topic after these batches."""
    return Counter(
        row for batch in batches for part in range(2) for row in job.entries(batch, part).items()
    )


def killed_at(job: MapJob, crash_points, point: str) -> None:
    """A driver of batch 1, dead at a point."""
    job.run(0)
    kill_at(job, crash_points, point, 1)


def abort(job: MapJob, partitions: set[int]) -> None:
    """What the broker does with transactions that are open for longer than their timeout."""
    with control_plane(job.given["kafka.bootstrap.servers"]) as control:
        found = control.open_transactions(job.options.ids.task_pattern(), job.options.ids.is_task)
        mine = [one.identity for one in found if partition_of(one.transactional_id) in partitions]
        assert len(mine) == len(partitions)
        answers = control.end(mine, commit=False, version=control.end_txn_version())
    assert set(answers.values()) == {"NONE"}


def partition_of(transactional_id: str) -> int:
    return int(transactional_id.split(".p")[1].split(".", maxsplit=1)[0])


@pytest.mark.parametrize(
    "point",
    [
        pytest.param("S5.prepared", marks=FULL),
        "S6.before_decision",
        pytest.param("S6.after_decision", marks=FULL),
        pytest.param("S7.after_first_end_txn", marks=FULL),
        "S7.after_last_end_txn",
        pytest.param("S7.after_chunk", marks=FULL),
        pytest.param("S7.applied", marks=FULL),
    ],
)
def test_both_have_a_batch_or_none_has_it(
    job,
    written_map,
    hazelcast_client,
    crash_points,
    point,
) -> None:
    killed_at(job, crash_points, point)
    if point in ("S5.prepared", "S6.before_decision"):
        assert_exact(job, hazelcast_client, written_map, 0)
        assert in_topic(job) == sent(job, 0)
    job.run(1, 2)
    assert_exact(job, hazelcast_client, written_map, 0, 1, 2)
    assert in_topic(job) == sent(job, 0, 1, 2)


@FULL
@pytest.mark.parametrize("aborted", [{0, 1}, {1}])
def test_what_kafka_aborted_is_not_in_the_map_and_comes_back_in_both(
    job,
    written_map,
    hazelcast_client,
    crash_points,
    aborted,
) -> None:
    killed_at(job, crash_points, "S6.after_decision")
    abort(job, aborted)
    job.prepare(1)  # rolls forward what can be
    visible = job.expected(0) | {
        key: value for part in {0, 1} - aborted for key, value in job.entries(1, part).items()
    }
    assert dict(written_map.entry_set()) == {
        key: one for key, one in visible.items() if one is not None
    }
    job.commit(1)
    assert_exact(job, hazelcast_client, written_map, 0, 1)
    assert in_topic(job) == sent(job, 0, 1)


@FULL
def test_staged_rows_that_are_lost_beside_a_topic_stop_the_query(
    job,
    written_map,
    hazelcast_client,
    crash_points,
) -> None:
    killed_at(job, crash_points, "S7.after_last_end_txn")
    staged = hazelcast_client.get_map(staging_of(job)).blocking()
    lost = next(key for key in staged.key_set() if key.split("/")[4] == "0")
    staged.remove(lost)
    with pytest.raises(LedgerError, match=r"partitions \[0\] had staged for the map .* are lost"):
        job.run(1)
    assert in_topic(job) == sent(job, 0, 1)
    job.given["failOnDataLoss"] = "false"
    job.run(1)
    assert in_topic(job) == sent(job, 0, 1)
    entries = {key: one for key, one in job.entries(1, 1).items() if one is not None}
    of_first = {key: one for key, one in job.entries(0, 0).items() if one is not None}
    assert dict(written_map.entry_set()) == of_first | entries
    del job.given["failOnDataLoss"]
    job.run(2)  # what was given up is not lost once more
    assert dict(written_map.entry_set()).items() >= job.expected(2).items()
