"""`--eo-kafka=container`: a project's own tests on a Kafka in a container."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from docker_engine import ROOT, docker, engine, kafka_image  # noqa: F401 - a fixture
from eo_kafka.broker.jars import DEFAULT_VERSION
from eo_kafka.testing.container_broker import IMAGE


@pytest.mark.full
def test_the_example_runs_on_a_container(engine, tmp_path):  # noqa: F811
    image = kafka_image(DEFAULT_VERSION)
    given = {IMAGE: image, "TESTCONTAINERS_RYUK_DISABLED": "true"}
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "not slow"]
    ran = subprocess.run(
        [*words, "--eo-kafka=container", f"--basetemp={tmp_path / 'inner'}"],
        cwd=ROOT / "examples" / "testing",
        env={**os.environ, **given},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "eo-kafka: Kafka is in a container" in ran.stdout
    assert image in docker("events", "--since=10m", "--until=0s", "--filter=event=start")
