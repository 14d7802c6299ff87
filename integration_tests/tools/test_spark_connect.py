"""Spark Connect: the server runs the formats, the client the functions of `eo_kafka`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import ClassVar

import pytest

from connect_port import connect_port
from harness import JOBS, Copy, assert_exactly_once, make_copy, started

pytest.importorskip("grpc", reason="Spark Connect needs pyspark[connect]")
pytestmark = pytest.mark.full  # two minutes, and nothing of ours differs from Spark Classic
VALUES = [b"%d" % number for number in range(600)]


@pytest.fixture(scope="module")
def said(broker, make_topic, crash_folder, tmp_path_factory) -> dict[str, object]:
    """What jobs/connect_roles.py found."""
    folder = tmp_path_factory.mktemp("connect")
    arguments = [broker.bootstrap_servers, make_topic("in"), make_topic("out"), folder]
    with connect_port():
        ran = subprocess.run(
            [sys.executable, JOBS / "connect_roles.py", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
        )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:]
    return json.loads(ran.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("step", "result"),
    [
        ("batch", 100),
        (
            "streaming",
            [3, 100, 0, 1],
        ),  # batches of 40 offsets; no lag; one sink, the server is near
        ("restored", 200),  # both runs of it wrote the input's 100 once
        ("snapshots", ["latest"]),
        ("group", 102),  # of two records that end a transaction, too
        ("avro", [0, 1, 2]),
        ("view", 3),
        ("direct", 100),
        ("plain_in_foreach_batch", 200),  # twice: a task is not told that it belongs to a query
        ("numbered_in_foreach_batch", 100),
        ("after_foreach_batch", 300),  # 100 of the query with the listener, none of the refused one
    ],
)
def test_what_works(said, step, result):
    assert said[step] == result


@pytest.mark.parametrize(
    ("step", "sentence"),
    [
        ("in_foreach_batch", "Spark Connect does not inside foreachBatch"),
        ("registered", "EnvironmentRefused: eo_kafka.register is for Spark Classic"),
    ],
)
def test_what_is_refused(said, step, sentence):
    assert sentence in said[step]


class ConnectCopy(Copy):
    script: ClassVar[str] = "connect_copy.py"


def test_a_server_that_is_killed_loses_and_repeats_nothing(
    broker, make_topic, crash_points, tmp_path
):
    servers = broker.bootstrap_servers
    job = make_copy(servers, make_topic, tmp_path, VALUES, kind=ConnectCopy)
    crash_points.arm("S7.after_first_end_txn", "kill-driver")
    log = tmp_path / "log"
    with connect_port():
        with started(job, log):  # a client asks a dead server for minutes before it ends
            crash_points.wait_reached("S7.after_first_end_txn")
        assert job.run_in_own_driver(log) == 0, log.read_text()[-4000:]
    assert_exactly_once(job, VALUES)
