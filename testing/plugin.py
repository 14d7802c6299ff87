"""The pytest plug-in: options, the marker, and the fixtures `eo_broker`, `eo_job` and others.

pytest loads it wherever eo-kafka is installed: it imports nothing more until a fixture is used.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from . import shared_servers

if TYPE_CHECKING:
    from .brokers import Broker
    from .job import Job
    from .trial import Trial

_NEEDED = "eo_kafka.testing needs psutil: pip install 'eo-kafka[testing]'"
_owner: list[pytest.Config] = []  # the outermost run: another one may run inside of a test


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("eo-kafka")
    group.addoption(
        "--eo-kafka",
        metavar="WHERE",
        help="the Kafka of eo_broker: 'process' (the default: one that is started here), "
        "'container' (a process where no Docker engine answers), or the HOST:PORT of one that runs",
    )
    group.addoption(
        "--eo-kafka-nodes", type=int, metavar="N", help="how many brokers are started: 1 or 3"
    )
    parser.addini("eo_kafka", "as --eo-kafka", default="")
    parser.addini("eo_kafka_nodes", "as --eo-kafka-nodes", default="1")


def pytest_configure(config: pytest.Config) -> None:
    """In the process that starts the workers, which inherit its environment, and in theirs."""
    config.addinivalue_line(
        "markers",
        "eo_kafka(own=False, nodes=None, properties=None): own=True gives a test a Kafka that it "
        "may kill; nodes=3 one of three brokers; properties are its brokers' settings",
    )
    if not _owner:
        _owner.append(config)
        if not _is_worker(config):
            shared_servers.name_folder()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In each worker."""
    if _is_owner(session.config):
        shared_servers.leave()


def pytest_unconfigure(config: pytest.Config) -> None:
    """In the process that started them, when they have ended."""
    if _is_owner(config):
        _owner.clear()
        if not _is_worker(config):
            shared_servers.remove_folder()


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say where Kafka is, if it is not where it usually is."""
    wanted = where(config)
    if wanted == "container":
        from .container_broker import why_not

        reason = why_not()
        there = f"a PROCESS, not in a container: {reason}" if reason else "in a container"
        return f"eo-kafka: Kafka is {there}"
    return f"eo-kafka: Kafka is {wanted}" if wanted else None


def where(config: pytest.Config) -> str | None:
    """What the option or the ini file says of the place of Kafka."""
    return config.getoption("--eo-kafka") or config.getini("eo_kafka") or None


def _is_owner(config: pytest.Config) -> bool:
    return bool(_owner) and _owner[0] is config


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.fixture
def _eo_trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trial]:
    try:
        import psutil  # noqa: F401
    except ImportError:
        raise pytest.UsageError(_NEEDED) from None
    from . import kafka_places, trial
    from .brokers import Broker
    from .topics import delete_all

    marker = request.node.get_closest_marker("eo_kafka")
    wanted: dict[str, Any] = dict(marker.kwargs) if marker else {}
    config = request.config
    nodes = wanted.pop("nodes", None) or config.getoption("--eo-kafka-nodes")
    nodes = int(nodes or config.getini("eo_kafka_nodes"))
    own, properties = wanted.pop("own", False), wanted.pop("properties", None)
    if wanted or nodes not in (1, 3):
        raise pytest.UsageError(
            f"marker eo_kafka: own, nodes (1 or 3) and properties are known, not {wanted or nodes}"
        )
    with ExitStack() as open_:
        if own or properties:
            place = open_.enter_context(kafka_places.own_place(nodes, properties or {}))
        else:
            place = kafka_places.shared_place(where(config), nodes)
        unique = uuid.uuid4().hex[:8]
        name = re.sub(r"[^\w.-]+", "-", request.node.name)[:60]
        folder = tmp_path / f"eo-kafka-{name}"
        now = trial.Trial(request.node.nodeid, folder, place.servers, place.job_servers, unique)
        Broker(place, now)
        trial.begin(now)
        open_.callback(trial.end)
        if place.stays:
            open_.callback(delete_all, place.servers, unique)
        open_.callback(_end_jobs, now)
        yield now


def _end_jobs(now: Trial) -> None:
    for job in now.jobs:
        job.kill_driver(quiet=True)


@pytest.fixture
def eo_broker(_eo_trial: Trial) -> Broker:
    """A real Kafka, of one broker. All tests and workers share it, each with topics of its own,
    unless `@pytest.mark.eo_kafka(own=True)` gives the test one that it may kill, pause and cut off;
    `nodes=3` makes it a cluster."""
    assert _eo_trial.broker is not None
    return _eo_trial.broker


@pytest.fixture
def eo_job(_eo_trial: Trial) -> Callable[..., Job]:
    """Makes jobs: `eo_job("my_app.pipeline:build", source="orders", sink="billed")`.

    The function is called `build(spark, config)` in a driver of its own, whenever one is started.
    Topics that the test has not created are created with one partition. `config=` is added to what
    the function gets; `spark=` are settings of the session.
    """
    from .job import Job

    def make(
        build: str,
        *,
        source: str | None,
        sink: str,
        config: Mapping[str, str] | None = None,
        spark: Mapping[str, str] | None = None,
    ) -> Job:
        topics = [None if name is None else _eo_trial.new_topic(name) for name in (source, sink)]
        assert topics[1] is not None
        job = Job(_eo_trial, build, topics[0], topics[1], config or {}, spark or {})
        _eo_trial.jobs.append(job)
        return job

    return make


@dataclass(frozen=True)
class Hazelcast:
    """A Hazelcast of two members that all tests and workers share."""

    addresses: list[str]


@dataclass(frozen=True)
class Database:
    """A PostgreSQL that all tests and workers share."""

    url: str


@dataclass(frozen=True)
class Queues:
    """A RabbitMQ that all tests and workers share."""

    url: str


@dataclass(frozen=True)
class Registry:
    """A schema registry that all tests and workers share."""

    url: str


@pytest.fixture(scope="session")
def eo_hazelcast() -> Hazelcast:
    """A real Hazelcast of two members, shared: `addresses`. Name your maps as nobody else does."""
    from ..broker.hazelcast import HazelcastCluster

    found = shared_servers.address_of(
        "hazelcast", lambda: HazelcastCluster(2), lambda one: ",".join(one.addresses)
    )
    return Hazelcast(found.split(","))


@pytest.fixture(scope="session")
def eo_postgres() -> Database:
    """A real PostgreSQL, shared: `url`. Make schemas or tables of your own."""
    from ..broker.postgres import Postgres

    return Database(shared_servers.address_of("postgres", Postgres, lambda one: one.url))


@pytest.fixture(scope="session")
def eo_rabbitmq() -> Queues:
    """A real RabbitMQ, shared: `url`. Declare queues of your own. It must be installed."""
    from ..broker.rabbitmq import RabbitMQ

    return Queues(shared_servers.address_of("rabbitmq", RabbitMQ, lambda one: one.url))


@pytest.fixture(scope="session")
def eo_registry() -> Registry:
    """A real schema registry, shared: `url`."""
    from ..broker.registry import SchemaRegistry

    return Registry(shared_servers.address_of("registry", SchemaRegistry, lambda one: one.url))
