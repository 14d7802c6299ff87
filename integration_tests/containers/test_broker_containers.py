"""A broker's container with Kafka's defaults is killed, or its disk runs full, while the copy job
runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from docker_engine import docker, engine, kafka_image  # noqa: F401 - a fixture
from eo_kafka.broker.jars import DEFAULT_VERSION
from harness import assert_exactly_once, wait_until
from kafka_containers import DATA, Broker, KafkaContainers
from supervised_copies import VALUES, finish, job_on, stopped_at


@pytest.fixture(scope="module")
def image(engine) -> str:  # noqa: F811
    return kafka_image(DEFAULT_VERSION)


@pytest.fixture(scope="module")
def lone(image) -> Iterator[KafkaContainers]:
    """One broker; its disk is small, and kept when its container ends."""
    small = ("--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", "o=size=96m,mode=1777")
    with KafkaContainers(image, data_options=small) as kafka, holding(kafka, image):
        yield kafka


@contextmanager
def holding(kafka: KafkaContainers, image: str) -> Iterator[None]:
    """The kernel drops a tmpfs that no container uses any more."""
    (broker,) = kafka.brokers
    holder = f"{broker.name}-disk"
    volume = ("--volume", f"{broker.data}:{DATA}")
    docker("run", "--detach", "--name", holder, *volume, image, "sleep", "infinity")
    try:
        yield
    finally:
        docker("rm", "--force", holder)


def test_a_broker_container_that_is_killed_and_started_again(lone, spark, crash_points, tmp_path):
    job = job_on(lone, tmp_path)
    with stopped_at("S6.after_decision", job, spark, crash_points):
        (broker,) = lone.brokers
        broker.kill()
        broker.start()
    finish(job, spark)
    assert_exactly_once(job, VALUES)


def test_a_broker_whose_disk_is_full_and_gets_room_again(lone, spark, crash_points, tmp_path):
    job = job_on(lone, tmp_path)
    (broker,) = lone.brokers
    with stopped_at("S3.while_writing", job, spark, crash_points):
        fill(broker)
        crash_points.release("S3.while_writing")
        wait_until(lambda: not broker.running, "Kafka ends: it has no other log directory")
        free(broker)
        broker.start()
    finish(job, spark)
    assert_exactly_once(job, VALUES)


def fill(broker: Broker) -> None:
    broker.sh(f"dd if=/dev/zero of={DATA}/filler bs=4k")
    free_bytes = broker.sh(f"df --output=avail {DATA} | tail -n 1")
    assert int(free_bytes) == 0, free_bytes


def free(broker: Broker) -> None:
    docker("exec", f"{broker.name}-disk", "rm", f"{DATA}/filler")
