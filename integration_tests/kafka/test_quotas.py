"""A Kafka that throttles its clients, as hosted ones do.

Each answer to a client over its quota says for how long the broker will read nothing more of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from contextlib import closing

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest

from eo_kafka.clients.kafka.control_plane import ControlPlane
from eo_kafka.core.transaction import TransactionState
from harness import assert_exactly_once, make_copy

VALUES = [b"%d" % number for number in range(600)]


def full(**limits: float) -> object:
    return pytest.param(limits, marks=pytest.mark.full)


def limited(servers: str, limits: Mapping[str, float]) -> str:
    """A client id that has these quotas."""
    client_id = f"limited-{uuid.uuid4().hex[:8]}"
    request = AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequest.EntryData(
                entity=[
                    AlterClientQuotasRequest.EntryData.EntityData(
                        entity_type="client-id", entity_name=client_id
                    )
                ],
                ops=[
                    AlterClientQuotasRequest.EntryData.OpData(key=key, value=value, remove=False)
                    for key, value in limits.items()
                ],
            )
        ],
        validate_only=False,
    )
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:

        async def ask() -> list[int]:
            answer = await admin._manager.send(request)
            return [one.error_code for one in answer.entries]

        assert admin._manager.run(ask) == [0]
    return client_id


def test_questions_of_several_requests_are_answered_though_each_is_throttled(broker, make_topic):
    topic, name = make_topic("out"), uuid.uuid4().hex
    client_id = limited(broker.bootstrap_servers, {"request_percentage": 0.01})
    settings = {"bootstrap.servers": broker.bootstrap_servers, "client.id": client_id}
    with closing(ControlPlane(settings)) as control:
        for _ in range(3):
            found = control.look([name], [(topic, 0, True)], topics=[topic])
    assert found.described[name].state is TransactionState.MISSING
    assert found.ends == [0]


@pytest.mark.parametrize(
    "limits",
    [
        full(request_percentage=2.0),
        full(producer_byte_rate=5_000.0),
        full(consumer_byte_rate=5_000.0),
    ],
    ids=str,
)
def test_a_job_over_its_quota_is_slow_and_exact(broker, make_topic, spark, tmp_path, limits):
    job = make_copy(broker.bootstrap_servers, make_topic, tmp_path, VALUES)
    client_id = limited(broker.bootstrap_servers, limits)
    job.source_extra["kafka.client.id"] = job.sink_extra["kafka.client.id"] = client_id
    job.run(spark)
    assert_exactly_once(job, VALUES)
