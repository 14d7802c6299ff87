"""`eo-kafka new`: a project of each template, written by the installed command, runs and passes its
own test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from eo_kafka.testing.driver import Driver
from eo_kafka.testing.processes import wait_until
from harness import committed

EO_KAFKA = Path(sys.executable).with_name("eo-kafka")
IN_CI = ("sessions", "join", "enrich", "late", "cdc")
FOR_RELEASES = ("backfill", "cogroup", "distinct", "sliding", "top-n", "tumbling")


def new(template: str, folder: Path, *more: str) -> Path:
    """The folder of a new project."""
    command = [EO_KAFKA, "new", template, folder, *more]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return folder


def ran(*command: object, cwd: Path) -> str:
    """What a program of a project says."""
    done = subprocess.run([sys.executable, *command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-6000:]
    return done.stdout


@pytest.mark.parametrize(
    "template",
    [
        pytest.param("copy", marks=pytest.mark.smoke),
        *IN_CI,
        *(pytest.param(one, marks=pytest.mark.full) for one in FOR_RELEASES),
    ],
)
def test_a_template_passes_its_own_test(template, broker, tmp_path):
    folder = new(template, tmp_path / f"my-{template}.1")
    where = f"--eo-kafka={broker.bootstrap_servers}"
    said = ran("-m", "pytest", "-p", "no:cacheprovider", where, cwd=folder)
    assert " passed" in said
    assert "skipped" not in said


def test_every_template_is_tried():
    listed = subprocess.run([EO_KAFKA, "new", "--list"], capture_output=True, text=True, check=True)
    names = {line.split()[0] for line in listed.stdout.splitlines()[1:]}
    assert names == {"copy", *IN_CI, *FOR_RELEASES}


@pytest.mark.full
def test_a_project_runs_as_a_declarative_pipeline(broker, tmp_path):
    """Run twice, it has written each record once; `check` compares it with the model."""
    folder = new("copy", tmp_path / "flows", "--dev-servers", broker.bootstrap_servers)
    for count in ("100", "50"):
        ran(folder / "sample.py", "write", "--count", count, cwd=tmp_path)
        log = tmp_path / "log"
        command = [str(EO_KAFKA.with_name("spark-pipelines")), "run"]
        spec = ["--spec", str(folder / "spark-pipeline.yml")]
        variables = {"PYSPARK_PYTHON": sys.executable}
        driver = Driver([*command, *spec], log, variables)
        try:
            assert driver.wait(180) == 0, log.read_text()[-4000:]
        finally:
            driver.kill()
    assert "Of 150 records" in ran(folder / "sample.py", "check", cwd=tmp_path)


@pytest.mark.full
def test_two_projects_on_one_kafka_are_tried_as_their_readmes_say(broker, tmp_path):
    """From another folder; a job that is killed goes on."""
    servers = ("--dev-servers", broker.bootstrap_servers)
    first = new("copy", tmp_path / "json", *servers)
    second = new("copy", tmp_path / "a b", *servers, "--name", "class")
    for folder in (first, second):
        ran(folder / "sample.py", "write", "--count", "100", cwd=tmp_path)
    job = [sys.executable, first / "job.py"]
    with subprocess.Popen(job, cwd=tmp_path, start_new_session=True) as running:
        try:
            wait_until(lambda: committed(servers[1], "json-small"), "the job writes", 120)
        finally:
            os.killpg(running.pid, signal.SIGKILL)
    ran(first / "sample.py", "write", "--count", "50", cwd=tmp_path)
    ran(first / "job.py", "--once", cwd=tmp_path)
    for folder, count in ((first, 150), (second, 100)):
        if folder == second:
            with pytest.raises(AssertionError, match="Has the job read all of its input"):
                ran(folder / "sample.py", "check", cwd=tmp_path)
            ran(folder / "job.py", "--once", cwd=tmp_path)
        assert f"Of {count} records" in ran(folder / "sample.py", "check", cwd=tmp_path)
    assert "xxxx" in ran("sample.py", "read", cwd=first)
    assert (first / "checkpoints" / "dev").is_dir()
