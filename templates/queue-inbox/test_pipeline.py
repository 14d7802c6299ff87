"""Is each order in the output once, whatever dies? Run `pytest`: it starts what it needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import orders
from conftest import Tested
from eo_kafka.broker.rabbitmq import RabbitMQ
from eo_kafka.testing import Broker
from generate import records
from model import expected
from pipeline import Settings
from rows import START
from streams import typed

COUNT = 300


@pytest.fixture
def rabbitmq() -> Iterator[RabbitMQ]:
    """A real one of this test's own. Fails, and says why, where it is not installed."""
    with RabbitMQ() as server:
        yield server


@pytest.fixture
def settings(tested: Tested, rabbitmq: RabbitMQ, eo_broker: Broker) -> Settings:
    """Of the job, with an inbox of this test's own."""
    inbox = eo_broker.topic("inbox").real_name
    tested.job.config |= {"url": rabbitmq.url, "source": "orders", "inbox": inbox}
    return typed(Settings, tested.job.config)


def test_each_order_is_there_once_though_driver_disk_task_and_rabbitmq_are_lost(
    tested: Tested, settings: Settings, rabbitmq: RabbitMQ
) -> None:
    made = [*records(COUNT, START)]
    third = len(made) // 3
    orders.publish(settings.url, settings.source, made[:third])
    tested.job.run()
    orders.publish(settings.url, settings.source, made[third : 2 * third])
    tested.job.run(crash="queue.after_commit", until="crashed")
    tested.job.lose_checkpoint()
    rabbitmq.kill()
    rabbitmq.start()
    # They are in the inbox, and the queue does not know: it delivers them again
    assert orders.waiting(settings.url, settings.source) == third
    orders.publish(settings.url, settings.source, made[2 * third :])
    tested.job.run(crash="S3.while_writing", how="kill")  # one task; Spark tries it again
    wanted = expected(made, settings)["sink"]
    assert sorted(tested.rows("sink"), key=str) == sorted(wanted, key=str)
    assert orders.waiting(settings.url, settings.source) == 0
