"""A Docker engine for tests: the one that answers, else one of our own (docker/engine.sh) that all
workers share. Where there can be none, the tests that need it are skipped, and say why."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from environments import one_build
from eo_kafka.broker.jars import DEFAULT_VERSION
from eo_kafka.testing import container_broker, shared_servers

ROOT = Path(__file__).parents[2]
ENGINE = ROOT / "docker" / "engine.sh"
BUILD = ROOT / "docker" / "build-local.sh"
PREFIX = "localhost/eo-kafka/"  # build-local.sh's
BUILD_TIMEOUT_S = 600
CANNOT_BE_HAD = 69
_of_this_run = ExitStack()


class NoEngine(Exception):
    """The reason, in engine.sh's words."""


def why_not() -> str:
    """Why this machine can run no containers; empty if it can, as far as a quick look tells."""
    done = subprocess.run([ENGINE, "--check"], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


@contextmanager
def running_engine() -> Iterator[str]:
    """The address of an engine, which ends with the block if it is our own. It also ends with this
    process, whose end of a pipe it holds."""
    process = subprocess.Popen(
        [ENGINE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin and process.stdout and process.stderr
    try:
        address = process.stdout.readline().strip()
        if not address:
            raise NoEngine(process.stderr.read().strip())
        yield address
    finally:
        process.stdin.close()
        process.wait()


@pytest.fixture(scope="session")
def engine() -> None:
    """From here on `docker` reaches an engine."""
    try:
        address = shared_servers.address_of("engine", running_engine, str)
    except NoEngine as error:
        pytest.skip(str(error))
    os.environ["DOCKER_HOST"] = address


def use_for_this_run() -> None:
    """Before workers start: for `--eo-kafka=container`, an engine and the image of Kafka. Nothing
    where there can be none, which the run's header says."""
    with suppress(NoEngine, pytest.skip.Exception):
        os.environ["DOCKER_HOST"] = _of_this_run.enter_context(running_engine())
        if not os.environ.get(container_broker.IMAGE):
            built("kafka", f"apache/kafka:{DEFAULT_VERSION}")
            os.environ[container_broker.IMAGE] = f"{PREFIX}apache/kafka:VERSION"
        # It removes containers when we die, comes from a registry, and our engine does the same.
        os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")


def leave() -> None:
    """At the end of the run."""
    _of_this_run.close()


def kafka_image(version: str) -> str:
    """An image of Kafka: the one that EO_KAFKA_KAFKA_IMAGE names (with VERSION for the version), or
    the local one, which is built if need be."""
    given = os.environ.get(container_broker.IMAGE)
    if given and not given.startswith(PREFIX):
        return given.replace("VERSION", version)
    return built("kafka", f"apache/kafka:{version}")


def built(image: str, name: str) -> str:
    """The name of a local image of build-local.sh, which builds it, or finds it built."""
    version = name.rpartition(":")[2]
    with one_build():  # of the job's image, a wheel
        done = subprocess.run(
            [BUILD, image],
            env={**os.environ, "KAFKA_VERSIONS": version, "EO_KAFKA_REGISTRY": PREFIX},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
    if done.returncode == CANNOT_BE_HAD:
        pytest.skip(f"No image can be built: {done.stdout.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stdout[-4000:]
    return PREFIX + name


def docker(*words: object, check: bool = True) -> str:
    """What docker prints."""
    command = ["docker", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout.strip()
