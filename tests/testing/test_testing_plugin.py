"""The plug-in of `eo_kafka.testing` where no broker is needed."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import eo_kafka.testing
from eo_kafka.core import crash_points
from eo_kafka.testing import checkpoint_log, nemesis
from eo_kafka.testing.driver import Driver
from eo_kafka.testing.job_program import started
from eo_kafka.testing.order import out_of_order
from eo_kafka.testing.processes import FOLDER
from eo_kafka.tools.shared.job_function import job_function

HEAVY = ("psutil", "confluent_kafka", "kafka", "pyspark", "pyarrow", "numba")
INNER = """
import eo_kafka.testing.shared_servers as shared, os

def test_inner(pytester):
    before = os.environ[shared.FOLDER]
    pytester.makepyfile("def test_innermost(): pass")
    pytester.runpytest_inprocess().assert_outcomes(passed=1)
    assert os.environ[shared.FOLDER] == before
"""


def run_pytest(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def test_a_project_that_does_not_use_it_pays_nothing():
    """pytest loads it wherever eo-kafka is installed."""
    code = f"import sys, eo_kafka.testing.plugin; print([n for n in {HEAVY} if n in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_run_inside_of_a_run_leaves_the_outer_ones_servers_alone(tmp_path):
    (tmp_path / "test_it.py").write_text(INNER)
    ran = run_pytest("-p", "pytester", folder=tmp_path)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_the_header_says_when_a_container_was_asked_for_and_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine")
    (tmp_path / "test_it.py").write_text("def test_it(): pass")
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--eo-kafka=container"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (
        "eo-kafka: Kafka is a PROCESS, not in a container: no Docker engine answers" in ran.stdout
    )


def test_what_is_missing_or_wrong_is_said_at_once(tmp_path):
    (tmp_path / "psutil.py").write_text("raise ImportError('planted')")
    (tmp_path / "test_it.py").write_text("def test_it(eo_broker): pass")
    ran = run_pytest(folder=tmp_path)
    assert "eo_kafka.testing needs psutil: pip install 'eo-kafka[testing]'" in ran.stdout
    (tmp_path / "psutil.py").unlink()
    ran = run_pytest("--eo-kafka=127.0.0.1:1", folder=tmp_path)
    assert "No Kafka broker listens at 127.0.0.1:1" in ran.stdout
    marked = "import pytest\n@pytest.mark.eo_kafka(owned=True)\ndef test_it(eo_broker): pass"
    (tmp_path / "test_it.py").write_text(marked)
    assert "known, not {'owned': True}" in run_pytest(folder=tmp_path).stdout


def test_every_name_is_there_and_every_crash_point_belongs_to_one_kind_of_job():
    assert all(getattr(eo_kafka.testing, name) for name in dir(eo_kafka.testing))
    stream, others = eo_kafka.testing.CRASH_POINTS, eo_kafka.testing.OTHER_CRASH_POINTS
    every = Counter(itertools.chain(stream, *others.values()))
    assert set(every) == crash_points.POINTS
    assert max(every.values()) == 1


def test_only_a_tests_own_drivers_are_told_of_crash_points(tmp_path, monkeypatch):
    monkeypatch.delenv(FOLDER, raising=False)
    code = f"import os; print(os.environ['{FOLDER}'])"
    driver = Driver([sys.executable, "-c", code], tmp_path / "log", {FOLDER: "here"})
    assert driver.wait(30) == 0
    assert (tmp_path / "log").read_text() == "here\n"
    assert FOLDER not in os.environ


def test_a_seed_gives_the_same_faults_in_the_same_order():
    def first(seed: int) -> list[tuple[str, float]]:
        faults = itertools.islice(nemesis.plan(seed, set(nemesis.FAULTS)), 100)
        return [(name, chance.random()) for name, chance in faults]

    assert first(7) == first(7)
    assert first(7) != first(8)
    assert {name for name, _ in first(7)} == set(nemesis.FAULTS)


def test_batches_are_known_from_the_checkpoint(tmp_path):
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits").mkdir()
    for number, end in enumerate((5, 9)):
        text = f'v1\n{{"batchWatermarkMs":0}}\n{{"in":{{"0":{end},"1":0}}}}\n17\n'
        (tmp_path / "offsets" / str(number)).write_text(text)
    (tmp_path / "offsets" / ".1.crc").write_text("")
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    known = checkpoint_log.batches(tmp_path)
    assert [checkpoint_log.batch_of(known, "in", 0, at) for at in (4, 5, 9)] == [0, 1, None]
    assert checkpoint_log.batch_of(known, "other", 0, 0) is None
    assert checkpoint_log.committed_ends(tmp_path) == {"in": {0: 5, 1: 0}}
    assert checkpoint_log.committed_ends(tmp_path / "nowhere") == {}


def test_rows_of_different_partitions_may_change_places():
    place = {"a": (0, 0), "b": (0, 1), "c": (1, 0)}
    assert not out_of_order(place, [(0, 0, "c"), (0, 1, "a"), (1, 0, "b"), (1, 1, "?")])
    assert out_of_order(place, [(0, 0, "b"), (0, 1, "a")]) == [
        "input 0:1 stands at output 0:0, and the earlier 0:0 behind it at 0:1"
    ]


def test_a_job_that_is_none_is_refused():
    for name in ("my_app.pipeline", ":build", "my_app.pipeline:"):
        with pytest.raises(ValueError, match=f"'{name}' is not 'module:function'"):
            job_function(name)
    with pytest.raises(TypeError, match="returned NoneType: it must return a DataStreamWriter"):
        started(None, drain=True)
