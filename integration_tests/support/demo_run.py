"""Runs a demo of examples/flights in a short form, and reads what it told."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FLIGHTS = Path(__file__).parents[2] / "examples" / "flights"


def run_demo(script: str, *words: str, timeout: float | None = None) -> tuple[dict[str, str], str]:
    """The figures that say whether it came out right, by their names; all that it printed."""
    done = subprocess.run(
        [sys.executable, str(FLIGHTS / script), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = "flights|kills|lost|duplicates|wrong|too late"
    return dict(re.findall(rf"^({names}) +([\d,]+)", done.stdout, re.M)), done.stdout


def exact(flights: str, kills: str) -> dict[str, str]:
    """The figures of a run that lost, repeated and spoiled nothing."""
    none = dict.fromkeys(("lost", "duplicates", "wrong", "too late"), "0")
    return {"flights": flights, "kills": kills} | none
