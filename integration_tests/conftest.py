"""Fixtures every integration test shares. The broker comes from here and from nowhere else."""

from __future__ import annotations

import gc
import itertools
import os
import threading
import time
import uuid
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Protocol

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

import browser
import class_archive
import docker_engine
import spark_home
import warm_drivers
import watchdog
from balance import pytest_addoption, pytest_collection_modifyitems  # noqa: F401 - hooks
from eo_kafka.broker import rabbitmq
from eo_kafka.broker.embedded import KafkaBroker
from eo_kafka.clients.kafka import control_plane
from eo_kafka.core.process import driver_directory
from eo_kafka.testing import kafka_places, plugin, shared_servers
from grid_fixtures import _mortal, grid, hazelcast_client, mortal_grid  # noqa: F401 - fixtures
from leaderless import nodes, three, torn  # noqa: F401 - fixtures
from map_backends import a_map, target  # noqa: F401 - fixtures
from map_two_phase_job import map_job, staged, written_map  # noqa: F401 - fixtures
from queue_job import own_rabbitmq, queue_copy  # noqa: F401 - fixtures
from share_job import own_share_kafka, share_copy, share_kafka  # noqa: F401 - fixtures
from spark_fixtures import crash_folder, crash_points, spark  # noqa: F401 - fixtures
from table_job import own_postgres, table_job  # noqa: F401 - fixtures
from table_rows import rows_of  # noqa: F401 - a fixture

# Every JVM here lives for seconds: what its second compiler would find out is never used.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_configure(config: pytest.Config) -> None:
    """In the process that starts the workers, which inherit its environment."""
    if not _is_worker(config) and not config.option.collectonly:
        spark_home.use()
        class_archive.use()
        if plugin.where(config) == kafka_places.CONTAINER:
            docker_engine.use_for_this_run()


def pytest_unconfigure() -> None:
    """In the same process, when the workers have ended."""
    docker_engine.leave()


def pytest_report_header() -> list[str]:
    """What this run cannot do."""
    reasons = {
        "on containers": docker_engine.why_not(),
        "of queues": rabbitmq.why_not(),
        "in a browser": browser.why_not(),
    }
    return [
        f"WARNING: the tests {which} are SKIPPED. {reason}"
        for which, reason in reasons.items()
        if reason
    ]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Around each test with its fixtures."""
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker else item.config.getini("timeout"))
    with watchdog.at_most(seconds + watchdog.GRACE_S, item.nodeid):
        return (yield)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test would wait for minutes for a Kafka that is gone."""
    names = getattr(item, "fixturenames", ())
    if {"eo_rabbitmq", "own_rabbitmq"} & set(names) and (reason := rabbitmq.why_not()):
        pytest.skip(reason)
    if "broker" in names:
        shared_servers.check("kafka")


def pytest_sessionfinish() -> None:
    """In each worker."""
    warm_drivers.leave()


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


class Bootstrap(Protocol):
    """What tests may ask of the shared broker: how to reach it."""

    @property
    def bootstrap_servers(self) -> str: ...


class MakeTopic(Protocol):
    """The factory behind the fixture `make_topic`."""

    def __call__(
        self, name_hint: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str: ...


class RunningKafka:
    """A Kafka that this process need not have started."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers


@pytest.fixture(scope="session", autouse=True)
def sockets_are_freed() -> None:
    """kafka-python leaves the socket of a connection that is refused to Python's collector, which
    seldom looks at what is old; and clients of brokers that tests have ended try for ever. Above a
    thousand files py4j fails."""

    def collect() -> None:
        while True:
            time.sleep(15)
            gc.collect()

    threading.Thread(target=collect, daemon=True).start()


@pytest.fixture(scope="module", autouse=True)
def control_planes_are_closed() -> Iterator[None]:
    """A driver keeps one for each cluster, and here are the drivers of many clusters that ended."""
    yield
    while control_plane._shared:
        control_plane._shared.popitem()[1].close()


@pytest.fixture(autouse=True)
def nobody_has_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as a new process does: which brokers have served the tests before, and are
    waited for in an outage, is forgotten."""
    monkeypatch.setattr(driver_directory, "_seen", set())


@pytest.fixture(scope="session")
def broker(pytestconfig: pytest.Config) -> Bootstrap:
    """One Kafka for all tests of all workers, or the one that EO_KAFKA_TEST_BOOTSTRAP names. It has
    Kafka's defaults. A test that stops a broker, changes its settings or counts what is on it
    starts its own."""
    return RunningKafka(kafka_places.shared_place(plugin.where(pytestconfig), 1).servers)


@pytest.fixture
def own() -> Iterator[KafkaBroker]:
    """A broker that a test may stop."""
    with KafkaBroker() as started:
        yield started


@pytest.fixture
def own_topic(own: KafkaBroker) -> MakeTopic:
    """`make_topic` on it."""
    return topic_maker(own.bootstrap_servers)


@pytest.fixture(scope="module")
def lone_broker() -> Iterator[KafkaBroker]:
    """For a module that asks for all transactions there are."""
    with KafkaBroker() as started:
        yield started


@pytest.fixture(scope="module")
def lone_topic(lone_broker: KafkaBroker) -> MakeTopic:
    """`make_topic` on it."""
    return topic_maker(lone_broker.bootstrap_servers)


@pytest.fixture(scope="session")
def make_topic(broker: Bootstrap) -> MakeTopic:
    """Creates a topic nobody else uses and returns its name."""
    return topic_maker(broker.bootstrap_servers)


def topic_maker(bootstrap_servers: str) -> MakeTopic:
    """`make_topic` for another broker than the shared one."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    run, numbers = uuid.uuid4().hex[:6], itertools.count(1)

    def make(name_hint: str, partitions: int = 1, config: Mapping[str, Any] | None = None) -> str:
        name = f"{name_hint}-{run}-{next(numbers)}"
        topic = NewTopic(name, num_partitions=partitions, config=dict(config or {}))
        admin.create_topics([topic])[name].result(timeout=30)
        return name

    return make
