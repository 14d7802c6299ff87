"""The connector on the PySpark and Python versions it claims, each in an environment of its own
that has the built wheel in it: see docs/versions.md.

An environment is half a gigabyte to install: CI has one, `make test-full` all of them.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from environments import build_wheel, interpreter, lowest, new_environment, variables
from harness import (
    JOBS,
    Copy,
    Stateful,
    assert_exactly_once,
    assert_settled,
    committed,
    kill_driver_at,
    make_copy,
    produce,
)
from test_restore_jobs import FIRST, ROCKSDB, SECOND

pytestmark = pytest.mark.timeout(1200)
OLDEST = ("3.10", "4.0.0")  # with the lowest versions of all other packages, too
PAIRS = [  # Python 3.11 with 4.3.0 is what all other tests run on
    OLDEST,
    ("3.13", "4.0.5"),
    ("3.11", "4.1.0"),
    ("3.12", "4.1.4"),
    ("3.10", "4.2.0"),
    ("3.13", "4.2.1"),
    ("3.12", "4.3.0"),
    ("3.13", "4.3.0"),
]
VALUES = [b"%d" % number for number in range(600)]
LATER = [b"later-%d" % number for number in range(200)]


class Environment(NamedTuple):
    """A Python with a PySpark and the wheel."""

    python: Path
    pyspark: str
    variables: dict[str, str]

    @property
    def has_all(self) -> bool:
        return self.pyspark not in ("4.0.0", "4.0.5", "4.1.0", "4.1.4")

    @property
    def settings(self) -> dict[str, object]:
        """Of a job that runs here."""
        limit = 250 if self.has_all else None
        return {"python": self.python, "variables": self.variables, "per_batch": limit}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(pair, marks=[] if pair == OLDEST else pytest.mark.full, id="-".join(pair))
        for pair in PAIRS
    ],
)
def environment(request, wheel, crash_folder, tmp_path_factory):
    version, pyspark = request.param
    found = interpreter(version)
    if found is None:
        pytest.skip(f"there is no Python {version} on this machine")
    folder = tmp_path_factory.mktemp("environment")
    packages = [f"{wheel}[avro,state]", f"pyspark=={pyspark}"]
    if request.param == OLDEST:
        packages += [*lowest("avro", "state"), "numpy==1.24"]  # numba's lowest, which is used here
    python = new_environment(folder / "venv", found, *packages)
    yield Environment(python, pyspark, variables(python, folder))
    shutil.rmtree(folder)  # or nine of them would be there at the end


@pytest.mark.full
def test_a_driver_that_is_killed_loses_and_repeats_nothing(
    environment, broker, make_topic, crash_points, tmp_path
):
    log = tmp_path / "log"
    servers = broker.bootstrap_servers
    job = make_copy(servers, make_topic, tmp_path, VALUES, **environment.settings)
    kill_driver_at(job, crash_points, "S7.after_first_end_txn", log)
    run_to_the_end(job, log)
    produce(servers, job.source_topic, LATER)
    kill_driver_at(job, crash_points, "S6.before_decision", log)
    run_to_the_end(job, log)
    assert_exactly_once(job, VALUES + LATER)


def run_to_the_end(job: Copy, log: Path) -> None:
    """Before 4.2 a run that begins with an uncommitted batch ends with it: here that is all."""
    assert job.run_in_own_driver(log) == 0, log.read_text()[-4000:]


@pytest.mark.full
@pytest.mark.parametrize(
    ("operator", "mode"), [("window", "append"), ("window", "update"), ("pandas", "append")]
)
def test_a_checkpoint_that_is_lost_is_restored(
    environment, broker, make_topic, crash_points, tmp_path, operator, mode
):
    log, servers = tmp_path / "log", broker.bootstrap_servers
    source = make_topic("in")
    produce(servers, source, FIRST)
    lost, same = (
        Stateful(
            servers=servers,
            source_topic=source,
            sink_topic=make_topic(name),
            checkpoint=tmp_path / name,
            job_name=f"{name}-{source}",
            operator=operator,
            mode=mode,
            conf=ROCKSDB if operator == "pandas" else {},
            **environment.settings,
        )
        for name in ("lost", "same")
    )
    for job in (lost, same):
        run_to_the_end(job, log)
    produce(servers, source, SECOND)
    run_to_the_end(same, log)
    kill_driver_at(lost, crash_points, "S6.after_decision", log)
    shutil.rmtree(lost.checkpoint)
    run_to_the_end(lost, log)
    expected = committed(servers, same.sink_topic)
    assert expected
    assert committed(servers, lost.sink_topic) == expected
    assert_settled(lost)


def test_batch_and_stream_and_what_is_refused(environment, broker, make_topic, tmp_path):
    arguments = [broker.bootstrap_servers, make_topic("in"), make_topic("out"), tmp_path]
    ran = subprocess.run(
        [environment.python, "-I", JOBS / "four_roles.py", *arguments],
        cwd=tmp_path,
        env=environment.variables,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    assert f"all four roles work on PySpark {environment.pyspark}" in ran.stdout
    needs = f"needs PySpark 4.2 or newer, and this is {environment.pyspark}"
    for option in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "jobName", "snapshotInterval"):
        refused = f"Option '{option}' {needs}" in ran.stdout
        assert refused != environment.has_all, option
    for name, batches in (("limited", 3), ("recorded", 1), ("interval", 1)):
        assert (f"{name}: {batches} batches" in ran.stdout) == environment.has_all, name
    avro = f"to_avro need PySpark 4.1 or newer, and this is {environment.pyspark}"
    assert (avro in ran.stdout) == environment.pyspark.startswith("4.0")
    assert "json: [0, 1, 2]" in ran.stdout
    assert "avro: [0, 1, 2]" in ran.stdout
    assert ("from_avro: [0, 1, 2]" in ran.stdout) != environment.pyspark.startswith("4.0")
