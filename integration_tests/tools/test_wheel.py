"""The built wheel, in a virtual environment with nothing else: Spark must find the format."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from environments import build_wheel, new_environment, variables
from harness import JOBS


def test_the_wheel_works_without_registration_in_a_clean_environment(broker, make_topic, tmp_path):
    of_release = os.environ.get("EO_KAFKA_TEST_WHEEL")  # see .ci/release.py
    wheel = Path(of_release) if of_release else build_wheel(tmp_path / "dist")
    python = new_environment(tmp_path / "venv", Path(sys.executable), wheel)
    topics = make_topic("wheel-in"), make_topic("wheel-out")
    ran = subprocess.run(
        [
            python,
            "-I",
            JOBS / "four_roles.py",
            broker.bootstrap_servers,
            *topics,
            tmp_path / "checkpoint",
        ],
        cwd=tmp_path,
        env=variables(python, tmp_path),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    assert "all four roles work" in ran.stdout
    assert "limited: 3 batches" in ran.stdout
    assert "json: [0, 1, 2]" in ran.stdout
    refused = "Avro needs fastavro, which is not installed: pip install 'eo-kafka[avro]'"
    assert ran.stdout.count(refused) >= 2  # by the option, and by from_avro
