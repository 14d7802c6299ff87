"""`eo-target` when the class raises, and when a driver that was paused goes on after its batch was
given up: told, and nothing is lost or shown twice."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from eo_kafka.errors import EoKafkaError
from eo_kafka.sinks.protocol.recovery import make_plan
from harness import committed, delete_topic
from moody_target import MOODY, is_in_mood, sulk
from table_job import driver
from target_job import delta_job


@pytest.mark.parametrize(
    ("method", "how", "is_told"),
    [
        ("stage", "before", True),
        ("stage", "after", True),
        ("staged", "before", True),
        ("marker", "before", True),
        ("apply", "before", False),  # S7 tries again
        ("apply", "after", False),
        ("discard", "before", False),  # the batch is written
    ],
)
def test_what_a_target_raises_loses_and_repeats_nothing(
    tmp_path, broker, method, how, is_told
) -> None:
    job = delta_job(tmp_path, broker.bootstrap_servers)
    job.given["target"] = MOODY
    job.run(0)
    sulk(job.given["target.path"], method, how)
    if is_told:
        with pytest.raises(EoKafkaError, match=f"RuntimeError: {method} is in a mood"):
            job.run(1)
    else:
        job.run(1)
    assert is_in_mood(job.given["target.path"])
    job.run(1, 2)
    assert job.there() == job.expected(0, 1, 2)
    job.prepare(3)
    assert len(job.left()) == 2  # of batch 3 alone


def test_a_driver_that_was_paused_does_not_apply_what_was_given_up(
    tmp_path, broker, make_topic, crash_points
) -> None:
    """It saw its rows in the topic, which was made again since: the batch runs again."""
    topic, servers = make_topic("out", partitions=2), broker.bootstrap_servers
    job = delta_job(tmp_path, servers, topic=topic)
    job.run(0)
    crash_points.arm("S7.before_target", "stop")
    with driver(job, 1) as process:
        assert crash_points.wait_reached("S7.before_target") == process.pid
        delete_topic(servers, topic)
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, 2)])[topic].result(30)
        make_plan(job.options)
        os.kill(process.pid, signal.SIGCONT)
        _, told = process.communicate(timeout=120)
    assert "Fenced" in told
    assert job.there() == job.expected(0)
    job.run(1, 2)
    assert job.there() == job.expected(0, 1, 2)
    words = Counter(word.encode() for _, word in job.sent(1, 2).elements())
    assert committed(servers, topic) == words
