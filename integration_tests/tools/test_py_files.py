"""The package shipped with the application: `--py-files` and `--archives`, on a cluster whose
machines have the clients but not this package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from environments import bare_environment, build_wheel, variables
from eo_kafka.testing.standalone_spark import SPARK_HOME, standalone
from harness import JOBS

WORKS, MISSING = "all four roles work", "Failed to find the data source: eo-kafka"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory) -> Path:
    return bare_environment(tmp_path_factory.mktemp("bare") / "venv")


@pytest.fixture(scope="module")
def master(tmp_path_factory):
    """A cluster that has not inherited this package from the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        with standalone(1, tmp_path_factory.mktemp("cluster")) as url:
            yield url


@pytest.fixture
def submit(master, broker, make_topic, tmp_path):
    """Runs the four roles with spark-submit; what it said."""

    def run(*options: str | Path, **more: str) -> str:
        python = more["PYSPARK_PYTHON"]
        topics = make_topic("in"), make_topic("out")
        arguments = [JOBS / "four_roles.py", broker.bootstrap_servers, *topics, tmp_path / "point"]
        ran = subprocess.run(
            [SPARK_HOME / "bin" / "spark-submit", "--master", master, *options, *arguments],
            cwd=tmp_path,
            env={**variables(Path(python), tmp_path), "MASTER": master, **more},
            capture_output=True,
            text=True,
        )
        return ran.stdout + ran.stderr

    return run


@pytest.mark.full
def test_spark_does_not_look_for_formats_in_py_files(submit, wheel, bare):
    said = submit("--py-files", zip_of(wheel), PYSPARK_PYTHON=str(bare))
    assert MISSING in said
    assert WORKS not in said


@pytest.mark.full
def test_py_files_work_once_the_formats_are_registered(submit, wheel, bare):
    said = submit("--py-files", zip_of(wheel), PYSPARK_PYTHON=str(bare), REGISTER="yes")
    assert WORKS in said, said
    assert "limited: 3 batches" in said
    assert worker_path(said) == f"./{zip_of(wheel).name}/eo_kafka/__init__.py"


def worker_path(said: str) -> str:
    """Where a task had the package from."""
    (line,) = (line for line in said.splitlines() if line.startswith("the driver has"))
    return line.partition("a worker ")[2]


def zip_of(wheel: Path) -> Path:
    """The wheel under a name that Spark puts on the path of Python."""
    archive = wheel.with_suffix(".zip")
    shutil.copy(wheel, archive)  # of a link Spark would take the other name
    return archive


@pytest.mark.full
def test_a_packed_environment_works_without_registration(submit, wheel, bare, tmp_path):
    """Driver and workers run `environment/bin/python`, each of its own copy."""
    venv.create(tmp_path / "environment", symlinks=True)
    (packages,) = (tmp_path / "environment").glob("lib/python*/site-packages")
    (clients,) = bare.parents[1].glob("lib/python*/site-packages")
    (packages / "clients.pth").write_text(str(clients))  # not packed: half a gigabyte
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as packed:
        for path in (tmp_path / "environment").iterdir():
            packed.add(path, path.name)
    said = submit(
        "--archives",
        f"{tmp_path}/packed.tar.gz#environment",
        PYSPARK_PYTHON="environment/bin/python",
    )
    assert WORKS in said, said
    assert "userFiles" not in worker_path(said)
    assert "environment/lib" in worker_path(said)


LOOK = """
import eo_kafka
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()


def look():
    return spark.read.format("eo-kafka").option("kafka.bootstrap.servers", "a:1").option(
        "subscribe", "t"
    ).load().columns


for _ in range(2):
    try:
        print("found", look())
    except Exception as error:
        print("not found", error)
eo_kafka.register(spark)
print("registered", look())
"""


@pytest.mark.full
def test_register_helps_where_sparks_one_look_for_formats_failed(tmp_path):
    """A module of somebody else's fails, or no process of Spark's starts in time."""
    (tmp_path / "pyspark_of_others.py").write_text("raise RuntimeError('broken')")
    (tmp_path / "look.py").write_text(LOOK)
    ran = subprocess.run(
        [sys.executable, "look.py"],
        cwd=tmp_path,
        env={**variables(Path(sys.executable), tmp_path), "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert "Skipping the lookup of Python Data Sources due to the failure" in ran.stderr
    assert ran.stdout.count(MISSING) == 2, "Spark looks once only"
    assert "registered ['key', 'value'," in ran.stdout, ran.stdout + ran.stderr


def test_register_helps_where_the_drivers_python_is_jupyter(tmp_path):
    """As in `PYSPARK_DRIVER_PYTHON=jupyter pyspark`: Spark asks that program for the formats."""
    jupyter = tmp_path / "jupyter"
    jupyter.write_text('#!/bin/sh\necho "not a Jupyter command: $*" >&2\nexit 1\n')
    jupyter.chmod(0o755)
    named = {"PYSPARK_DRIVER_PYTHON": str(jupyter), "PYSPARK_PYTHON": sys.executable}
    ran = subprocess.run(
        [sys.executable, "-c", LOOK],
        cwd=tmp_path,
        env={**os.environ, **named},
        capture_output=True,
        text=True,
    )
    assert ran.stdout.count(MISSING) == 2, ran.stdout + ran.stderr
    assert "registered ['key', 'value'," in ran.stdout, ran.stdout + ran.stderr


DIGEST = """
import pyarrow as pa
from eo_kafka.core import librdkafka
from eo_kafka.sinks.rows.fast import row_digest
assert librdkafka.available() is None, librdkafka.available()
print(row_digest([pa.record_batch([pa.array([b"v"])], names=["value"])], "topic"))
"""


def digest_from(archive: Path, python: Path, home: Path) -> str:
    env = {**variables(python, home), "PYTHONPATH": str(archive)}
    ran = subprocess.run([python, "-c", DIGEST], env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_loops_out_of_a_zip_are_compiled_once_for_all_applications(wheel, bare, tmp_path):
    (tmp_path / "another").mkdir()  # each application has the zip under another path
    other = Path(shutil.copy(zip_of(wheel), tmp_path / "another"))
    first = digest_from(zip_of(wheel), bare, tmp_path)
    compiled = sorted(tmp_path.rglob("*digest_rows*.loop"))
    assert digest_from(other, bare, tmp_path) == first
    assert sorted(tmp_path.rglob("*digest_rows*.loop")) == compiled
    assert len(compiled) == 1


def test_loops_out_of_a_zip_need_no_folder_to_write_to(wheel, bare, tmp_path):
    nowhere = Path("/proc/nowhere")
    assert digest_from(zip_of(wheel), bare, nowhere) == digest_from(zip_of(wheel), bare, tmp_path)
