"""What a principal may not do is said in a sentence at the earliest moment, and shows nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from conftest import topic_maker
from eo_kafka.broker.embedded import KafkaBroker
from harness import Copy, committed, open_transactions, produce

VALUES = [b"%d" % number for number in range(100)]


@pytest.fixture(scope="module")
def guarded() -> Iterator[KafkaBroker]:
    """A broker with ACLs, where what has none is open to everybody."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with KafkaBroker(properties=properties) as broker:
        yield broker


@pytest.fixture
def job(guarded, tmp_path) -> Copy:
    make_topic = topic_maker(guarded.bootstrap_servers)
    source = make_topic("in")
    produce(guarded.bootstrap_servers, source, VALUES)
    return Copy(
        servers=guarded.bootstrap_servers,
        source_topic=source,
        sink_topic=make_topic("out"),
        checkpoint=tmp_path / "checkpoint",
        job_name=f"guarded-{source}",
    )


def deny(servers: str, kind: ResourceType, name: str, operation: AclOperation) -> None:
    binding = AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL if kind == ResourceType.TOPIC else ResourcePatternType.PREFIXED,
        "User:ANONYMOUS",
        "*",
        operation,
        AclPermissionType.DENY,
    )
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_acls([binding]).values():
        future.result(30)


@pytest.mark.parametrize(
    ("operation", "side", "sentence"),
    [
        (AclOperation.WRITE, "sink_topic", r"(?i)not authorized|authorization failed"),
        (AclOperation.DESCRIBE, "sink_topic", r"(?i)not authorized|authorization failed"),
        (AclOperation.READ, "source_topic", r"(?i)not authorized|authorization failed"),
        (AclOperation.DESCRIBE, "source_topic", r"(?i)not authorized|authorization failed"),
    ],
)
def test_a_topic_that_may_not_be_used_is_named(spark, job, operation, side, sentence):
    topic = getattr(job, side)
    deny(job.servers, ResourceType.TOPIC, topic, operation)
    with pytest.raises(Exception, match=sentence) as stop:
        job.run(spark)
    assert topic in str(stop.value)
    assert not open_transactions(job)


def test_a_transactional_id_that_may_not_be_used_is_named(spark, job):
    job.sink_extra = {"transactionalIdPrefix": "forbidden"}
    deny(job.servers, ResourceType.TRANSACTIONAL_ID, "forbidden", AclOperation.WRITE)
    with pytest.raises(Exception, match=r"transactional id 'forbidden.*cannot be used"):
        job.run(spark)
    assert not committed(job.servers, job.sink_topic)
