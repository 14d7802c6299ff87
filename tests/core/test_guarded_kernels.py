"""Compiled loops read nothing behind what came from outside, and write nothing behind their arrays:
there are pages there that end the process (tests/core/guarded_kernels.py)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "guarded_kernels.py"


def guarded(loops: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "faulthandler", str(SCRIPT), loops]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("loops", ["avro", "sink", "source"])
def test_loops_stay_within_their_memory(loops: str) -> None:
    done = guarded(loops)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.endswith("well\n")


def test_a_byte_too_far_ends_the_process() -> None:
    done = guarded("control")
    assert done.stdout == "reads what it may\n"
    assert done.returncode == -signal.SIGSEGV
