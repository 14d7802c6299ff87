"""The demo on containers in a short form: what `make demo-cluster` prints, and its exit code."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from docker_engine import PREFIX, ROOT, built, engine  # noqa: F401 - a fixture
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
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "examples" / "flights" / "cluster.py")),
            *("--output", str(tmp_path), "--limit", "60000", "--seconds", "20"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = dict(
        re.findall(r"^(flights|kills|lost|duplicates|wrong|too late) +([\d,]+)", done.stdout, re.M)
    )
    none = dict.fromkeys(("lost", "duplicates", "wrong", "too late"), "0")
    assert told == {"flights": "60,000", "kills": "3"} | none
    assert re.search(r"^drivers +2: ", done.stdout, re.M)
