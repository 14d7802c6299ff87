"""Attempts of a task share eight transactional ids. None ends what another attempt of its own
generation has open: that may be the one that was reported."""

from __future__ import annotations

from collections import Counter

import pytest

from eo_kafka.clients.kafka.transactional_id import ATTEMPT_SLOTS
from eo_kafka.errors import WriteFailed
from hand_made_tasks import HandMadeTasks, StuckTask, batch_of, wait_open
from harness import committed


@pytest.fixture
def job(broker, make_topic) -> HandMadeTasks:
    return HandMadeTasks(broker.bootstrap_servers, make_topic("out"))


@pytest.mark.parametrize("reported", [0, 1], ids=["the-first", "the-second"])
def test_two_attempts_whose_numbers_differ_by_eight_leave_each_other_alone(job, reported):
    plan = job.plan()
    both = [job.write(plan, iter([batch_of(b"a")]), attempt=5 + ATTEMPT_SLOTS * n) for n in (0, 1)]
    assert len(job.open()) == 2
    job.commit(both[reported])
    assert committed(job.servers, job.topic) == Counter([b"a"])
    assert job.open() == []


def test_a_stage_that_runs_again_beside_a_live_attempt_of_its_first_run(job):
    """Its tasks get new attempt ids, any; the zombie's is one of the same eight."""
    plan = job.plan()
    zombie = StuckTask(lambda rows: job.write(plan, rows, attempt=3), b"zombie")
    wait_open(job, 1)
    again = job.write(plan, iter([batch_of(b"a")]), attempt=3 + 2 * ATTEMPT_SLOTS)
    assert again.participant is not None
    used = {found.transactional_id for found in job.open()}
    assert len(used) == 2
    zombie.end()  # its stage is over, and its report with it
    assert zombie.error is None, "it was hit by the other"
    job.commit(again)
    assert committed(job.servers, job.topic) == Counter([b"a"])
    assert job.open() == []


def test_many_attempts_in_many_batches(job):
    """Speculation over many batches: a loser that prepared, and a winner, in every slot."""
    for batch in range(12):
        plan = job.plan()
        reports = [
            job.write(plan, iter([batch_of(b"%d" % batch)]), batch=batch, attempt=batch + 8 * n)
            for n in range(2)
        ]
        job.commit(reports[batch % 2])
    assert committed(job.servers, job.topic) == Counter(b"%d" % batch for batch in range(12))
    assert job.open() == []


def test_a_ninth_attempt_is_refused_and_ends_none(job):
    plan = job.plan()
    reports = [
        job.write(plan, iter([batch_of(b"a")]), attempt=attempt) for attempt in range(ATTEMPT_SLOTS)
    ]
    with pytest.raises(WriteFailed, match="8 attempts of this task have open transactions"):
        job.write(plan, iter([batch_of(b"a")]), attempt=ATTEMPT_SLOTS)
    assert len(job.open()) == ATTEMPT_SLOTS
    job.commit(reports[4])
    assert committed(job.servers, job.topic) == Counter([b"a"])
