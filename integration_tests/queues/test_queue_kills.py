"""Receivers that are killed at any moment, often two at once, while messages come, some of them
twice, and RabbitMQ is killed, too."""

from __future__ import annotations

import random
import threading
import time

import pytest

from harness import committed
from queue_job import copy_of, kill_receivers, new_queue, numbered, once, publish, waiting

SECONDS = 40
MESSAGES = 6000


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_no_kill_at_any_moment_loses_or_repeats_a_message(
    own_rabbitmq, broker, make_topic, tmp_path, kind
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    queue = new_queue(own_rabbitmq.url, kind)
    servers = broker.bootstrap_servers
    job = copy_of(own_rabbitmq.url, servers, make_topic, tmp_path, queue=queue)
    job.given = {"prefetch": "50", "dedupWindow": "10000", "maxDeliveries": "1000"}
    ids = numbered(MESSAGES)
    up = threading.Lock()  # a publisher needs RabbitMQ, and repeats what was not confirmed

    def publish_all() -> None:
        for first in range(0, MESSAGES, 40):
            again = ids[max(0, first - 200) : first]
            with up:
                publish(job.url, queue, ids[first : first + 40])
                publish(job.url, queue, chance.sample(again, min(3, len(again))))
            time.sleep(SECONDS / (MESSAGES / 40) / 2)

    publisher = threading.Thread(target=publish_all)
    publisher.start()
    deadline = time.monotonic() + SECONDS

    def is_time() -> bool:
        return time.monotonic() > deadline and not publisher.is_alive()

    def restart() -> None:
        with up:
            own_rabbitmq.kill()
            own_rabbitmq.start()

    kills = kill_receivers(job, tmp_path, chance, is_time, (1.0, 3.5), restart)
    publisher.join()
    assert kills > 3
    deadline = time.monotonic() + 60
    last = job.receiver()
    while waiting(job.url, queue) or last.receive(all_there=True):
        last.receive()
        assert time.monotonic() < deadline
    assert committed(servers, job.source_topic) == once(ids)
