"""Messages that take long to arrive, and those that are larger than Kafka's topics take."""

from __future__ import annotations

import json
import os
import time
from urllib.parse import urlsplit

import pika
import pytest

from eo_kafka.errors import EnvironmentRefused
from eo_kafka.sources.queues import rabbitmq
from harness import committed, committed_messages
from queue_job import QueueCopy, channel, new_queue, numbered, once, publish, waiting
from slow_wire import slow_wire

MIB = 1 << 20
KAFKAS_OWN = {"max.message.bytes": "1048588"}


def publish_large(job: QueueCopy, bodies: dict[str, bytes]) -> None:
    with channel(job.url) as opened:
        for name, body in bodies.items():
            given = pika.BasicProperties(message_id=name, delivery_mode=2)
            opened.basic_publish("", job.queue, body, given)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_messages_that_are_slow_on_the_wire_are_received(queue_copy, kind) -> None:
    """One takes a second, of which nobody hears before it is there. Given back in its middle it
    counts as delivered, and never comes."""
    job, small = queue_copy, numbered(5)
    job.queue = new_queue(job.url, kind, **({"x-delivery-limit": 3} if kind == "quorum" else {}))
    large = {f"large-{number}": os.urandom(4 * MIB) for number in range(3)}
    publish_large(job, large)
    publish(job.url, job.queue, small)
    port = urlsplit(job.url).port
    with slow_wire(port, 4 * MIB) as slow:
        url = job.url.replace(f":{port}/", f":{slow}/")
        one = job.receiver(url=url, prefetch="4", maxDeliveries="2")
        assert one.receive(all_there=True) == 8
    found = committed_messages(job.servers, job.source_topic)
    assert {each.key().decode(): each.value() for each in found} == {
        **large,
        **{name: name.encode() for name in small},
    }
    assert not any(b'"redelivered": true' in each.headers()[0][1] for each in found)
    assert waiting(job.url, job.queue) == 0


def test_messages_that_are_there_and_do_not_come_are_told(queue_copy, caplog, monkeypatch) -> None:
    monkeypatch.setattr(rabbitmq, "PATIENCE_S", 1.0)
    job = queue_copy
    job.queue = new_queue(job.url, **{"x-single-active-consumer": True})
    publish(job.url, job.queue, numbered(3))
    with channel(job.url) as opened:
        opened.basic_qos(prefetch_count=1)
        opened.basic_consume(job.queue, lambda *_: None)
        assert job.receiver().receive(all_there=True) == 0
    assert "has 2 messages and handed out none of them in 1 s" in caplog.text
    caplog.clear()
    one = job.receiver()
    assert (one.receive(all_there=True), one.receive(all_there=True)) == (3, 0)
    assert "handed out" not in caplog.text
    for _ in range(2):  # what a look leaves in the client does not cut the next one short
        began = time.monotonic()
        assert one.receive() == 0
        assert time.monotonic() - began >= rabbitmq.QUIET_S


def test_many_that_are_too_large_hold_nothing_back_and_are_kept_in_parts(
    queue_copy, make_topic
) -> None:
    """At the limit RabbitMQ would drop all that is not acknowledged."""
    job, small = queue_copy, numbered(5)
    job.source_topic = make_topic("inbox", config=KAFKAS_OWN)
    poison = make_topic("poison", config=KAFKAS_OWN)
    given = {"maxDeliveries": "2", "poisonTopic": poison}
    job.queue = new_queue(job.url, "quorum", **{"x-delivery-limit": 4})
    large = {f"large-{number}": os.urandom(1_500_000 + number) for number in range(12)}
    publish_large(job, large)
    publish(job.url, job.queue, small)
    for _ in range(2):
        with pytest.raises(
            EnvironmentRefused, match=r"^12 messages .*'large-0', the smallest, has 1,500,000 "
        ):
            job.receiver(**given).receive()
        assert committed(job.servers, job.source_topic) == once(small)
        assert waiting(job.url, job.queue) == 12
    assert job.receiver(**given).receive(all_there=True) == 12
    assert waiting(job.url, job.queue) == 0
    assert committed(job.servers, job.source_topic) == once(small)
    parts: dict[str, list[bytes]] = {name: [] for name in large}
    for each in committed_messages(job.servers, poison):
        said, of_it = json.loads(each.headers()[0][1]), parts[each.key().decode()]
        assert "delivered 2 times" in said["reason"]
        of_it.append(each.value())
        assert (said["part"], said["parts"]) == (len(of_it), 3)
    assert {name: b"".join(some) for name, some in parts.items()} == large


def test_a_poison_topic_that_takes_less_than_kafka_does_is_refused(queue_copy, make_topic) -> None:
    """A part would not fit, and at the limit the message would be dropped."""
    job = queue_copy
    poison = make_topic("poison", config={"max.message.bytes": "900000"})
    publish(job.url, job.queue, ["a"])
    with pytest.raises(EnvironmentRefused, match=r"--alter --topic .*max\.message\.bytes="):
        job.receiver(poisonTopic=poison).receive()
    assert waiting(job.url, job.queue) == 1
