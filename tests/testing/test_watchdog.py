"""A worker that hangs is ended, and says where."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import watchdog

HANGS = """
import sys, threading
sys.path.insert(0, sys.argv[1])
import watchdog

def stuck():
    threading.Event().wait()

with watchdog.at_most(60, "a test that ends"):
    pass
with watchdog.at_most(0.2, "this test"):
    stuck()
"""


def test_it_ends_the_process_and_shows_where_it_stood() -> None:
    command = [sys.executable, "-c", HANGS, str(Path(watchdog.__file__).parent)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 70
    assert "No end of this test within 0 s." in ended.stderr
    assert "in stuck" in ended.stderr
