"""What servers and drivers of `eo_kafka.testing` leave on this machine, and who can reach them."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import psutil
import pytest

from eo_kafka.broker.postgres import Postgres
from eo_kafka.testing.processes import listening_addresses, wait_until
from eo_kafka.testing.standalone_spark import standalone

COPY = "jobs.proved_jobs:copy"


def test_postgresql_takes_its_shared_memory_with_it():
    with Postgres() as server:
        maps = Path(f"/proc/{server.pid}/maps").read_text()
        used = [Path(name) for name in set(re.findall(r"/dev/shm/PostgreSQL\.\d+", maps))]
        assert used
        assert all(path.exists() for path in used)
    assert not any(path.exists() for path in used)


@pytest.mark.timeout(300)
def test_a_spark_cluster_listens_on_loopback_only(tmp_path):
    before = set(psutil.Process().children(recursive=True))
    with standalone(2, tmp_path):
        mine = set(psutil.Process().children(recursive=True)) - before
        found = [listening_addresses(one.pid) for one in mine if one.name() == "java"]
        assert sorted(map(sorted, found)) == [["127.0.0.1"], ["127.0.0.1"], ["127.0.0.2"]]


@pytest.mark.timeout(300)
def test_a_driver_listens_on_loopback_only_and_leaves_its_files_with_the_test(eo_broker, eo_job):
    eo_broker.topic("in").write([b"1", b"2"])
    job = eo_job(COPY, source="in", sink="out")
    job.start()
    wait_until(lambda: job.running().has_started, "its query is started", 180)
    jvm = job.running().jvm()
    assert listening_addresses(jvm) == {"127.0.0.1"}
    opened = {Path(file.path) for file in psutil.Process(jvm).open_files()}
    assert not [path for path in opened if path.match(f"{tempfile.gettempdir()}/spark-*/**")]
    job.kill_driver()
    left = [path.name for path in job.left.iterdir()]
    assert any(name.startswith("blockmgr-") for name in left), left
    assert any(name.startswith("spark-") for name in left), left
