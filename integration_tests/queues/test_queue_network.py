"""Answers that get lost between the receiver and Kafka: nothing is acknowledged to the queue before
it is certain that the inbox has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from conftest import topic_maker
from eo_kafka.errors import ReadTimeout
from eo_kafka.sources.queues import inbox
from eo_kafka.sources.queues.receiver import Receiver
from eo_kafka.testing.proxy import Action, Api, Proxy, proxied_broker
from harness import committed
from queue_job import QueueCopy, copy_of, numbered, once, publish, waiting

IDS = numbered(50)


@pytest.fixture(scope="module")
def broker_and_proxy() -> Iterator[tuple[object, Proxy]]:
    with proxied_broker() as both:
        yield both


@pytest.fixture
def network(broker_and_proxy) -> Iterator[Proxy]:
    proxy = broker_and_proxy[1]
    yield proxy
    proxy.heal()


@pytest.fixture
def job(broker_and_proxy, eo_rabbitmq, tmp_path) -> QueueCopy:
    servers = broker_and_proxy[0].bootstrap_servers
    made = copy_of(eo_rabbitmq.url, servers, topic_maker(servers), tmp_path)
    publish(made.url, made.queue, IDS)
    return made


def proxied(job: QueueCopy, network: Proxy) -> Receiver:
    """One that reaches Kafka through the proxy."""
    return job.receiver(**{"kafka.bootstrap.servers": f"127.0.0.1:{network.port}"})


@pytest.mark.parametrize("api", [Api.INIT_PRODUCER_ID, Api.PRODUCE, Api.END_TXN])
def test_a_lost_answer_loses_and_repeats_nothing(job, network, api) -> None:
    fault = network.add(api, Action.LOSE_RESPONSE, times=1)
    assert proxied(job, network).receive(all_there=True) == len(IDS)
    assert fault.served == 1, "no such answer was lost"
    assert committed(job.servers, job.source_topic) == once(IDS)
    assert waiting(job.url, job.queue) == 0


@pytest.mark.parametrize("action", [Action.REFUSE, Action.LOSE_RESPONSE])
def test_a_commit_of_which_nobody_knows_is_not_acknowledged(
    job, network, monkeypatch, action
) -> None:
    monkeypatch.setattr(inbox, "TIMEOUT_S", 4)
    receiver = proxied(job, network)
    receiver._options = replace(receiver._options, patience_s=-1)  # none: the first failure counts
    receiver.open()
    receiver._inbox.try_out()  # that ends a transaction, too
    fault = network.add(Api.END_TXN, action)
    with pytest.raises(ReadTimeout, match="Nothing of it was acknowledged"):
        receiver.receive()
    assert fault.requests
    assert waiting(job.url, job.queue) == len(IDS), "they are in the queue again"
    network.heal()
    was_committed = action is Action.LOSE_RESPONSE
    assert bool(committed(job.servers, job.source_topic)) == was_committed
    # It makes the inbox anew, as the next start would.
    assert receiver.receive(all_there=True) == len(IDS)
    assert committed(job.servers, job.source_topic) == once(IDS)
    assert waiting(job.url, job.queue) == 0
