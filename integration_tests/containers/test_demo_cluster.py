"""The demo on containers in a short form: what `make demo-cluster` prints, and its exit code."""

from __future__ import annotations

import re

import pytest

from demo_run import exact, run_demo
from docker_engine import PREFIX, built, engine  # noqa: F401 - a fixture
from eo_kafka.broker.jars import DEFAULT_VERSION
from eo_kafka.broker.settings import free_port

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]


def test_an_executor_a_worker_and_the_driver_with_its_checkpoint_are_lost(
    engine,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    built("kafka", f"apache/kafka:{DEFAULT_VERSION}")
    built("job", "eo-kafka-job:latest")
    monkeypatch.setenv("EO_KAFKA_REGISTRY", PREFIX)
    for name in ("KAFKA_PORT_1", "KAFKA_PORT_2", "KAFKA_PORT_3", "SPARK_PORT"):
        monkeypatch.setenv(name, str(free_port()))
    told, said = run_demo(
        *("cluster.py", "--output", str(tmp_path), "--limit", "60000", "--seconds", "20")
    )
    assert told == exact("60,000", "3")
    assert re.search(r"^drivers +2: ", said, re.M)
