"""Speculation over a thousand batches: in each, an attempt of a task and a copy of it whose attempt
ids are a multiple of ATTEMPT_SLOTS apart, so that both ask for the same transactional id first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
import pytest
from kafka.admin import KafkaAdminClient

from eo_kafka.clients.kafka.transactional_id import ATTEMPT_SLOTS, GENERATION_SLOTS
from eo_kafka.sinks.batches.committable import TaskReport
from hand_made_tasks import HandMadeTasks, batch_of, wait_open
from harness import committed


class Killed(Exception):
    """What Spark does to an attempt that lost."""


class Race:
    """One batch of one task, written by an attempt and by its copy. `run` gives the report that
    Spark takes; what the other one has left open is left open."""

    def __init__(self, job: HandMadeTasks, batch: int) -> None:
        self.job, self.batch, self.plan = job, batch, job.plan()
        self.value = b"%d" % batch
        self.copied: TaskReport | None = None

    def run(self) -> TaskReport:
        way = (self.first_wins, self.copy_wins, self.first_is_killed, self.copy_is_late)
        return way[self.batch % len(way)]()

    def first_wins(self) -> TaskReport:
        """The copy starts when the first attempt has prepared, and prepares, too."""
        report = self.attempt(0)
        self.copy()
        return report

    def copy_wins(self) -> TaskReport:
        """The first attempt has prepared as well; its report comes later than the copy's."""
        self.attempt(0)
        return self.copy()

    def first_is_killed(self) -> TaskReport:
        """The copy prepares while the first attempt has rows on the broker; then that is killed."""
        with pytest.raises(Killed):
            self.attempt(0, then_killed=True)
        assert self.copied is not None
        return self.copied

    def copy_is_late(self) -> TaskReport:
        """As before, and the first attempt ends first as far as Spark knows."""
        return self.attempt(0, copied_meanwhile=True)

    def attempt(
        self, number: int, *, copied_meanwhile: bool = False, then_killed: bool = False
    ) -> TaskReport:
        def rows() -> Iterator[pa.RecordBatch]:
            yield batch_of(self.value)
            if copied_meanwhile or then_killed:
                wait_open(self.job, 1)  # the first row has reached the broker
                self.copied = self.copy()
            if then_killed:
                raise Killed

        attempt = self.batch + ATTEMPT_SLOTS * number
        return self.job.write(self.plan, rows(), batch=self.batch, attempt=attempt)

    def copy(self) -> TaskReport:
        return self.attempt(1)


def ids_known(job: HandMadeTasks) -> set[str]:
    """All transactional ids of the job that the broker remembers, in whatever state."""
    admin = KafkaAdminClient(bootstrap_servers=job.servers)
    try:
        listed = admin.list_transactions().values()
    finally:
        admin.close()
    names = {one.transactional_id for of_broker in listed for one in of_broker}
    return {name for name in names if job.options.ids.is_task(name)}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("batches", [100, pytest.param(1000, marks=pytest.mark.full)])
def test_a_copy_never_ends_the_attempt_that_is_reported(broker, make_topic, batches):
    job = HandMadeTasks(broker.bootstrap_servers, make_topic("out"))
    for batch in range(batches):
        race = Race(job, batch)
        report = race.run()
        reported = report.prepared
        assert reported is not None
        assert reported.identity in {one.identity for one in job.open()}, "its copy has ended it"
        job.commit(report)
    assert committed(job.servers, job.topic) == Counter(b"%d" % n for n in range(batches))
    assert job.open() == []
    assert len(ids_known(job)) <= GENERATION_SLOTS * ATTEMPT_SLOTS
