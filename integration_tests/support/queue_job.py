"""A queue of RabbitMQ copied into a topic, each message by its id; and what a test does to both."""

from __future__ import annotations

import itertools
import json
import random
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pika
import pytest

from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.broker.rabbitmq import RabbitMQ
from eo_kafka.connectors.queues.reader import checked
from eo_kafka.sources.queues.receiver import Receiver
from harness import Copy, CrashPoints

# A receiver that a test may kill; its options are the argument.
RECEIVE = """
import json, sys
from eo_kafka.connectors.queues.reader import checked
from eo_kafka.sources.queues.receiver import Receiver
one = Receiver(checked(json.loads(sys.argv[1])).queue)
while True:
    one.receive()
"""
_numbers = itertools.count(1)


@contextmanager
def channel(url: str) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    """One that confirms what is published."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened
    finally:
        if connection.is_open:
            connection.close()


def new_queue(url: str, kind: str = "classic", **arguments: object) -> str:
    """A durable queue of a name that nobody else has."""
    name = f"queue-{uuid.uuid4().hex[:6]}-{next(_numbers)}"
    with channel(url) as opened:
        opened.queue_declare(name, durable=True, arguments={"x-queue-type": kind, **arguments})
    return name


def publish(url: str, queue: str, ids: list[str], **properties: object) -> None:
    """Messages whose bodies are their ids."""
    with channel(url) as opened:
        for one in ids:
            given = pika.BasicProperties(message_id=one, delivery_mode=2, **properties)
            opened.basic_publish("", queue, one.encode(), given)


def waiting(url: str, queue: str) -> int:
    """How many messages are in the queue, ready to be delivered."""
    with channel(url) as opened:
        return opened.queue_declare(queue, passive=True).method.message_count


@dataclass
class InboxCopy(Copy):
    """`source_topic` is the inbox."""

    queue: str = ""
    given: dict[str, str] = field(default_factory=dict)

    @property
    def backend(self) -> dict[str, str]:
        """The options that say where the queue is."""
        raise NotImplementedError

    @property
    def poison(self) -> str:
        return f"{self.source_topic}.poison"

    def as_job(self) -> dict[str, object]:
        options = {
            "kafka.bootstrap.servers": self.servers,
            **self.backend,
            "queue": self.queue,
            "inbox": self.source_topic,
            **self.given,
        }
        return {**super().as_job(), "source": "eo-queue", "source_options": options}

    def receiver(self, **given: str) -> Receiver:
        """A new one, as each start makes."""
        return Receiver(checked({**self.as_job()["source_options"], **given}).queue)


@dataclass
class QueueCopy(InboxCopy):
    """Of RabbitMQ."""

    url: str = ""

    @property
    def backend(self) -> dict[str, str]:
        return {"url": self.url}


def kafka_is_killed_at(
    point: str, job: InboxCopy, kafka: KafkaBroker, spark, crash_points: CrashPoints
) -> None:
    """A run during which Kafka dies and comes back. In doubt it stops: the next start finds out."""
    crash_points.arm(point, "wait")
    try:
        with job.running(spark) as query:
            crash_points.wait_reached(point)
            kafka.kill()
            crash_points.release(point)
            kafka.start()
            assert query.awaitTermination(180)
    except Exception as error:
        assert "OutcomeUnknown: " in str(error), error


def kill_receivers(
    job: InboxCopy,
    tmp_path: Path,
    chance: random.Random,
    until: Callable[[], bool],
    pause_s: tuple[float, float],
    fault: Callable[[], None],
) -> int:
    """Start receivers, often two at once, and kill them, until it is time; now and then there is a
    `fault`. How many were killed while they lived."""
    given = json.dumps(job.as_job()["source_options"])
    kills = 0
    living: list[subprocess.Popen] = []
    try:
        while not until():
            with (tmp_path / "log").open("ab") as log:
                living.append(subprocess.Popen([sys.executable, "-c", RECEIVE, given], stderr=log))
            time.sleep(chance.uniform(*pause_s))
            if chance.random() < 0.2:
                fault()
            while len(living) > chance.randrange(2):  # the older one is shut out, and may be gone
                victim = living.pop()
                kills += victim.poll() is None
                victim.kill()
                victim.wait()
    finally:
        for one in living:
            one.kill()
            one.wait()
    return kills


def with_each_kept(one: Receiver, do: Callable[[], None]) -> None:
    """From now on that is done after each portion that it keeps."""
    one.open()
    keep = one._keep

    def keep_and_do(*given: Any) -> None:
        keep(*given)
        do()

    one._keep = keep_and_do


def once(ids: list[str]) -> Counter[bytes]:
    """Each of them, once."""
    return Counter(one.encode() for one in ids)


def numbered(count: int, first: int = 0) -> list[str]:
    """Ids."""
    return [f"m{number:05d}" for number in range(first, first + count)]


def copy_of(url: str, servers: str, make_topic, tmp_path, **given: str) -> QueueCopy:
    """A copy of a new queue into a new topic, by an inbox that is not there yet."""
    queue = given.pop("queue", None) or new_queue(url)
    return QueueCopy(
        servers=servers,
        source_topic=f"inbox-{queue}",
        sink_topic=make_topic("out", partitions=2),
        checkpoint=tmp_path / "checkpoint",
        job_name=f"inbox-{queue}",  # the ids of both are told apart all the same
        url=url,
        queue=queue,
        given=given,
    )


def evaluate(server: RabbitMQ, expression: str) -> None:
    """Let the node do it, in Erlang."""
    tool = shutil.which("/usr/lib/rabbitmq/bin/rabbitmqctl") or "rabbitmqctl"
    command = ["/usr/bin/env", *server._variables(), tool, "eval", f"{expression}."]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def queue_copy(eo_rabbitmq, broker, make_topic, tmp_path) -> QueueCopy:
    """A copy of a new queue on the shared servers."""
    return copy_of(eo_rabbitmq.url, broker.bootstrap_servers, make_topic, tmp_path)


@pytest.fixture
def own_rabbitmq() -> Iterator[RabbitMQ]:
    """A server that a test may kill."""
    with RabbitMQ() as server:
        yield server
