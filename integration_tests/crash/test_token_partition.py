"""What compaction leaves of the ledger's token partition: a token for each task that there ever
was, however many batches were written."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eo_kafka.state.ledger import records
from eo_kafka.state.ledger.log_reader import read_records
from eo_kafka.state.ledger.topics import TOKEN_PARTITION
from hand_made_tasks import HandMadeTasks, StuckTask, batch_of, wait_open
from harness import committed, control_plane

BATCHES = 60
TASKS = (3, 1, 6, 2, 5)  # of the batches, in turn


def tokens(job: HandMadeTasks) -> list[tuple[bytes, bytes | None]]:
    """Every record of the partition, in order."""
    _, ledger = job.options.job_and_ledger
    with control_plane(job.servers) as control:
        end = control.end_offset(ledger, TOKEN_PARTITION, committed=True)
    settings = {"bootstrap.servers": job.servers}
    return [
        (key, value)
        for _, key, value in read_records(settings, ledger, TOKEN_PARTITION, 0, end)
        if not key.startswith(records.barrier_key())
    ]


@pytest.mark.parametrize(
    "commit", ["two-phase", pytest.param("idempotent", marks=pytest.mark.full)]
)
@pytest.mark.full
def test_many_batches_leave_a_token_for_each_sink_and_partition(broker, make_topic, commit):
    first = HandMadeTasks(broker.bootstrap_servers, make_topic("out"), commit)
    second = HandMadeTasks(
        broker.bootstrap_servers, first.topic, commit, query=first.query, name=first.name
    )
    second.options = replace(second.options, sink="second")
    newest: dict[bytes, int] = {}
    rows = 0
    for batch in range(BATCHES):
        count = TASKS[batch % len(TASKS)]
        for job in (first, second):
            plan = job.plan()
            reports = [
                job.write(plan, iter([batch_of(b"a")]), batch=batch, partition=task, attempt=task)
                for task in range(count)
            ]
            job.commit(*reports)
            rows += count
            newest |= {records.token_key(job.options.sink, task): batch for task in range(count)}
    found = tokens(first)
    assert len(found) == rows == committed(first.servers, first.topic)[b"a"]
    live = {
        key: records.decode_token(key, value).batch for key, value in dict(found).items() if value
    }
    assert live == newest
    assert len(live) == 2 * max(TASKS)


def test_a_task_that_is_tried_again_waits_for_no_other_one(broker, make_topic):
    """Each looks whether an earlier attempt had committed. One that goes on to write for long must
    not hide from the others what they look for: they would abort each other."""
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"), "idempotent")
    plan = job.plan()
    for partition in (0, 1):
        with pytest.raises(ZeroDivisionError):
            job.write(plan, _dies(), partition=partition)
    slow = StuckTask(lambda rows: job.write(plan, rows, partition=0, attempt=1), b"slow")
    wait_open(job, 1)
    quick = job.write(plan, iter([batch_of(b"quick")]), partition=1, attempt=1)
    slow.end()
    assert slow.error is None
    job.commit(slow.report, quick)
    assert committed(job.servers, job.topic) == {b"slow": 1, b"quick": 1}


def _dies():
    yield batch_of(b"lost")
    raise ZeroDivisionError
