"""The demo in a short form: what `make demo` prints, and its exit code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

DEMO = Path(__file__).parents[2] / "examples" / "flights" / "demo.py"


def test_a_killed_job_over_real_flights_loses_and_repeats_nothing(broker, tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, str(DEMO), "--format", "eo-kafka"),
            *("--bootstrap-servers", broker.bootstrap_servers),
            *("--output", str(tmp_path)),
            *("--limit", "20000", "--seconds", "1", "--kills", "1"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = dict(
        re.findall(r"^(flights|kills|lost|duplicates|wrong|too late) +([\d,]+)", done.stdout, re.M)
    )
    none = dict.fromkeys(("lost", "duplicates", "wrong", "too late"), "0")
    assert told == {"flights": "20,000", "kills": "1"} | none
    (chart,) = tmp_path.glob("*/delays.png")
    assert chart.stat().st_size > 10_000
