"""The local images: the job's comes out the same each time, and Kafka's needs no settings."""

from __future__ import annotations

import json
import uuid

import pytest

from docker_engine import built, docker, engine, kafka_image  # noqa: F401 - a fixture
from eo_kafka.broker.jars import DEFAULT_VERSION
from eo_kafka.testing.processes import wait_until

pytestmark = pytest.mark.full


def layers(image: str) -> list[str]:
    """Digests of what is in them, with times and owners."""
    return json.loads(docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", image))


def test_two_builds_of_the_jobs_image_have_the_same_layers(engine, monkeypatch):  # noqa: F811
    first = layers(built("job", "eo-kafka-job:latest"))
    # Not by removing the image and what is cached: another test may build beside this one.
    monkeypatch.setenv("NO_CACHE", "1")
    assert layers(built("job", "eo-kafka-job:latest")) == first


def test_the_jobs_image_runs_without_root_and_has_the_wheel_only(engine):  # noqa: F811
    image = built("job", "eo-kafka-job:latest")
    script = (
        "import importlib.metadata as m, os, eo_kafka;"
        "print(os.getuid(), eo_kafka.__file__, m.version('eo-kafka') == eo_kafka.__version__)"
    )
    said = docker("run", "--rm", "--network", "none", image, "python3", "-c", script)
    assert said == "185 /opt/eo-kafka/eo_kafka/__init__.py True"


def test_kafka_starts_with_no_settings_at_all(engine):  # noqa: F811
    name = f"eo-kafka-{uuid.uuid4().hex[:8]}"
    docker("run", "--detach", "--network", "none", "--name", name, kafka_image(DEFAULT_VERSION))
    try:
        wait_until(lambda: "Kafka Server started" in docker("logs", name), "Kafka is up", 120)
    finally:
        docker("rm", "--force", "--volumes", name)
