"""Projects of `eo-kafka new`, written by the installed command, and their programs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from eo_kafka.broker import rabbitmq

EO_KAFKA = Path(sys.executable).with_name("eo-kafka")


def new(template: str, folder: Path, *more: str) -> Path:
    """The folder of a new project. The test is skipped where what the project needs is missing."""
    if template == "queue-inbox" and (reason := rabbitmq.why_not()):
        pytest.skip(reason)
    command = [EO_KAFKA, "new", template, folder, *more]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return folder


def ran(*command: object, cwd: Path) -> str:
    """What a program of a project says."""
    done = subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout


def set_to(folder: Path, name: str, value: str) -> None:
    """A setting of config.toml, which is there already."""
    config = folder / "config.toml"
    text, count = re.subn(rf"(?m)^{name} = \S.*$", f"{name} = '{value}'", config.read_text())
    assert count == 1
    config.write_text(text)
