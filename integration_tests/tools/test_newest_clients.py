"""The two clients whose private parts are used: what setup.cfg allows, and the newest there are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLIENTS = ("confluent-kafka", "kafka-python")
OF_THE_CLIENTS = (
    "integration_tests/kafka/test_client_assumptions.py",
    "tests/core/test_librdkafka.py",
)


def test_what_users_may_install_ends_below_versions_that_were_not_tried():
    """CI installs the newest within these bounds, and all its tests run on them."""
    required = [one for one in metadata.requires("eo-kafka") or [] if "extra" not in one]
    for client in CLIENTS:
        (bounds,) = (one for one in required if one.startswith(client))
        below = re.search(r"<([\d.]+)", bounds)
        assert below, f"{bounds} has no upper bound"
        assert parts(metadata.version(client)) < parts(below[1])


def parts(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


@pytest.mark.full
def test_the_newest_clients_there_are_do_what_is_taken_for_granted(broker, tmp_path):
    """Also beyond the bounds: then this says whether those can be raised."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path]
    subprocess.run([*pip, *CLIENTS], check=True)
    which = "import confluent_kafka, kafka; print(confluent_kafka.__file__, kafka.__file__)"
    variables = {
        **os.environ,
        "PYTHONPATH": str(tmp_path),
        "EO_KAFKA_TEST_BOOTSTRAP": broker.bootstrap_servers,
    }
    used = subprocess.run(
        [sys.executable, "-c", which], env=variables, capture_output=True, text=True, check=True
    )
    assert used.stdout.count(str(tmp_path)) == 2, used.stdout
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    tested = subprocess.run(
        [*command, "-m", "not full", *OF_THE_CLIENTS],
        cwd=ROOT, env=variables, capture_output=True, text=True,
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout[-4000:]
