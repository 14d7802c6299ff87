"""What the command `eo-kafka` does for all subcommands."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize("words", ["--version", "--help", "new --help"])
def test_nobody_reads_what_no_command_says(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "")
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "eo_kafka.tools.cli", *words.split()]
    with os.fdopen(writer, "wb") as output:
        ran = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, timeout=60)
    assert (ran.returncode, ran.stderr) == (128 + signal.SIGPIPE, b"")


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a shell does of it; `$EO` is the command `eo-kafka`."""
    eo = {"EO": f"{sys.executable} -m eo_kafka.tools.cli", "PYTHONUNBUFFERED": ""}
    words = ["sh", "-c", command]
    variables = {**os.environ, **eo}
    return subprocess.run(words, cwd=folder, env=variables, capture_output=True, text=True)


def test_a_stream_that_is_closed_changes_no_exit_code(tmp_path: Path) -> None:
    ran = shell("$EO new copy done <&- >&-", tmp_path)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert (tmp_path / "done" / "pipeline.py").exists()
    assert shell("$EO new copy done <&- >&- 2>&-", tmp_path).returncode == 1
    assert shell("$EO new >&-", tmp_path).returncode == 2


def test_output_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    ran = shell("$EO new copy done </dev/null >/dev/full", tmp_path)
    said = "eo-kafka: stdout cannot be written: No space left on device.\n"
    assert (ran.returncode, ran.stderr) == (1, said)
    for words in ("--version", "new --list", "new --help"):
        ran = shell(f"$EO {words} >/dev/full", tmp_path)
        assert (ran.returncode, ran.stderr) == (1, said)


def test_a_code_that_says_more_is_kept_though_the_output_cannot_be_written(tmp_path: Path) -> None:
    """As those of `run`, which tell systemd whether to start it again."""
    code = "from eo_kafka.tools import cli; import sys\n"
    code += "cli._done = lambda words: print('4') or 4\nsys.exit(cli.main([]))"
    assert shell(f'{sys.executable} -c "{code}" >/dev/full', tmp_path).returncode == 4


def test_an_error_of_a_commands_own_files_is_not_taken_for_the_outputs(tmp_path: Path) -> None:
    code = "from eo_kafka.tools import cli\n"
    code += "cli._done = lambda words: open('/dev/full', 'w').write('x' * 10**6)\ncli.main([])"
    ran = shell(f'{sys.executable} -c "{code}"', tmp_path)
    assert "OSError: [Errno 28]" in ran.stderr


def test_its_version_is_that_of_what_runs_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"eo-kafka {build.mark()}\n"
