"""Is each event in its topic, once and in order, whatever dies? Run `pytest`: it starts a Kafka."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest

from conftest import Tested
from eo_kafka.testing import Broker, assert_nothing_open
from generate import TOPICS, records
from model import TOPIC_OF, inserted
from rows import START

COUNT = 400


@pytest.fixture(autouse=True)
def partitions(eo_broker: Broker) -> None:
    """The topics have several."""
    for role in TOPICS:
        eo_broker.topic(role, partitions=3)


def test_each_event_is_there_once_in_order_though_driver_disk_and_task_are_lost(
    tested: Tested,
) -> None:
    made = [*records(COUNT, START)]
    tested.write(made[: len(made) // 2])
    tested.job.run(crash="S7.after_first_end_txn", until="crashed")  # it is decided, half is seen
    tested.job.lose_checkpoint()
    tested.write(made[len(made) // 2 :])
    tested.job.run(crash="S3.while_writing", how="kill")  # one task; Spark tries it again
    wanted: dict[str, dict[str, list[Any]]] = {
        topic: defaultdict(list) for topic in TOPIC_OF.values()
    }
    for event in inserted(made):
        headers = [("id", event["id"].encode()), ("type", event["type"].encode())]
        told = (json.loads(event["payload"]), headers)
        wanted[TOPIC_OF[event["aggregatetype"]]][event["aggregateid"]].append(told)
    for topic, of_keys in wanted.items():
        found: dict[str, list[Any]] = defaultdict(list)
        for one in tested.topics[topic].read():
            found[(one.key or b"").decode()].append((json.loads(one.value or b""), [*one.headers]))
        assert found == of_keys, topic
    assert_nothing_open()
