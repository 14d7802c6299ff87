"""Receivers of a share group that are killed at any moment, often two at once, while records come,
and Kafka is killed, too."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import pytest

from harness import committed
from queue_job import kill_receivers
from share_job import ShareCopy, numbered, share_copy_of

SECONDS = 40
RECORDS = numbered(6000)


@pytest.mark.full
@pytest.mark.timeout(300)
def test_no_kill_at_any_moment_loses_or_repeats_a_record_of_a_share_group(
    own_share_kafka, tmp_path
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    servers = own_share_kafka.bootstrap_servers
    job = share_copy_of(servers, tmp_path, partitions=2)
    job.given = {"prefetch": "50"}
    up = threading.Lock()  # a publisher needs Kafka

    def publish_all() -> None:
        for first in range(0, len(RECORDS), 40):
            with up:
                job.publish(RECORDS[first : first + 40], chance.randrange(2))
            time.sleep(SECONDS / (len(RECORDS) / 40) / 2)

    publisher = threading.Thread(target=publish_all)
    publisher.start()
    deadline = time.monotonic() + SECONDS

    def is_time() -> bool:
        return time.monotonic() > deadline and not publisher.is_alive()

    def restart() -> None:
        with up:
            own_share_kafka.kill()
            own_share_kafka.start()

    kills = kill_receivers(job, tmp_path, chance, is_time, (2.0, 6.0), restart)
    publisher.join()
    assert kills > 3
    assert kept_at_last(job) == Counter(RECORDS)


def kept_at_last(job: ShareCopy) -> Counter[bytes]:
    """Once nobody has a lock any more: the inbox, and what was delivered too often."""
    deadline = time.monotonic() + 90
    with job.member() as last:
        while True:
            last.receive()
            found = committed(job.servers, job.source_topic) + committed(job.servers, job.poison)
            if sum(found.values()) >= len(RECORDS) or time.monotonic() > deadline:
                return found
