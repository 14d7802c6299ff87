"""`eo-kafka run` with scripts that live for moments: what it does when they end, or should."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from eo_kafka import errors
from eo_kafka.broker.settings import free_port
from eo_kafka.testing.processes import killed_at_last, wait_until
from eo_kafka.tools.run import command
from eo_kafka.tools.run.guard import UNWATCHED
from eo_kafka.tools.run.processes import session

RUN = [sys.executable, "-m", "eo_kafka.tools.cli", "run"]
# A driver with a child in a group of its own, as Spark's Python daemons are
TREE = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, '-c', 'import os, time; os.setpgid(0, 0); time.sleep(600)'])
{before}
print('ready', flush=True)
time.sleep(600)
"""
NEVER_ENDS = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
FAILS = "raise SystemExit(1)"
OURS = "from eo_kafka.errors import {0}; raise {0}({1})"
LINE = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d (INFO|WARNING|ERROR) eo_kafka\.tools\.run\.\w+: ")


class Running:
    """A supervisor, and what it said so far."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen([*RUN, *words], stdout=log, stderr=log, cwd=folder)

    def said(self) -> str:
        return self.log.read_text()

    def await_said(self, what: str, times: int = 1) -> None:
        wait_until(lambda: self.said().count(what) >= times, f"{what}: {self.said()}", 60)

    def await_ready(self) -> None:
        """The script's word may be there before its supervisor's."""
        self.await_said("ready")
        wait_until(self.drivers, f"which process it is: {self.said()}", 60)

    def drivers(self) -> list[int]:
        """The sessions of its drivers."""
        return [int(pid) for pid in re.findall(r"process (\d+)\.", self.said())]

    def living(self) -> list[int]:
        return [pid for leader in self.drivers() for pid in session(leader)]

    def child(self) -> int:
        """What the driver has started, once it is in a group of its own."""
        wait_until(lambda: len(self._leaders()) == 2, "the child has made its group")
        assert len(self.living()) == 3
        return next(pid for pid in self._leaders() if pid not in self.drivers())

    def _leaders(self) -> list[int]:
        return [pid for pid in self.living() if os.getpgid(pid) == pid]

    def ended(self) -> int:
        return self.process.wait(90)


@pytest.fixture
def run(tmp_path) -> Iterator[object]:
    """Starts a supervisor of a script with these lines; nothing of it is left."""
    made = []

    def start(script: str, *words: str) -> Running:
        (tmp_path / "job.py").write_text(script)
        made.append(Running(tmp_path, *words, "job.py"))
        return made[-1]

    yield start
    for one in made:
        one.process.kill()
        one.process.wait()
        for pid in one.living():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_script_that_ends_has_ended(tmp_path):
    (tmp_path / "job.py").write_text("import sys; print(*sys.argv[1:])")
    words = ["--restart", "none", "job.py", "--once", "a", "--config"]
    ran = subprocess.run([*RUN, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "--once a --config\n"), "behind it all is its own"
    lines = ran.stderr.splitlines()
    assert all(LINE.match(line) for line in lines), "each has time and level"
    assert [line.split(": ", 1)[1][:13] for line in lines] == ["Driver starte", "Driver ended "]


def test_one_that_dies_is_started_again_until_it_is_given_up(run):
    """By exit code and by signal, which no error of ours that it had survived explains."""
    survived = (
        "import os, sys; print('eo_kafka.errors.RepairNeeded: x', file=sys.stderr, flush=True)"
    )
    running = run(
        f"{survived}; os.kill(os.getpid(), 9)",
        *("--restart", "fixed:50ms", "--give-up-after", "3/1m"),
    )
    assert running.ended() == 1
    said = running.said()
    assert said.count("Driver started") == said.count("it was killed by SIGKILL.") == 3
    assert said.count("It is started again in 0.1 s.") == 2
    assert "ERROR eo_kafka.tools.run.supervisor: Gave up. It died 3 times within 60.0 s." in said


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        ("ForeignLedger", 3, "needs a person. Do what the sentence says"),
        ("Fenced", 4, "a newer driver goes on. Make sure"),
        ("OutcomeUnknown", 1, "Gave up."),
    ],
)
def test_an_error_of_ours_is_restarted_or_told(run, error, code, told):
    running = run(
        OURS.format(error, "'The sentence.'"),
        *("--restart", "fixed:10ms", "--give-up-after", "2"),
    )
    assert running.ended() == code
    said = running.said()
    assert told in said
    assert said.count("Driver started") == (2 if code == 1 else 1)
    assert said.count("ERROR") == (1 if code == 1 else 2)
    assert said.count(f"supervisor: {error}: The sentence.") == (2 if code == 1 else 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_that_is_asked_to_end_is_gone_with_all_that_it_started(run, number):
    running = run(TREE.format(before=""))
    running.await_ready()
    child = running.child()
    os.kill(child, signal.SIGKILL)  # nobody would end it: it would be waited for
    running.process.send_signal(number)
    assert running.ended() == 0
    assert running.living() == []
    assert f"Asked to end by {number.name}" in running.said()


@pytest.mark.full
def test_what_outlives_an_orderly_end_is_killed(run):
    running = run(TREE.format(before=""))
    running.await_ready()
    running.process.terminate()
    assert running.ended() == 0
    assert running.living() == []


@pytest.mark.full
def test_one_that_does_not_end_is_killed(run):
    running = run(TREE.format(before=NEVER_ENDS), "--grace", "1s")
    running.await_ready()
    running.process.terminate()
    assert running.ended() == 5
    assert running.living() == []
    assert "Driver does not end: it is killed" in running.said()


def test_the_driver_of_a_supervisor_that_is_killed_is_gone(run):
    running = run(TREE.format(before=""))
    running.await_ready()
    child = running.child()
    os.kill(child, signal.SIGKILL)
    running.process.kill()
    wait_until(lambda: not running.living(), "all are gone", 25)


def test_a_driver_whose_supervisor_says_nothing_any_more_is_ended(tmp_path):
    """Its lease is over: another one may have the job by now."""
    log, script = tmp_path / "log", "import time; print('ready', flush=True); time.sleep(600)"
    guarded = ["3", sys.executable, "-c", script]
    with log.open("wb") as output:
        guard = subprocess.Popen(
            [sys.executable, "-m", "eo_kafka.tools.run.guard", *guarded],
            stdin=subprocess.PIPE,
            stdout=output,
            start_new_session=True,
        )
    with killed_at_last(guard.pid):

        def is_ready() -> bool:
            os.write(guard.stdin.fileno(), b"A")
            return "ready" in log.read_text()

        wait_until(is_ready, "the driver runs")
        assert guard.wait(60) == UNWATCHED
        assert session(guard.pid) == []
    guard.stdin.close()


def test_a_guard_that_is_killed_takes_its_driver_with_it(run):
    running = run(TREE.format(before=""), "--restart", "none")
    running.await_ready()
    os.kill(running.drivers()[0], signal.SIGKILL)
    assert running.ended() == 1
    assert running.living() == []
    assert "its guard was killed by SIGKILL" in running.said()


def test_a_signal_ends_the_wait_for_the_next_start(run):
    running = run(FAILS, "--restart", "fixed:1h")
    running.await_said("It is started again in 60 min.")
    running.process.terminate()
    assert running.ended() == 0
    assert "stays open until the next start or its timeout" in running.said()


def asked(port: int, path: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error) if error.code == 503 else {}


def test_health_of_a_script_says_what_it_knows(run):
    port = free_port()
    running = run(TREE.format(before=""), "--health", str(port), "--restart", "fixed:1h")
    running.await_ready()
    code, told = asked(port, "ready")
    assert code == 200 and told["restarts"] == 0 and told["stuck"] is None
    assert "it is a script" in told["known"]
    assert asked(port, "else")[0] == 404
    for pid in running.living():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    running.await_said("started again in")
    assert asked(port, "ready")[0] == 503, "nothing runs"
    assert asked(port, "live")[0] == 200, "it is seen to"


def test_all_that_is_wrong_is_told_at_once_and_nothing_starts(tmp_path):
    words = [*("--restart", "often", "--grace", "x", "--health", "no"), *("--submit", "'")]
    ran = subprocess.run(
        [*RUN, *words, "--once", "no.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 2
    for problem in ("'often'", "--grace", "--health", "--submit", "no.py", "--once is for"):
        assert problem in ran.stderr
    assert len(ran.stderr.splitlines()) == 6
    (tmp_path / "job.py").touch()
    for wrong in ("--submit=--deploy-mode cluster", "--health=203.0.113.1:80"):
        words = [*RUN, wrong, "job.py"]
        ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert ran.returncode == 2 and wrong[2:8] in ran.stderr, ran.stderr
        assert "Driver started" not in ran.stderr


def test_a_function_that_is_not_there_needs_a_person(tmp_path):
    ran = subprocess.run(
        [*RUN, "no_such_module:build", "--restart", "fixed:10ms"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert ran.returncode == 3
    assert ran.stderr.count("OptionsError: No module named 'no_such_module'") == 1
    assert f"in {os.path.realpath(tmp_path)}, nor where Python looks" in ran.stderr
    assert ran.stderr.count("Driver started") == 1


def test_options_of_a_function_stand_on_both_sides_of_it(tmp_path):
    ran = subprocess.run(
        [*RUN, "m:f", "--config", "no", "--restart", "x"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2 and "'no' is neither" in ran.stderr and "'x' is none" in ran.stderr


@pytest.mark.parametrize(("error", "code"), [("EnvironmentRefused", 3), ("Unreachable", 1)])
def test_a_control_topic_that_is_refused_needs_a_person_and_one_that_is_away_another_start(
    tmp_path, monkeypatch, capsys, error, code
):
    """By docs/how-to/run-a-job.md, systemd starts it again after 1 and not after 3."""

    def refused(_: object) -> None:
        raise getattr(errors, error)("The sentence.")

    monkeypatch.setattr(command, "orders_of", refused)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    (tmp_path / "job.py").touch()
    parser = argparse.ArgumentParser(prog="eo-kafka run")
    command.add_arguments(parser)
    assert command.run(parser.parse_args([str(tmp_path / "job.py")])) == code
    assert "eo-kafka run: The sentence." in capsys.readouterr().err
