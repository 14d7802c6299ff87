"""What a share group's receiver must be allowed to do, and what it says where it is not."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka.admin import AclOperation, ResourceType

from eo_kafka.clients.kafka.transactional_id import TransactionalIds
from eo_kafka.connectors.queues.reader import checked
from eo_kafka.errors import EnvironmentRefused
from eo_kafka.sources.queues.receiver import Receiver
from eo_kafka.testing.processes import wait_until
from harness import committed
from secure_broker import SCRAM
from share_job import numbered, share_copy_of

pytest_plugins = ("secure_broker",)
GROUP, TOPIC, TRANSACTION = (
    *(ResourceType.GROUP, ResourceType.TOPIC, ResourceType.TRANSACTIONAL_ID),
)

DEFAULTS = {
    "share.record.lock.duration.ms": "30000",
    "share.heartbeat.interval.ms": "5000",
    "share.session.timeout.ms": "45000",
}


def test_a_receiver_logs_in_by_oauth(secure, tmp_path) -> None:
    job = share_copy_of(secure.bootstrap_servers, tmp_path, **DEFAULTS)
    job.publish(numbered(3))
    client = {f"kafka.{key}": value for key, value in secure.oauth().items()}
    one = Receiver(checked({**job.as_job()["source_options"], **client}).queue)
    try:
        wait_until(one.receive, "its messages come", 60)
    finally:
        one.close()
    assert set(committed(job.servers, job.source_topic)) == set(numbered(3))


def test_each_right_that_is_missing_is_named(secure, tmp_path, caplog) -> None:
    job = share_copy_of(secure.bootstrap_servers, tmp_path, **DEFAULTS)
    job.publish(numbered(3))
    secure.add_user("bob", "bobs-password")
    own = TransactionalIds("eo-kafka", f"inbox/{job.source_topic}").coordinator
    needed = [
        *((TRANSACTION, own, one) for one in (AclOperation.DESCRIBE, AclOperation.WRITE)),
        *(
            (TOPIC, f"{job.source_topic}*", one)
            for one in (
                *(AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS),
                AclOperation.READ,
            )
        ),
    ]
    to_write = [(TOPIC, f"{job.source_topic}*", AclOperation.WRITE)]
    of_group = (GROUP, job.group, AclOperation.READ)
    of_topic = [(TOPIC, job.queue, one) for one in (AclOperation.DESCRIBE, AclOperation.READ)]
    settings = (GROUP, job.group, AclOperation.DESCRIBE_CONFIGS)
    client = {
        f"kafka.{key}": value
        for key, value in secure.sasl(SCRAM[0], "bob", "bobs-password").items()
    }
    options = {**job.as_job()["source_options"], **client}
    one = Receiver(checked(options).queue)
    caplog.set_level(logging.WARNING)
    try:
        secure.grant("bob", [*needed, *of_topic])
        for _ in range(2):
            with pytest.raises(EnvironmentRefused, match="needs Write on each"):
                one.receive()
        secure.grant("bob", to_write)
        with pytest.raises(EnvironmentRefused, match=r"as share group.*needs Read on both"):
            wait_until(one.receive, "it is told", 60)
        assert "needs DescribeConfigs on the group" in caplog.text
        secure.grant("bob", [of_group, settings])
        wait_until(one.receive, "its messages come", 60)
    finally:
        one.close()
    assert set(committed(job.servers, job.source_topic)) == set(numbered(3))
