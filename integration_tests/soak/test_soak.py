"""The soak in its short form: a minute of random faults, two jobs, and a seed that is printed.

`EO_KAFKA_SOAK_MINUTES` and `EO_KAFKA_SOAK_SEED` change that; `make soak` is the long form.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from soak.workload import COPIES

RUN = Path(__file__).with_name("run.py")
STATEFUL = ("bank", "count")


@pytest.mark.timeout(1800)
def test_random_faults_lose_repeat_tear_and_reorder_nothing(tmp_path):
    minutes = os.environ.get("EO_KAFKA_SOAK_MINUTES", "1")
    seed = os.environ.get("EO_KAFKA_SOAK_SEED", str(random.randrange(10**6)))
    jobs = (STATEFUL[int(seed) // 3 % 2], COPIES[int(seed) % 3])
    report = tmp_path / "report.html"
    done = subprocess.run(
        [
            *(sys.executable, str(RUN), "--minutes", minutes, "--seed", seed),
            *("--watch", "--folder", str(tmp_path / "histories"), "--report", str(report)),
            *("--jobs", *jobs),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1700,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}:\n{done.stdout[-20_000:]}"
    assert f"Seed {seed}: " in done.stdout
    assert " 0 anomalies" in done.stdout
    assert "data:image/png;base64," in report.read_text(), "no fault was survived"
