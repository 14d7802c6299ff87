"""What the command `eo-kafka` does for all subcommands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from eo_kafka.core import build
from eo_kafka.tools.cli import main


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_enough_is_no_error(
    monkeypatch: pytest.MonkeyPatch, unbuffered: str
) -> None:
    """As in `eo-kafka new --list | head -1`."""
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "eo_kafka.tools.cli", "new", "--list"]
    with os.fdopen(writer, "wb") as output:
        ran = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, timeout=60)
    assert (ran.returncode, ran.stderr) == (128 + signal.SIGPIPE, b"")


def test_its_version_is_that_of_what_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"eo-kafka {build.mark()}\n"
