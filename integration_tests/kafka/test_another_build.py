"""Executors that have another build of this package than the driver: nothing is read or written,
and the driver's log says which of them has what."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eo_kafka
from eo_kafka.core import build
from harness import produce, written

JOB = """
import sys
from pyspark.sql import SparkSession
import eo_kafka
servers, which, topic, other = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
rows = spark.range(2).selectExpr("CAST(id AS STRING) value")
if which == "reads":
    rows = spark.read.format("eo-kafka").option("kafka.bootstrap.servers", servers)
    rows = rows.option("subscribe", other).load().select("value")
    print(rows.collect())
else:
    out = rows.write.format("eo-kafka").option("kafka.bootstrap.servers", servers)
    out.option("topic", topic).option("jobName", topic).mode("append").save()
"""
# Tasks run in another Python installation than the driver, and than what Spark starts for planning.
PYTHON = """#!/bin/sh
case "$*" in
*"pyspark.daemon pyspark.worker"*) export PYTHONPATH="{other}:$PYTHONPATH" ;;
esac
exec "{python}" "$@"
"""


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """One that gives tasks a copy of the package in which a line was added."""
    copy = tmp_path / "other" / "eo_kafka"
    home = Path(eo_kafka.__file__).parent
    for room in build._ROOMS:
        shutil.copytree(home / room, copy / room)
    for file in home.glob("*.py"):
        shutil.copy(file, copy)
    with (copy / "core/process/moment.py").open("a") as changed:
        changed.write("# another build\n")
    wrapper = tmp_path / "python"
    wrapper.write_text(PYTHON.format(other=copy.parent, python=sys.executable))
    wrapper.chmod(0o755)
    return wrapper


@pytest.mark.parametrize("which", ["reads", "writes"])
def test_tasks_of_another_build_do_nothing(
    broker: Any, make_topic: Any, python: Path, which: str
) -> None:
    topic, other = make_topic(f"build-{which}"), make_topic(f"build-{which}-in")
    produce(broker.bootstrap_servers, other, [b"a record"])

    words = [broker.bootstrap_servers, which, topic, other]
    ended = subprocess.run(
        [sys.executable, "-c", JOB, *words],
        env={**os.environ, "PYSPARK_PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )

    assert ended.returncode != 0
    said = re.search(
        r"EnvironmentRefused: The driver runs eo-kafka (\S+ build \w+), and a task on host \S+ "
        r"(\S+ build \w+), from (\S+):",
        ended.stderr,
    )
    assert said, ended.stderr[-3000:]
    driver, task, place = said.groups()
    assert driver == build.mark() != task
    assert place == str(python.parent / "other/eo_kafka")
    assert "a record" not in ended.stdout
    assert not written(broker.bootstrap_servers, topic)
