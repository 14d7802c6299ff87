"""Is each order in the output once, whatever dies? Run `pytest`: it starts what it needs."""

from __future__ import annotations

import uuid

import orders
import pytest

from conftest import Tested
from eo_kafka.testing.plugin import Queues
from generate import records
from model import expected
from pipeline import Settings
from rows import START
from streams import typed

COUNT = 300


@pytest.fixture
def settings(tested: Tested, eo_rabbitmq: Queues) -> Settings:
    """Of the job, with a queue and an inbox of this test's own."""
    name = f"orders-{uuid.uuid4().hex[:12]}"
    own = {"url": eo_rabbitmq.url, "source": name, "inbox": f"{name}.inbox"}
    tested.job.config |= own
    return typed(Settings, tested.job.config)


def test_each_order_is_there_once_though_driver_disk_and_task_are_lost(
    tested: Tested, settings: Settings
) -> None:
    made = [*records(COUNT, START)]
    third = len(made) // 3
    orders.publish(settings.url, settings.source, made[:third])
    tested.job.run()
    orders.publish(settings.url, settings.source, made[third : 2 * third])
    # They are in the inbox, and the queue does not know: it delivers them again
    tested.job.run(crash="queue.after_commit", until="crashed")
    tested.job.lose_checkpoint()
    orders.publish(settings.url, settings.source, made[2 * third :])
    tested.job.run(crash="S3.while_writing", how="kill")  # one task; Spark tries it again
    wanted = expected(made, settings)["sink"]
    assert sorted(tested.rows("sink"), key=str) == sorted(wanted, key=str)
    assert orders.waiting(settings.url, settings.source) == 0
