"""The Dockerfile of a project of `eo-kafka new`: its image is built, and runs the job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from docker_engine import PREFIX, built, docker, engine  # noqa: F401 - a fixture

EO_KAFKA = Path(sys.executable).with_name("eo-kafka")


def ran(*words: object, **variables: str) -> str:
    """What a program says, which may take long."""
    done = subprocess.run(
        [*map(str, words)], env={**os.environ, **variables}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.full
def test_a_projects_image_runs_its_job(engine, broker, tmp_path):  # noqa: F811
    """`late` is the one that needs most: PySpark's own state, and what belongs to it."""
    folder, servers = tmp_path / f"late-{tmp_path.name}", broker.bootstrap_servers
    places = ["--production-servers", servers, "--production-checkpoint", "/checkpoints/late"]
    ran(EO_KAFKA, "new", "late", folder, "--dev-servers", servers, *places)
    built("job", "eo-kafka-job:latest")
    image, base = f"{PREFIX}{folder.name}", f"BASE={PREFIX}eo-kafka-job"
    # the builder that every engine has: BuildKit would ask a registry for the base image
    build = ["--quiet", "--network", "none", "--tag", image, "--build-arg", base]
    ran("docker", "build", *build, folder, DOCKER_BUILDKIT="0")
    try:
        ran(sys.executable, folder / "sample.py", "write")
        command = json.loads(docker("image", "inspect", "--format", "{{json .Config.Cmd}}", image))
        ran("docker", "run", "--rm", "--network", "host", image, *command, "--once")
        assert "Of 400 records" in ran(sys.executable, folder / "sample.py", "check")
    finally:
        docker("rmi", "--force", image)
