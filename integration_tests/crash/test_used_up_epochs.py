"""An id's epochs are used up after some 16,000 batches, and Kafka gives it another producer id when
it is taken; on Kafka 4 also when a transaction of the last epoch ends, so that none is begun."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from aged_ids import age
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.clients.kafka.transactional_id import GENERATION_SLOTS
from eo_kafka.core.transaction import LAST_EPOCH
from eo_kafka.sinks.protocol.finisher import Finisher
from hand_made_tasks import HandMadeTasks, batch_of
from harness import committed, control_plane
from leaderless import died


def task_ids(job: HandMadeTasks) -> list[str]:
    ids, sink = job.options.ids, job.options.sink
    return [ids.task(sink, 0, generation, 0) for generation in range(GENERATION_SLOTS)]


@pytest.mark.parametrize("last", [LAST_EPOCH - 2, LAST_EPOCH - 1])  # a batch may use two
@pytest.mark.parametrize(
    ("commit", "version"),
    [
        ("two-phase", 2),
        pytest.param("idempotent", 2, marks=pytest.mark.full),
        pytest.param("two-phase", 0, marks=pytest.mark.full),
    ],
)
def test_a_job_goes_on(monkeypatch, commit, version, last):
    """Attempts that nobody reports, and drivers that die before they look, among its batches."""
    with KafkaBroker(features={"transaction.version": version}) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("out", 2)])["out"].result(30)
        job = HandMadeTasks(servers, "out", commit)
        coordinator, tasks = job.options.ids.coordinator, task_ids(job)
        age(servers, {coordinator: last - 8, **dict.fromkeys(tasks, last)})
        rows = [b"%d" % number for number in range(16)]
        for batch, row in enumerate(rows):
            if batch % 3 == 1:
                job.write(job.plan(), iter([batch_of(row)]), batch=batch)
            report = job.write(job.plan(), iter([batch_of(row)]), batch=batch)
            part = report.participant
            assert part is None or part.identity.epoch < LAST_EPOCH
            if batch % 3 != 2 or commit == "idempotent":
                job.commit(report)
                continue
            with monkeypatch.context() as dying:
                dying.setattr(Finisher, "end_others", died)
                with pytest.raises(KeyboardInterrupt):
                    job.commit(report)
        job.plan()
        with control_plane(servers) as control:
            now = control.describe([coordinator, *tasks]).values()
        assert max(one.epoch for one in now) < 100, "each has another producer id"
        assert committed(servers, "out") == Counter(rows)
        assert not job.open()
